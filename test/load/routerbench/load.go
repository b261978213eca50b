package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
)

// load is a publisher and subscribers, processes of their own, around the servers that are
// measured.
type load struct {
	publish   job
	subscribe []job
	servers   []consumer
	// copies of each message that arrive.
	copies int64
	name   string        // of profiles
	warm   time.Duration // of the same that does not count; 0: a second
}

// consumer of CPU: one process or several of a kind.
type consumer struct {
	name string
	ps   []*local.Process
}

// outcome of a load.
type outcome struct {
	tally
	published int64
	took      time.Duration // from the first message's start to the last one's arrival
	used      string        // CPU of each for a message, in µs
	cpu       map[string]float64
}

func (o *outcome) rate() float64 { return float64(o.published) / o.took.Seconds() }

// patience with messages that are under way when everything is published.
const patience = 20 * time.Second

// do lets a load run, after some of the same that does not count, and waits until everything has
// arrived.
func (b *bench) do(ctx context.Context, l *load) (o *outcome, err error) {
	var subs []*worker
	defer func() {
		for _, w := range subs {
			err = errors.Join(err, w.dismiss())
		}
	}()
	for i, j := range l.subscribe {
		j.Profile = b.profileOf(l, fmt.Sprintf("subscribers-%d", i+1))
		w, err := b.hire(fmt.Sprintf("subscribers-%d", i+1), j)
		if err != nil {
			return nil, err
		}
		subs = append(subs, w)
	}
	warm := l.publish
	warm.Span = cmp.Or(l.warm, time.Second)
	if _, err := b.once(ctx, l, warm, subs); err != nil {
		return nil, err
	}
	l.publish.Profile = b.profileOf(l, "publisher")
	saved := b.profiles(ctx, l)
	o, err = b.once(ctx, l, l.publish, subs)
	return o, errors.Join(err, <-saved)
}

func (b *bench) once(ctx context.Context, l *load, j job, subs []*worker) (o *outcome, err error) {
	pub, err := b.hire("publisher", j)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pub.dismiss()) }()
	for _, w := range subs {
		if _, err := w.ask("clear"); err != nil {
			return nil, err
		}
	}
	all := append([]consumer{{"publisher", []*local.Process{pub.process}}}, l.servers...)
	var hired []*local.Process
	for _, w := range subs {
		hired = append(hired, w.process)
	}
	all = append(all, consumer{"subscribers", hired})
	before, err := cpu(all)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	sent, err := pub.ask("go")
	if err != nil {
		return nil, err
	}
	o = &outcome{published: sent.N}
	for o.N != sent.N*l.copies {
		o.tally = tally{Refused: sent.Refused}
		for _, w := range subs {
			t, err := w.ask("report")
			if err != nil {
				return nil, err
			}
			o.add(t)
		}
		if late := time.Since(began) > j.Span+patience; late || ctx.Err() != nil || o.N > sent.N*l.copies {
			return nil, fmt.Errorf("%d of %d messages arrived", o.N, sent.N*l.copies)
		}
	}
	o.took = o.Last.Sub(began)
	after, err := cpu(all)
	o.say(all, before, after)
	return o, err
}

func cpu(all []consumer) (used []time.Duration, err error) {
	for _, c := range all {
		var pids []int
		for _, p := range c.ps {
			pids = append(pids, p.PID())
		}
		n, err := procfs.CPU(pids...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		used = append(used, n)
	}
	return used, nil
}

func (o *outcome) say(all []consumer, before, after []time.Duration) {
	o.cpu = map[string]float64{}
	var said []string
	var sum float64
	for i := range min(len(before), len(after)) {
		each := (after[i] - before[i]).Seconds() * 1e6 / float64(max(o.published, 1))
		sum += each
		o.cpu[all[i].name] = each
		said = append(said, fmt.Sprintf("%s %.2f", all[i].name, each))
	}
	o.used = fmt.Sprintf("CPU µs/message: %s = %.2f", strings.Join(said, " + "), sum)
}

func (b *bench) profileOf(l *load, who string) string {
	if b.profile == "" {
		return ""
	}
	path, err := filepath.Abs(filepath.Join(b.profile, l.name+"."+who+".pprof"))
	if err != nil {
		return ""
	}
	return path
}

// profiles asks the servers for profiles while the load runs; without -profile it does nothing.
func (b *bench) profiles(ctx context.Context, l *load) <-chan error {
	done := make(chan error, 1)
	var ps []*local.Process
	for _, c := range l.servers {
		for _, p := range c.ps {
			if b.profile != "" && p.HTTP != "" {
				ps = append(ps, p)
			}
		}
	}
	go func() {
		errs := make(chan error, len(ps))
		for _, p := range ps {
			go func() {
				body, err := p.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(b.span.Seconds())-1)))
				if err == nil {
					err = os.WriteFile(b.profileOf(l, p.Name), body, 0o644)
				}
				errs <- err
			}()
		}
		var err error
		for range ps {
			err = errors.Join(err, <-errs)
		}
		done <- err
	}()
	return done
}
