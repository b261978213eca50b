package peers

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// air carries every beat to everyone at once; a radio that is off hears and says nothing.
type air struct {
	mu     sync.Mutex
	radios []*radio
}

type radio struct {
	air  *air
	off  bool
	hear func([]byte, func([]byte) error)
}

func (r *radio) Publish(_ string, data []byte) error {
	r.air.mu.Lock()
	defer r.air.mu.Unlock()
	for _, other := range r.air.radios {
		if !r.off && !other.off && other.hear != nil {
			other.hear(data, nil)
		}
	}
	return nil
}

func (r *radio) Subscribe(_ string, _ int, hear func([]byte, func([]byte) error)) (func(), error) {
	r.air.mu.Lock()
	defer r.air.mu.Unlock()
	r.hear = hear
	return func() {
		r.air.mu.Lock()
		defer r.air.mu.Unlock()
		r.hear = nil
	}, nil
}

func (r *radio) set(off bool) {
	r.air.mu.Lock()
	defer r.air.mu.Unlock()
	r.off = off
}

// node is a router's Peers with its radio; told is the number that it was told last.
type node struct {
	*Peers
	radio *radio
	told  int
}

func (a *air) join(t *testing.T, id string) *node {
	t.Helper()
	n := &node{radio: &radio{air: a}}
	a.radios = append(a.radios, n.radio)
	n.Peers = New(Config{
		ID: id, Incarnation: 1, Addresses: func() (string, string) { return id + ":1", id + ":2" }, Bus: n.radio,
		Changed: func(live int) { n.told = live }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) stop(t *testing.T) {
	t.Helper()
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (n *node) want(t *testing.T, live int) {
	t.Helper()
	if n.told != live || len(n.Routers()) != live {
		t.Errorf("%s: told of %d, lists %v, want %d", n.cfg.ID, n.told, n.Routers(), live)
	}
}

func TestPeersTellHowManyLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		air := &air{}
		a := air.join(t, "a")
		pass(10 * time.Second)
		a.want(t, 1)

		b := air.join(t, "b")
		pass(3 * tickEvery) // those that were there answer at once
		a.want(t, 2)
		b.want(t, 2)
		c := air.join(t, "c")
		pass(3 * tickEvery)
		a.want(t, 3)
		c.want(t, 3)
		if r := a.Routers()[2]; r.ID != "c" || r.Address != "c:1" || r.HTTP != "c:2" || r.Incarnation != 1 {
			t.Errorf("c: %+v", r)
		}

		c.stop(t) // a planned stop is heard at once
		synctest.Wait()
		a.want(t, 2)

		b.radio.set(true) // as if dead, for a; cut off, by its own measure
		pass(time.Minute)
		a.want(t, 1)
		b.want(t, 2)
		b.radio.set(false)
		pass(time.Second)
		a.want(t, 2)
		b.want(t, 2)
		a.stop(t)
		b.stop(t)
	})
}
