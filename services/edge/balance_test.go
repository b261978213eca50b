package edge

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// hold keeps a loop from turning until it is late, again and again, and says on done that it was so often.
func hold(l *loop.Loop, times int, stop <-chan struct{}, done chan<- struct{}) {
	if times == 0 {
		done <- struct{}{}
		return
	}
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
		go hold(l, times-1, stop, done)
	}})
}

// Two of four edges behind a balancer are overloaded, so that their loops are late all the time: that is no reason to take them out, which would have
// their neighbours carry their connections as well.
func TestOverloadedEdgesAreNotEjected(t *testing.T) {
	const holds = 10
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

	stop, done := make(chan struct{}), make(chan struct{}, 8)
	defer close(stop)
	left := 0
	for _, e := range edges[:2] {
		for _, l := range e.loops {
			left++
			go hold(l, holds, stop, done)
		}
	}
	checks := 0
	for deadline := time.After(4 * edgetest.Patience); left > 0; {
		select {
		case <-done:
			left--
			continue
		case <-deadline:
			t.Fatal("the loops were not held up so often")
		default:
		}
		for i, e := range edges {
			if err := healthy(e); err != nil {
				t.Fatalf("edge %d is ejected: %v", i+1, err)
			}
		}
		checks++
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
	if checks < holds {
		t.Fatalf("the balancer looked %d times", checks)
	}
}
