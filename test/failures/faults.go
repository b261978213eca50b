package failures

import (
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/link"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// fault that is played: it is begun, lasts for hold and until what during waits for has happened,
// and ends.
type fault struct {
	name  string
	quick bool // played by the tests too
	hold  time.Duration
	// begin strikes, and says how it is ended, who is met, and what must hold while it lasts (nil:
	// nothing but the promises).
	begin func(t *testing.T, w *world) effect
}

type effect struct {
	heal        func() error
	during      func(t *testing.T)
	producers   map[int]bool
	subscribers map[string]bool
}

// kill kills a process and starts it again at the end.
func kill(p *procmesh.Process) func() error {
	p.Kill()
	return p.Start
}

func freeze(p *procmesh.Process) func() error {
	p.Signal(syscall.SIGSTOP)
	return func() error {
		p.Signal(syscall.SIGCONT)
		return nil
	}
}

// planned stops a process as an operator would.
func planned(t *testing.T, p *procmesh.Process) func() error {
	p.Signal(syscall.SIGTERM)
	return func() error {
		code, err := p.Wait(t.Context())
		if code != 0 {
			t.Errorf("%s: exit code %d", p.Name, code)
		}
		if err != nil {
			return err
		}
		return p.Start()
	}
}

// router is a fault of the router that most of the SDK's producers publish through.
func router(strike func(t *testing.T, w *world, p *procmesh.Process) func() error, during func(t *testing.T, w *world, p *procmesh.Process)) func(*testing.T, *world) effect {
	return func(t *testing.T, w *world) effect {
		best := 0
		for i := range w.Routers {
			if len(w.at(w.RouterAddrs[i])) > len(w.at(w.RouterAddrs[best])) {
				best = i
			}
		}
		p := w.Routers[best]
		e := effect{producers: w.at(w.RouterAddrs[best])}
		e.heal = strike(t, w, p)
		e.during = func(t *testing.T) {
			if during != nil {
				during(t, w, p)
			}
		}
		return e
	}
}

// busiest is the edge with most subscribers.
func busiest(w *world) *procmesh.Process {
	best := w.Edges[0]
	for _, p := range w.Edges {
		if len(w.on(p.Name)) > len(w.on(best.Name)) {
			best = p
		}
	}
	return best
}

// apart is a partition between an edge and NATS.
func apart(f link.Fault) func(*testing.T, *world) effect {
	return func(_ *testing.T, w *world) effect {
		p := busiest(w)
		e := effect{subscribers: w.on(p.Name)}
		w.Part(p, f)
		e.heal = func() error {
			w.Part(p, link.Fault{})
			return nil
		}
		e.during = func(t *testing.T) { w.cutOff(t, p) }
		return e
	}
}

// faults are all that are played, in this order.
var faults = []fault{
	{name: "router killed", quick: true, hold: 4 * time.Second, begin: router(func(_ *testing.T, _ *world, p *procmesh.Process) func() error { return kill(p) }, left)},
	{name: "router frozen", hold: 8 * time.Second, begin: router(func(_ *testing.T, _ *world, p *procmesh.Process) func() error { return freeze(p) }, left)},
	{name: "router stopped as planned", hold: 4 * time.Second, begin: router(func(t *testing.T, _ *world, p *procmesh.Process) func() error { return planned(t, p) }, left)},
	{name: "router cut off from NATS", hold: 10 * time.Second, begin: router(func(_ *testing.T, w *world, p *procmesh.Process) func() error {
		w.Part(p, link.Fault{Up: true, Down: true})
		return func() error { w.Part(p, link.Fault{}); return nil }
	}, notReady)},
	{name: "router cut off from stores", hold: 10 * time.Second, begin: router(func(_ *testing.T, w *world, p *procmesh.Process) func() error {
		w.PartStores(p, link.Fault{Up: true, Down: true})
		return func() error { w.PartStores(p, link.Fault{}); return nil }
	}, left)},
	{name: "edge killed", quick: true, hold: 4 * time.Second, begin: func(_ *testing.T, w *world) effect {
		p := busiest(w)
		return effect{subscribers: w.on(p.Name), heal: kill(p), during: w.flows}
	}},
	{name: "edge frozen", hold: 8 * time.Second, begin: func(_ *testing.T, w *world) effect {
		p := busiest(w)
		return effect{subscribers: w.on(p.Name), heal: freeze(p), during: w.flows}
	}},
	{name: "edge to NATS lost", hold: 8 * time.Second, begin: apart(link.Fault{Up: true})},
	{name: "NATS to edge lost", hold: 8 * time.Second, begin: apart(link.Fault{Down: true})},
	{name: "edge cut off from NATS", quick: true, hold: 8 * time.Second, begin: apart(link.Fault{Up: true, Down: true})},
	{name: "NATS server of three killed", quick: true, hold: 4 * time.Second, begin: func(_ *testing.T, w *world) effect {
		return effect{heal: kill(w.Busiest()), during: w.flows}
	}},
	{name: "all of NATS killed", hold: 10 * time.Second, begin: func(_ *testing.T, w *world) effect {
		var back []func() error
		for _, p := range w.NATSs {
			back = append(back, kill(p))
		}
		return effect{heal: all(back), during: w.withoutNATS, producers: map[int]bool{len(w.producers): true}}
	}},
	{name: "store of two killed", hold: 6 * time.Second, begin: func(_ *testing.T, w *world) effect {
		return effect{heal: kill(w.Stores[0]), during: w.flows}
	}},
}

func all(fs []func() error) func() error {
	return func() error {
		for _, f := range fs {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}
}

// play plays a fault and tells what it cost.
func (f fault) play(t *testing.T, w *world, hold time.Duration) cost {
	t.Helper()
	w.calm(t)
	in := window{from: time.Now()}
	e := f.begin(t, w)
	in.producers, in.subscribers = e.producers, e.subscribers
	if e.during != nil {
		e.during(t)
	}
	<-time.After(hold - time.Since(in.from))
	if err := e.heal(); err != nil {
		t.Fatal(err)
	}
	in.healed = time.Now()
	w.calm(t)
	in.to = time.Now()
	return w.measure(f.name, in)
}
