package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/table"
)

const (
	floodSize    = 256 // bytes
	floodTopics  = 64  // of each producer
	floodStreams = 4   // producers
	// A rate is sustained while so much of it is accepted, half of it within so long. A disk's moments make the p99 of two seconds a game of chance.
	sustained   = 0.98
	bearable    = 50 // ms
	slowest     = 2_000
	fastest     = 400_000
	overloadBy  = 3
	goodputGoal = 0.9
	waitGoal    = 3 // times the unloaded p99
	greedyRate  = 30_000
	modestRate  = 400
	modest      = 5 // producers
)

// stages of an overload of one kind of messages.
type stages struct {
	name  string
	topic string
}

// overload finds the rate that a router with everything behind it sustains, offers three times as much, and puts a greedy producer beside modest
// ones. The load is an open loop in a process of its own, on the same cores.
func (b *bench) overload(ctx context.Context) (err error) {
	dir, err := pgtest.TempDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pg, err := pgtest.Start(dir, 0, "fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=1GB", "max_wal_size=4GB",
		"wal_buffers=64MB", "wal_compression=lz4", "wal_init_zero=off")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Kill()) }()
	if err := b.onMesh(ctx, pg, []string{"--append-wait", "50ms"}, func(m *local.Mesh) error {
		return errors.Join(
			b.flood(m, stages{"durable", "room/flood"}),
			b.flood(m, stages{"ephemeral", "live/flood"}))
	}); err != nil {
		return err
	}
	return b.onMesh(ctx, pg, []string{"--append-wait", "50ms", "--producer-rate", "1000", "--producer-in-flight", "200"}, b.greedy)
}

func (b *bench) onMesh(ctx context.Context, pg *pgtest.Server, args []string, run func(m *local.Mesh) error) (err error) {
	prog := b.programs
	if prog.DB, err = pgtest.Database(pg.URL()); err != nil {
		return err
	}
	prog.RouterArgs = args
	m, err := b.dir.StartMesh(ctx, prog, 1)
	if err != nil {
		return err
	}
	defer m.Stop()
	return run(m)
}

// offer lets sources send for a span. router is the CPU that the router used meanwhile.
func (b *bench) offer(m *local.Mesh, topic string, span time.Duration, sources []source) (l loop, router time.Duration, err error) {
	all := make([]string, floodTopics)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", topic, i)
	}
	w, err := b.hire("open-loop", job{Kind: "open-loop", Addr: m.Router.Addr, Topics: all, Size: floodSize, Span: span, Sources: sources})
	if err != nil {
		return l, 0, err
	}
	before, err := procfs.CPU(m.Router.PID())
	if err != nil {
		return l, 0, errors.Join(err, w.dismiss())
	}
	err = w.tell("go")
	if err == nil {
		err = w.out.Decode(&l)
	}
	after, cpuErr := procfs.CPU(m.Router.PID())
	if l.Other > 0 {
		fmt.Printf("# %s: %d messages were neither taken nor refused: %s\n", topic, l.Other, l.Fault)
	}
	return l, after - before, errors.Join(err, cpuErr, w.dismiss())
}

// mixed are producers that together send so many messages a second, of all priorities alike.
func mixed(rate float64) (all []source) {
	for i := range floodStreams {
		all = append(all, source{Name: fmt.Sprint("producer-", i), Rate: rate / floodStreams, Priorities: 10})
	}
	return all
}

