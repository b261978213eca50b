package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
)

func TestOrders(t *testing.T) {
	l, err := loop.New(loop.Config{ListenAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &stall{loops: []*loop.Loop{l}, work: 200 * time.Millisecond}
	var said strings.Builder
	order := func(line string) {
		t.Helper()
		if err := s.order(line, &said); err != nil {
			t.Fatal(err)
		}
	}
	order("on")
	// The loop is late as soon as it has ranked: it can't tick meanwhile.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); l.Stats().Lag.Max < 50*time.Millisecond; <-tick.C {
		if time.Since(began) > time.Minute {
			t.Fatal("the loop was never late")
		}
	}
	order("lag")
	order("off")
	order("off")
	if got := strings.Split(said.String(), "\n"); len(got) != 5 || got[0] != "ok" || len(strings.Fields(got[1])) != 2 || got[3] != "ok" {
		t.Errorf("said %q", said.String())
	}
	if s.order("nonsense", &said) == nil {
		t.Error("nonsense was carried out")
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
