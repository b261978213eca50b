package failures

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/test/load/table"
)

// figures of a cost, for one column each.
var figures = []struct {
	name, unit string
	of         func(*cost) float64
}{
	{"lasted", "s", func(c *cost) float64 { return c.Lasted.Seconds() }},
	{"durable messages offered", "messages", func(c *cost) float64 { return float64(c.Durable) }},
	{"durable messages that failed", "messages", func(c *cost) float64 { return float64(c.Failed) }},
	{"ephemeral messages offered", "messages", func(c *cost) float64 { return float64(c.Ephemeral) }},
	{"ephemeral messages refused", "messages", func(c *cost) float64 { return float64(c.Refused) }},
	{"ephemeral messages lost, mean of subscribers", "messages", func(c *cost) float64 { return c.LostMean }},
	{"ephemeral messages lost, most of a subscriber", "messages", func(c *cost) float64 { return float64(c.LostMost) }},
	{"longest wait of a producer it met", "s", func(c *cost) float64 { return c.WaitHit.Seconds() }},
	{"longest wait of another producer", "s", func(c *cost) float64 { return c.WaitOthers.Seconds() }},
	{"longest gap of a subscription it met", "s", func(c *cost) float64 { return c.GapHit.Seconds() }},
	{"longest gap of another subscription", "s", func(c *cost) float64 { return c.GapOthers.Seconds() }},
	{"most tries of a plain call", "calls", func(c *cost) float64 { return float64(c.Tries) }},
	{"level again after", "s", func(c *cost) float64 { return c.Level.Seconds() }},
}

// spread is the middle one of several runs, and the range of all.
func spread(runs []cost, of func(*cost) float64, form string) string {
	var all []float64
	for i := range runs {
		all = append(all, of(&runs[i]))
	}
	slices.Sort(all)
	if all[0] < 0 {
		return "–"
	}
	show := func(v float64) string { return fmt.Sprintf(form, v) }
	middle := show(all[len(all)/2])
	if low, high := show(all[0]), show(all[len(all)-1]); low != high {
		return fmt.Sprintf("%s (%s–%s)", middle, low, high)
	}
	return middle
}

// pair is what the fault met, and others: durations in seconds.
func pair(runs []cost, met, others func(*cost) time.Duration) string {
	text := func(of func(*cost) time.Duration) string {
		return spread(runs, func(c *cost) float64 { return of(c).Seconds() }, "%.2f")
	}
	return text(met) + " / " + text(others)
}

// print writes a table for people: a row for each fault, the middle of its runs and their range.
func print(out io.Writer, names []string, runs map[string][]cost) {
	fmt.Fprintln(out, "| fault | lasted | durable failed | ephemeral refused, lost | longest wait for an answer, struck / others | longest gap, struck / others | level again after |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, name := range names {
		r := runs[name]
		count := func(of func(*cost) float64) string { return spread(r, of, "%.0f") }
		fmt.Fprintf(out, "| %s | %s s | %s of %s | %s, %s of %s | %s s | %s s | %s s |\n", name,
			spread(r, func(c *cost) float64 { return c.Lasted.Seconds() }, "%.1f"),
			count(func(c *cost) float64 { return float64(c.Failed) }), count(func(c *cost) float64 { return float64(c.Durable) }),
			count(func(c *cost) float64 { return float64(c.Refused) }), count(func(c *cost) float64 { return c.LostMean }), count(func(c *cost) float64 { return float64(c.Ephemeral) }),
			pair(r, func(c *cost) time.Duration { return c.WaitHit }, func(c *cost) time.Duration { return c.WaitOthers }),
			pair(r, func(c *cost) time.Duration { return c.GapHit }, func(c *cost) time.Duration { return c.GapOthers }),
			spread(r, func(c *cost) float64 { return c.Level.Seconds() }, "%.1f"))
	}
}

// rows are all figures of all runs, the middle one each.
func rows(names []string, runs map[string][]cost) (all []table.Row) {
	for _, name := range names {
		for _, f := range figures {
			var vs []float64
			for i := range runs[name] {
				vs = append(vs, f.of(&runs[name][i]))
			}
			slices.Sort(vs)
			if v := vs[len(vs)/2]; v >= 0 {
				all = append(all, table.Figure(name+": "+f.name, v, f.unit, "runs: "+fmt.Sprint(vs)))
			}
		}
	}
	return all
}
