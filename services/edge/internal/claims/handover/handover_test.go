package handover

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// client answers with the op's resource, from another goroutine, when it is let.
type client struct {
	let   chan struct{}
	ended chan uint64
}

func (c *client) Do(_ context.Context, op *meshv1.ClaimOp, done func(*meshv1.ClaimResult)) {
	go func() {
		<-c.let
		done(&meshv1.ClaimResult{State: &wirev1.ClaimState{Resource: op.GetResource()}})
	}()
}

func (c *client) End(conn uint64) { c.ended <- conn }

func next[V any](t *testing.T, ch <-chan V) (v V) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(time.Minute):
		t.Fatal("nothing comes")
	}
	return v
}

func TestStatesFindTheirConnection(t *testing.T) {
	posted := make(chan exchange.Event, 10)
	to := make(chan uint16, 10)
	c := New(func(loop uint16, e exchange.Event) {
		to <- loop
		posted <- e
	})
	stores := &client{let: make(chan struct{}, 10), ended: make(chan uint64, 10)}
	c.Use(stores)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := exchange.Conn{Loop: 3, Slot: 5, Gen: 7}
	c.Notify(42, "client:a", &wirev1.ClaimState{Resource: "seat/0"}) // of nobody
	stores.let <- struct{}{}
	c.Claim(conn, 9, &meshv1.ClaimOp{Resource: "seat/1", Conn: 42})
	if e, ok := next(t, posted).(exchange.Claimed); !ok || e.Conn != conn || e.ID != 9 || e.Result.GetState().GetResource() != "seat/1" || next(t, to) != 3 {
		t.Fatal(e)
	}
	c.Notify(42, "client:a", &wirev1.ClaimState{Resource: "seat/1"})
	if e, ok := next(t, posted).(exchange.ClaimTold); !ok || e.Conn != conn || e.State.GetResource() != "seat/1" {
		t.Fatal(e)
	}
	c.Claim(conn, 10, &meshv1.ClaimOp{Resource: "seat/2", Conn: 42})
	c.EndClaims(42)
	if n := next(t, stores.ended); n != 42 {
		t.Fatal(n)
	}
	c.Notify(42, "client:a", &wirev1.ClaimState{Resource: "seat/1"})
	stores.let <- struct{}{}
	if e, ok := next(t, posted).(exchange.Claimed); !ok || e.ID != 10 {
		// for nobody, and told nevertheless
		t.Fatal(e)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.conns) != 0 || len(posted) != 0 {
		t.Fatalf("%d connections and %d events are left", len(c.conns), len(posted))
	}
}
