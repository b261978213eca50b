package failures

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// world is a mesh under traffic: producers spread over its routers, subscribers on every edge.
type world struct {
	*procmesh.Mesh
	producers []*producer // the last one makes plain calls
	diaries   []*diary    // of SDK sessions and plain clients in turn
	quiet     context.CancelFunc
	leave     func()
}

// start has everybody in before anything is published, and waits until every router has a
// producer's stream, where that can be.
func start(t *testing.T, m *procmesh.Mesh, streams int) *world {
	t.Helper()
	w := &world{Mesh: m}
	w.Namespace(t, live, &pushmeshv1.Policy{ClientPublish: true})
	w.Namespace(t, durable, &pushmeshv1.Policy{Durable: true})
	for n := range streams + 1 {
		w.producers = append(w.producers, &producer{number: n + 1, ended: make(chan error, 1)})
	}
	w.listen(t)
	ctx, quiet := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(quiet)
	w.quiet = quiet
	for i, p := range w.producers {
		if i < streams {
			go p.stream(ctx, m.RouterAddrs)
		} else {
			go p.calls(ctx, m.RouterAddrs)
		}
	}
	procmesh.Await(t, "traffic flows", func() bool {
		for _, p := range w.producers {
			if p.high() < 5 {
				return false
			}
		}
		return w.level()
	})
	return w
}

// listen lets an SDK session and a plain client in at each edge.
func (w *world) listen(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	var sessions []*pushmesh.Subscriber
	w.leave = sync.OnceFunc(func() {
		for _, s := range sessions {
			_ = closing.Close(s)
		}
		cancel()
		running.Wait()
	})
	t.Cleanup(w.leave)
	var topics []string
	for _, p := range w.producers {
		topics = append(topics, p.durable())
	}
	for i, edge := range w.EdgeAddrs {
		sdk, raw := newDiary(fmt.Sprintf("session-%d", i+1)), newDiary(fmt.Sprintf("plain-%d", i+1))
		w.diaries = append(w.diaries, sdk, raw)
		s, err := follow(ctx, sdk, w.EdgeAddrs, edge)
		if s != nil {
			sessions = append(sessions, s)
		}
		if err != nil {
			t.Fatalf("%s: %v", sdk.name, err)
		}
		p := newPlain(raw, w.EdgeAddrs, topics, i)
		running.Go(func() { p.run(ctx) })
		select {
		case <-p.ready:
		case <-time.After(readyWithin):
			t.Fatalf("%s is not subscribed", raw.name)
		}
	}
}

// level reports whether subscribers have, within half a second, all durable messages answered by
// now, none waits for its answer for longer, and of each producer's ephemeral ones the last that
// was accepted, or a later one.
func (w *world) level() bool {
	const soon = 500 * time.Millisecond
	deadline := time.Now().Add(soon)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	marks := map[string]uint64{}
	for _, p := range w.producers {
		if p.oldest() > soon {
			return false
		}
		marks[p.durable()], marks[p.ephemeral()] = p.high(), p.highLive()
	}
	for {
		all := true
		for _, d := range w.diaries {
			all = all && d.reached(marks)
		}
		if all || time.Now().After(deadline) {
			return all
		}
		<-tick.C
	}
}

// calm waits until the mesh misses nothing and has been level three times in a row.
func (w *world) calm(t *testing.T) {
	t.Helper()
	w.WaitReady(t)
	row := 0
	procmesh.Await(t, "all is level", func() bool {
		if row++; !w.level() {
			row = 0
		}
		return row >= 3
	})
}

// at are the producers that publish through a router. Plain calls go to all.
func (w *world) at(router string) map[int]bool {
	hit := map[int]bool{}
	for i, p := range w.producers {
		if i == len(w.producers)-1 || p.where() == router {
			hit[p.number] = true
		}
	}
	return hit
}

// on are the subscribers connected to an edge.
func (w *world) on(edge string) map[string]bool {
	hit := map[string]bool{}
	for _, d := range w.diaries {
		if d.where() == edge {
			hit[d.name] = true
		}
	}
	return hit
}

// end stops publishing and waits for what is unanswered, and until everybody has what is owed.
func (w *world) end(t *testing.T) {
	t.Helper()
	w.quiet()
	for _, p := range w.producers {
		if err := <-p.ended; err != nil {
			t.Errorf("producer %d: %v", p.number, err)
		}
	}
	procmesh.Await(t, "everybody has everything", w.level)
	w.leave()
}
