package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pushmesh/pushmesh/internal/process"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
	"github.com/pushmesh/pushmesh/test/siege/attack"
	"github.com/pushmesh/pushmesh/test/siege/honest"
)

// siege is a mesh under siege.
type siege struct {
	*mesh
	options
	ends  time.Time
	crowd *honest.Crowd
	rows  []table.Row
}

// What honest users do together.
const (
	topicsOfAKind = 20
	liveRate      = 40 // messages in a second, to a 20th of all subscribers each
	durableRate   = 20
	newcomers     = 8
	newcomerEvery = 200 * time.Millisecond
)

// warm is how long the crowd is there before anything is measured.
const warm = 3 * time.Second

func (s *siege) begin(ctx context.Context) (err error) {
	s.crowd, err = honest.Start(ctx, honest.Config{
		Edge: s.target.Edge, Router: s.target.Router, Subscribers: s.subscribers, Topics: topicsOfAKind,
		LiveRate: liveRate, DurableRate: durableRate, Newcomers: newcomers, NewcomersEvery: newcomerEvery,
	})
	if err != nil {
		return err
	}
	return wait(ctx, warm)
}

// result is what an attack got and cost.
type result struct {
	attack             attack.Attack
	got                attack.Counts
	faults             []string
	calm, during       honest.Figures
	before, top, after map[string]int64
	// back is how long the edge's memory took to be what it was, or mostBack.
	back   time.Duration
	metric float64 // how far it rose, or where it stood at most for one that falls
	ended  []string
}

// mostBack bounds how long memory is waited for, and edgeBack says what counts as back: the
// garbage collector keeps some of what it once had.
const mostBack = time.Minute

func edgeBack(before int64) int64 { return before + max(48<<20, before/4) }

func (s *siege) play(ctx context.Context, a attack.Attack, last bool) (err error) {
	defer try.Catch(&err)
	if a.Unless != nil {
		if why := a.Unless(&s.target); why != "" {
			return errors.New("can't be done: " + why)
		}
	}
	need := s.calm + s.span
	if !last {
		need *= 2 // what is last gets its time
	}
	if time.Until(s.ends) < need {
		return fmt.Errorf("not played: %s are over", s.within)
	}
	if a.Before != nil {
		within, cancel := context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
		try.Do(a.Before(within, &s.target))
		try.Do(wait(ctx, warm))
	}
	r := result{attack: a, top: map[string]int64{}}
	s.crowd.Take()
	try.Do(wait(ctx, s.options.calm))
	r.calm, r.before = s.crowd.Take(), s.memory()
	was := metric(ctx, s.processes(), a.Metric)
	try.Do(s.strike(ctx, &r))
	r.during = s.crowd.Take()
	r.metric = max(r.metric, metric(ctx, s.processes(), a.Metric)) - was
	r.ended = try.Get(s.revive(ctx))
	for ended := time.Now(); ; try.Do(wait(ctx, 500*time.Millisecond)) {
		r.after, r.back = s.memory(), time.Since(ended)
		if edge := s.Edges[0].Name; r.after[edge] <= edgeBack(r.before[edge]) || r.back >= min(mostBack, max(time.Second, time.Until(s.ends)-s.span)) {
			break
		}
	}
	fmt.Println(r.line())
	s.rows = append(s.rows, r.rows(s.Edges[0].Name)...)
	return nil
}

// strike has a process of its own attack, with the lowest priority: elsewhere attackers have
// processors of their own.
func (s *siege) strike(ctx context.Context, r *result) (err error) {
	defer try.Catch(&err)
	target := try.Get(json.Marshal(s.target))
	names := r.attack.Name
	if names == together {
		names = r.attack.What
		names = joinedNames(names)
	}
	read, write := try.Get2(os.Pipe())
	p := &process.Process{
		Name: "attacker", Path: try.Get(exec.LookPath("nice")), Log: filepath.Join(s.dir, "logs", "attacker.log"), Tied: true, Stdout: write,
		Args: []string{"-n", "19", try.Get(os.Executable()), attackerFlag, names, s.span.String(), string(target)},
	}
	try.Do(errors.Join(p.Start(), write.Close()))
	defer p.Kill()
	said := make(chan report, 1)
	go func() {
		var r report
		_ = json.NewDecoder(read).Decode(&r) // nothing said is nothing got
		_ = read.Close()
		said <- r
	}()
	late := time.After(s.span + 20*time.Second)
	for {
		select {
		case got := <-said:
			r.got, r.faults = got.Got, got.Faults
			return nil
		case <-late:
			r.faults = append(r.faults, "the attacker did not end")
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
			for name, rss := range s.memory() {
				r.top[name] = max(r.top[name], rss)
			}
			r.metric = max(r.metric, metric(ctx, s.processes(), r.attack.Metric))
		}
	}
}

// settled is the row of what was lost.
func (s *siege) settled(ctx context.Context) table.Row {
	name := "durable messages lost, in the whole siege"
	if err := s.crowd.Settle(ctx); err != nil {
		return table.Failed(name, "subscribers", err)
	}
	return table.AtMost(name, 0, "messages", 0, fmt.Sprintf("%d subscribers have every seq up to the last that was answered", s.subscribers))
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
