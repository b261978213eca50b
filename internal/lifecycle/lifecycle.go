// Package lifecycle starts a process's parts in order and stops them in reverse, and owns
// the goroutines that they run.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"sync"
	"time"
)

// Part is something with a beginning and an end. Start returns once the part works, Stop once it
// has ended; Stop's context bounds how long it may take. Stop is called at most once, and only
// after a Start that returned nil.
type Part interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// Funcs makes a Part of two functions; nil ones do nothing.
type Funcs struct {
	OnStart func(ctx context.Context) error
	OnStop  func(ctx context.Context) error
}

// Start calls OnStart.
func (f Funcs) Start(ctx context.Context) error {
	if f.OnStart == nil {
		return nil
	}
	return f.OnStart(ctx)
}

// Stop calls OnStop.
func (f Funcs) Stop(ctx context.Context) error {
	if f.OnStop == nil {
		return nil
	}
	return f.OnStop(ctx)
}

// Stack is a Part made of parts: started in the order of Add, stopped in reverse. A part that fails
// to start has the ones before it stopped. Start and Stop are idempotent and safe for concurrent
// use.
type Stack struct {
	mu      sync.Mutex
	parts   []named
	started int // parts[:started] run
	done    bool
}

type named struct {
	name string
	part Part
}

// Add puts a part on top. It must not be called after Start.
func (s *Stack) Add(name string, p Part) { s.parts = append(s.parts, named{name, p}) }

// Start starts every part that does not run yet.
func (s *Stack) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return errors.New("lifecycle: stopped")
	}
	for s.started < len(s.parts) {
		p := s.parts[s.started]
		if err := p.part.Start(ctx); err != nil {
			return errors.Join(fmt.Errorf("start %s: %w", p.name, err), s.stop(context.WithoutCancel(ctx)))
		}
		s.started++
	}
	return nil
}

// Stop stops every part that runs, the last first, and reports all their errors.
func (s *Stack) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(ctx)
}

func (s *Stack) stop(ctx context.Context) error {
	s.done = true
	var errs []error
	for s.started > 0 {
		s.started--
		p := s.parts[s.started]
		if err := p.part.Stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// Group owns goroutines. Each runs with a context that ends with the group, and carries its name as
// a pprof label. The zero Group is not ready: use NewGroup.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// NewGroup makes a group whose goroutines end with ctx or with Stop.
func NewGroup(ctx context.Context) *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Go runs f in a goroutine of the group. It must not be called after Stop.
func (g *Group) Go(name string, f func(ctx context.Context)) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		pprof.Do(g.ctx, pprof.Labels("goroutine", name), f)
	}()
}

// Every calls f at each tick of a clock with this period, the first time after one, until ctx ends.
// Ticks that come while f runs are one.
func Every(ctx context.Context, period time.Duration, f func(now time.Time)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			f(now)
		}
	}
}

// Context of the group: done once Stop was called.
func (g *Group) Context() context.Context { return g.ctx }

// Stop ends the group's context and waits for its goroutines, until ctx ends.
func (g *Group) Stop(ctx context.Context) error {
	g.cancel()
	done := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("lifecycle: goroutines still run: %w", ctx.Err())
	}
}
