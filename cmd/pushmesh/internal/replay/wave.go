package replay

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// handshakesAtOnce of a fleet: more would only queue in the edge's accept backlog while their
// deadlines run.
const handshakesAtOnce = 256

// fleet is the subscribers of one wave. It owns their goroutines and the pinger's.
type fleet struct {
	run        uint64
	edges      []string
	window     uint32
	token      func(context.Context) (string, error) // nil: none
	dial       func(ctx context.Context, addr string) (net.Conn, error)
	meter      *meter
	handshakes chan struct{}
	subs       []*subscriber
	wg         sync.WaitGroup
}

func (p *player) newFleet(w *wave) *fleet {
	f := &fleet{
		run: p.run, edges: p.opts.Edges, window: p.opts.Window, token: p.opts.Token, dial: p.opts.DialEdge, meter: p.meter,
		handshakes: make(chan struct{}, handshakesAtOnce),
	}
	for _, room := range w.rooms {
		for range p.script.Rooms[room].Users {
			f.subs = append(f.subs, &subscriber{
				fleet: f, n: p.users + len(f.subs), room: room, topic: p.topics[room],
				check: NewChecker(p.script.Rooms[room].Says),
			})
		}
	}
	p.users += len(f.subs)
	return f
}

func (f *fleet) start(ctx context.Context, fail func(error)) {
	for _, s := range f.subs {
		f.wg.Go(func() {
			if err := s.run(ctx); err != nil {
				fail(err)
			}
		})
	}
	f.wg.Go(func() { f.ping(ctx) })
}

// wait ends with the fleet's goroutines, and sums up what their checkers found.
func (f *fleet) wait() Tally {
	f.wg.Wait()
	var t Tally
	for _, s := range f.subs {
		t.Add(s.check.Finish())
	}
	return t
}

// playWave connects the wave's subscribers, publishes its says, waits for every delivery and
// disconnects.
func (p *player) playWave(ctx context.Context, w *wave, n, of int) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	base := p.meter.delivered.Load()
	p.meter.subscribed.Store(0)
	f := p.newFleet(w)
	f.start(ctx, fail)
	var watch sync.WaitGroup
	watchCtx, unwatch := context.WithCancel(ctx)
	watch.Go(func() { p.watch(watchCtx, n, of, fail) })

	err := p.await(ctx, func() bool { return int(p.meter.subscribed.Load()) >= w.users })
	if err == nil {
		err = p.publish(ctx, w, base, fail)
	}
	if err == nil {
		err = p.await(ctx, func() bool { return p.meter.delivered.Load() >= base+w.expected })
	}
	if err == nil {
		err = p.awaitExtra(ctx, w)
	}
	unwatch()
	watch.Wait()
	if err != nil {
		p.report(err)
	}
	fail(nil)
	p.tally.Add(f.wait())
	return err
}

func (p *player) report(err error) {
	p.say("ended early: %v", err)
	if last := p.meter.lastError.Load(); last != nil {
		p.say("last trouble of a subscriber: %s", *last)
	}
}

// await waits until done, which is asked whenever the meter moves.
func (p *player) await(ctx context.Context, done func() bool) error {
	for !done() {
		select {
		case <-p.meter.moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// watch writes the live line every second and gives up when nothing moves.
func (p *player) watch(ctx context.Context, n, of int, fail func(error)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, lastMove := p.meter.progress(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			is := p.meter.progress()
			p.say("%s", p.meter.line(now.Sub(p.began), n, of, is[2]-last[2]))
			if is != last {
				last, lastMove = is, now
			} else if now.Sub(lastMove) >= p.opts.Stall {
				fail(fmt.Errorf("%w (%s)", ErrStalled, p.opts.Stall))
				return
			}
		}
	}
}
