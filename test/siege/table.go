package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/siege/honest"
)

// head of the table for people.
const head = "| attack | what it got | what others felt: p99 in ms, calm → during (ratio) | honest connections ended, calls refused, garbled | memory in MiB before/top/after | edge back in | metric |\n|---|---|---|---|---|---|---|\n"

func joinedNames(names string) string { return strings.ReplaceAll(names, " ", "") }

// line of the table for people.
func (r *result) line() string {
	var felt, memory []string
	for _, k := range honest.Kinds() {
		felt = append(felt, fmt.Sprintf("%s %.1f → %.1f (%.1f)%s", k, r.calm.P99[k], r.during.P99[k], r.ratio(k), map[bool]string{false: " MISSED"}[r.ratio(k) <= r.goal(k)]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.before)) {
		memory = append(memory, fmt.Sprintf("%s %d/%d/%d", name, r.before[name]>>20, max(r.top[name], r.before[name])>>20, r.after[name]>>20))
	}
	got := strings.Join(append([]string{r.got.String()}, append(r.faults, r.ended...)...), "; ")
	return fmt.Sprintf("| %s | %s | %s | %d, %d, %d | %s | %s | `%s` +%.0f |", r.attack.Name, got, strings.Join(felt, ", "),
		r.during.Ends, r.during.Refused, r.during.Garbled, strings.Join(memory, ", "), r.backSaid(), r.attack.Metric, r.metric)
}

func (r *result) backSaid() string {
	if r.back >= mostBack {
		return "not within a minute"
	}
	return r.back.Round(100 * time.Millisecond).String()
}

// ratio of a p99 to that of calm; 0 where there is nothing to compare.
func (r *result) ratio(k honest.Kind) float64 {
	switch {
	case r.calm.N[k] == 0:
		return 0
	case r.during.N[k] == 0:
		return 1e6 // nobody got anything
	}
	return r.during.P99[k] / r.calm.P99[k]
}

// goal of a ratio: twice calm, or 5 ms more.
func (r *result) goal(k honest.Kind) float64 {
	if r.calm.N[k] == 0 {
		return 2
	}
	return max(2, (r.calm.P99[k]+5)/r.calm.P99[k])
}

// rows for machines.
func (r *result) rows(edge string) (all []table.Row) {
	name := func(what string) string { return r.attack.Name + ": " + what }
	for _, k := range honest.Kinds() {
		all = append(all, table.AtMost(name(k.String()+" p99 by calm"), r.ratio(k), "×", r.goal(k),
			fmt.Sprintf("calm %.4g ms of %d, during %.4g ms of %d", r.calm.P99[k], r.calm.N[k], r.during.P99[k], r.during.N[k])))
	}
	for _, p := range slices.Sorted(maps.Keys(r.before)) {
		rise := float64(max(r.top[p], r.before[p])-r.before[p]) / (1 << 20)
		said := fmt.Sprintf("%d, at the top %d, after %d MiB", r.before[p]>>20, r.top[p]>>20, r.after[p]>>20)
		if p == edge || strings.HasPrefix(p, "router") {
			all = append(all, table.AtMost(name("RSS of "+p+" rose by"), rise, "MiB", mostRise>>20, said))
		} else {
			all = append(all, table.Figure(name("RSS of "+p+" rose by"), rise, "MiB", said))
		}
	}
	return append(all,
		table.AtMost(name("RSS of "+edge+" back after"), r.back.Seconds(), "s", mostBack.Seconds()-1, r.backSaid()),
		table.AtMost(name("processes ended"), float64(len(r.ended)), "processes", 0, strings.Join(r.ended, "; ")),
		table.AtMost(name("garbled messages to honest subscribers"), float64(r.during.Garbled), "messages", 0, ""),
		table.Figure(name("honest connections ended"), float64(r.during.Ends), "connections", fmt.Sprintf("%d calls and newcomers refused", r.during.Refused)),
		table.Figure(name(r.attack.Metric+" rose by"), r.metric, "1", "the attacker got "+strings.Join(append([]string{r.got.String()}, r.faults...), "; ")),
	)
}