// flood is the overload of one kind of messages.
func (b *bench) flood(m *local.Mesh, s stages) error {
	const try = 2 * time.Second
	sustains := func(rate float64) (bool, loop, error) {
		l, _, err := b.offer(m, s.topic, try, mixed(rate))
		return float64(l.OK) >= sustained*rate*try.Seconds() && l.P50 <= bearable, l, err
	}
	if _, _, err := sustains(slowest); err != nil { // everything is used once
		return err
	}
	low, high := 0.0, fastest*1.0
	peak := 0.0
	for rate := 10_000.0; high > 1.2*low && rate <= fastest; {
		ok, l, err := sustains(rate)
		if err == nil && !ok { // once more: a machine has its moments
			ok, l, err = sustains(rate)
		}
		if err != nil {
			return err
		}
		fmt.Printf("# %s: %.0f/s offered: %.0f/s accepted, p99 %.1f ms, %d unsent\n", s.name, rate, float64(l.OK)/try.Seconds(), l.P99, l.Unsent)
		if ok {
			low = rate
			peak = max(peak, float64(l.OK)/try.Seconds())
		} else {
			high = rate
		}
		if rate = 2 * low; high < fastest {
			rate = (low + high) / 2
		}
		if low == 0 {
			rate = high / 2
		}
	}
	if low == 0 {
		return fmt.Errorf("%s: no rate is sustained", s.name)
	}
	const span = 8 * time.Second
	calm, _, err := b.offer(m, s.topic, span/2, mixed(low/5))
	if err != nil {
		return err
	}
	l, cpu, err := b.offer(m, s.topic, span, mixed(overloadBy*low))
	if err != nil {
		return err
	}
	goodput := float64(l.OK) / span.Seconds()
	offered := overloadBy * low * span.Seconds()
	said := fmt.Sprintf("%.0f/s sustained (p50 ≤ %d ms), %.0f/s offered, of that %.0f %% not sent; refused %.0f %%; taken of priorities 0 to 9 in %%: %s; router's CPU %.2f of 2 cores",
		low, bearable, overloadBy*low, 100*float64(l.Unsent)/offered, 100*float64(l.Refused)/offered, shares(l), cpu.Seconds()/span.Seconds())
	b.add(
		table.AtLeast(s.name+", three times what is sustained: goodput of the peak", goodput/peak, "ratio", goodputGoal, said),
		table.AtMost(s.name+", three times what is sustained: p99 of what is accepted", l.P99/calm.P99, "× unloaded", waitGoal,
			fmt.Sprintf("p50 %.1f ms, p99 %.1f ms; unloaded (a fifth) %.1f and %.1f ms", l.P50, l.P99, calm.P50, calm.P99)),
	)
	if l.Unanswered > 0 {
		return fmt.Errorf("%s: %d messages were never answered", s.name, l.Unanswered)
	}
	return nil
}

// shares of each priority that were taken, in per cent.
func shares(l loop) (text string) {
	for i := range l.Accepted {
		text += fmt.Sprintf("%.0f ", 100*float64(l.Accepted[i])/max(float64(l.Offered[i]), 1))
	}
	return text[:len(text)-1]
}

// greedy puts a producer that sends thirty times what it may, and ignores that it is refused, beside modest ones.
func (b *bench) greedy(m *local.Mesh) error {
	const span = 5 * time.Second
	var sources []source
	for i := range modest {
		sources = append(sources, source{Name: fmt.Sprint("modest-", i), Rate: modestRate})
	}
	if _, _, err := b.offer(m, "room/greedy", time.Second, sources); err != nil {
		return err
	}
	alone, without, err := b.offer(m, "room/greedy", span, sources)
	if err != nil {
		return err
	}
	beside, with, err := b.offer(m, "room/greedy", span, append(sources, source{Name: "greedy", Rate: greedyRate, Greedy: true}))
	if err != nil {
		return err
	}
	said := fmt.Sprintf("greedy: %d/s wanted, limit 1,000/s, %.0f/s taken, %.0f/s read and refused, %.0f/s left in its own hands; router's CPU %.0f ms/s with it and %.0f without",
		greedyRate, float64(beside.GreedyOK)/span.Seconds(), float64(beside.GreedySent-beside.GreedyOK)/span.Seconds(), float64(beside.GreedyUnsent)/span.Seconds(),
		with.Seconds()*1000/span.Seconds(), without.Seconds()*1000/span.Seconds())
	b.add(
		table.AtMost("modest producers beside a greedy one: p99", beside.P99/alone.P99, "× alone", waitGoal,
			fmt.Sprintf("p50 %.1f ms, p99 %.1f ms; alone %.1f and %.1f ms; %s", beside.P50, beside.P99, alone.P50, alone.P99, said)),
		table.AtMost("modest producers beside a greedy one: refused", float64(beside.Refused), "messages", 0, fmt.Sprintf("of %d", beside.OK+beside.Refused)),
	)
	return nil
}
