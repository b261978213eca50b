package router

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// trySpan is how long a rate is tried, after half a second that does not count.
	trySpan = time.Second
	// floodRounds of: a fifth of what is sustained, all of it, a third more, three times, all of it
	// again, from producers with a MaxWait; and as many times three times as much from some that
	// ignore all they are told. Ratios are taken within a round, and the median of them is the
	// figure.
	floodRounds = 3
	beyondBy    = 1.33
	roundSpan   = 2 * time.Second
)

// flood is the overload of one kind of messages.
func (b *bench) flood(s *stage) (err error) {
	defer try.Catch(&err)
	try.Get(s.offer(trySpan, mixed(slowest, 0))) // everything is used once
	rate := float64(b.sustains)
	if rate == 0 {
		rate = try.Get(s.sustain())
	}
	try.Do(s.null(func(s *stage) error { return s.control(overloadBy * rate) }))
	heeding, ignoring := &kind{s: s, rate: rate, who: "producers with MaxWait"}, &kind{s: s, rate: rate, who: "producers that ignore refusals"}
	type round struct {
		peak float64
		calm offered
	}
	var rounds []round
	for range floodRounds {
		var of [5]offered
		for i, times := range []float64{.2, 1, beyondBy, overloadBy, 1} {
			span := roundSpan
			if times == overloadBy {
				span *= 2
			}
			of[i] = try.Get(s.offer(span, mixed(times*rate, s.wait)))
		}
		peak := max(of[1].rate(), of[2].rate(), of[4].rate())
		fmt.Printf("# %s: %.0f/s, %.0f/s of a third more, %.0f/s of three times as many, then %.0f/s; p99 %.1f, %.1f, %.1f, %.1f, %.1f ms\n", s.name,
			of[1].rate(), of[2].rate(), of[3].rate(), of[4].rate(), of[0].P99, of[1].P99, of[2].P99, of[3].P99, of[4].P99)
		heeding.add(peak, &of[0], &of[3])
		rounds = append(rounds, round{peak, of[0]})
	}
	for _, r := range rounds {
		// afterwards: what they leave to the disk would be in the others' way
		over := try.Get(s.offer(2*roundSpan, mixed(overloadBy*rate, 0)))
		ignoring.add(r.peak, &r.calm, &over)
	}
	heeding.rows()
	ignoring.rows()
	return nil
}

// control says what the load makes of a router that does nothing.
func (s *stage) control(rate float64) (err error) {
	defer try.Catch(&err)
	o := try.Get(s.offer(roundSpan, mixed(rate, 0)))
	s.b.Add(table.Figure(s.name+", three times what is sustained: p99 with a router that does nothing", o.P99, "ms",
		fmt.Sprintf("%.0f/s offered and %.0f/s answered, %d not sent; p50 %.1f ms, p99 %.1f until it was sent; CPUs of the load %.2f, of that router %.2f",
			rate, o.rate(), o.Unsent, o.P50, o.Held99, o.generator, o.router)))
	return nil
}

// kind of producers, and what came of three times as much from them.
type kind struct {
	s              *stage
	rate           float64
	who            string
	goodput, waits []float64
	said           []string
}

func (k *kind) add(peak float64, calm, over *offered) {
	k.goodput, k.waits = append(k.goodput, over.rate()/peak), append(k.waits, over.P99/calm.P99)
	k.said = append(k.said, k.s.say(k.rate, calm, over))
	fmt.Printf("# %s, %s: %s\n", k.s.name, k.who, k.said[len(k.said)-1])
}

func (k *kind) rows() {
	at := table.At(slices.Clone(k.waits), .5)
	what := k.s.name + ", three times what is sustained, " + k.who + ": "
	text := fmt.Sprintf("of %d rounds: %.2f; the one with the median p99: %s", floodRounds, k.goodput, k.said[slices.Index(k.waits, at)])
	k.s.b.Add(
		table.AtLeast(what+"goodput of the peak", table.Median(k.goodput), "ratio", goodputGoal, text),
		table.AtMost(what+"p99 of what is accepted", at, "× unloaded", waitGoal, fmt.Sprintf("of %d rounds: %.2f", floodRounds, k.waits)),
	)
}

func (s *stage) say(rate float64, calm, over *offered) string {
	all := overloadBy * rate * over.span.Seconds()
	return fmt.Sprintf("%.0f/s sustained, %.0f/s offered, of that %.0f %% not sent, %.0f %% refused by routers and %.0f %% by the producers; taken of priorities 0 to 9 in %%: %s; "+
		"p50 %.1f ms, p99 %.1f ms (%.1f until it was sent), in the first half second %.1f; unloaded (a fifth) %.1f and %.1f ms; CPUs of the router %.2f, of the load %.2f",
		rate, overloadBy*rate, 100*float64(over.Unsent)/all, 100*float64(over.Refused-over.Own)/all, 100*float64(over.Own)/all, shares(&over.loop),
		over.P50, over.P99, over.Held99, over.FirstP99, calm.P50, calm.P99, over.router, over.generator)
}

// sustain finds the highest rate that holds: by doubling, and then by small steps of which two
// tries of three decide.
func (s *stage) sustain() (_ float64, err error) {
	defer try.Catch(&err)
	holds := func(rate float64) (bool, error) {
		o, err := s.offer(trySpan, mixed(rate, s.wait))
		fmt.Printf("# %s: %.0f/s offered: %.0f/s accepted, p50 %.1f ms, p99 %.1f ms, %d unsent, CPUs of the router %.2f, of the load %.2f\n",
			s.name, rate, o.rate(), o.P50, o.P99, o.Unsent, o.router, o.generator)
		return o.rate() >= sustained*rate && o.P50 <= bearable, err
	}
	rate := 10_000.0
	for ; rate < fastest; rate *= 2 {
		ok := try.Get(holds(rate))
		if !ok {
			break
		}
	}
	ladder := newLadder(rate / math.Sqrt2)
	for !ladder.done() {
		ok := try.Get(holds(ladder.next()))
		ladder.tried(ok)
	}
	if rate = ladder.best(); rate < slowest {
		return 0, fmt.Errorf("%s: no rate is sustained", s.name)
	}
	return rate, nil
}

// shares of each priority that were taken, in per cent.
func shares(l *loop) (text string) {
	for i := range l.Accepted {
		text += fmt.Sprintf("%.0f ", 100*float64(l.Accepted[i])/max(float64(l.Offered[i]), 1))
	}
	return text[:len(text)-1]
}
