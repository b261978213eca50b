package edge

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// hold keeps a loop from turning until it is late, again and again, and counts how often it was.
func hold(l *loop.Loop, held *atomic.Int64, stop <-chan struct{}) {
	l.Post(exchange.Count{Reply: func([]uint64) { // answered on the loop
		late := time.NewTicker(time.Millisecond)
		defer late.Stop()
		for time.Since(l.LastTurn()) < 200*time.Millisecond { // twice what lag is sampled by
			select {
			case <-late.C:
			case <-stop:
				return
			}
		}
		held.Add(1)
		go hold(l, held, stop)
	}})
}

// Two of four edges behind a balancer are overloaded, so that their loops are late all the time:
// that is no reason to take them out, which would have their neighbours carry their connections as
// well.
func TestOverloadedEdgesAreNotEjected(t *testing.T) {
	const (
		holds = 10
		// looks that fail one after the other, as balancers have it: one may be the machine's that
		// stood still
		unhealthyAfter = 3
	)
	w := newWorld(t)
	var edges []*Edge
	var clients []*client
	for i := range 4 {
		e, _ := w.edge(fmt.Sprintf("e%d", i+1))
		edges, clients = append(edges, e), append(clients, w.client(e, &wirev1.Hello{}))
	}
	balancer := &http.Client{Timeout: edgetest.Patience}
	healthy := func(e *Edge) error {
		resp, err := balancer.Get("http://" + e.HTTPAddr() + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	}
	for _, e := range edges {
		edgetest.WaitFor(t, "/readyz", func() error { return healthy(e) })
	}

	stop := make(chan struct{})
	defer close(stop)
	var held []*atomic.Int64
	for _, e := range edges[:2] {
		for _, l := range e.loops {
			held = append(held, &atomic.Int64{})
			go hold(l, held[len(held)-1], stop)
		}
	}
	rarely := func(n *atomic.Int64) bool { return n.Load() < holds }
	failed := make([]int, len(edges))
	deadline := time.Now().Add(4 * edgetest.Patience)
	for checks := 0; checks < holds || slices.ContainsFunc(held, rarely); checks++ {
		if time.Now().After(deadline) {
			t.Fatal("the loops were not held up so often")
		}
		for i, e := range edges {
			err := healthy(e)
			if failed[i]++; err == nil {
				failed[i] = 0
			}
			if failed[i] == unhealthyAfter {
				t.Fatalf("edge %d is ejected: %v", i+1, err)
			}
		}
	}
	for i, e := range edges {
		for _, l := range e.loops {
			edgetest.WaitFor(t, "the lag", func() error {
				if n := l.Stats().Lag.Warnings; i < 2 && n < holds {
					return fmt.Errorf("edge %d: %d warnings", i+1, n)
				}
				return nil
			})
		}
		clients[i].send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
		clients[i].read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	}
}
