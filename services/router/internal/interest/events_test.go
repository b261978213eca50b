package interest

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

func TestKindsOfEventsThatEdgesWant(t *testing.T) {
	s := begin(t)
	want := func(kinds ...events.Kind) {
		t.Helper()
		if got := s.table.EventKinds(); got != events.Of(kinds...) {
			t.Errorf("%b are wanted, not %v", got, kinds)
		}
	}
	s.pass(100*time.Millisecond, true)
	s.announce("a", 1, 1, "room/1", "#", "$events/connect", "$events/subscribe/room/#")
	s.announce("b", 1, 1, "$events/subscribe/+")
	want(events.Connect, events.Subscribe)
	s.table.Announce(s.now, &meshv1.EdgeAnnounce{EdgeId: "a", EdgeIncarnation: 1, Version: 2, Remove: []string{"$events/subscribe/room/#", "$events/never"}})
	want(events.Connect, events.Subscribe)
	s.announce("b", 2, 1, "room/2") // another life
	want(events.Connect)
	s.announce("a", 1, 4, "$events/#") // 3 is missing: a snapshot comes
	want(events.Connect)
	s.part("a", 1, 4, 0, 1, "$events/dead_letter/#")
	want(events.DeadLetter)
	s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 1, Leaving: true})
	want()
}

// Lost are edges that fall silent or come back as another process without a goodbye.
func TestEdgesThatAreLost(t *testing.T) {
	s := begin(t)
	s.pass(100*time.Millisecond, true)
	for _, id := range []string{"a", "b", "c", "d"} {
		s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: id, EdgeIncarnation: 1, Connections: 7})
	}
	s.events = nil
	s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 1, Leaving: true})
	s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "b", EdgeIncarnation: 2})
	for range 40 { // c says nothing any more
		s.pass(100*time.Millisecond, true)
		s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "b", EdgeIncarnation: 2})
		s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "d", EdgeIncarnation: 1})
		s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "e", EdgeIncarnation: 1})
	}
	s.take()
	got := ""
	for _, e := range s.events {
		if e.Kind == Left {
			got += fmt.Sprint(e.Peer.ID, e.Peer.Incarnation, " ", e.Lost, e.Connections, "; ")
		}
	}
	if want := "a1 false 7; b1 true 7; c1 true 7; "; got != want {
		t.Errorf("left: %s want %s", got, want)
	}
}
