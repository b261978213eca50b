package upstream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

func says(t *testing.T, o *others, at time.Time, d *meshv1.EdgeDigest) {
	t.Helper()
	data, err := proto.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	o.hear(data, at)
}

func named(o *others) []string { return slices.Sorted(slices.Values(*o.named.Load())) }

func TestOtherEdgesAreNamed(t *testing.T) {
	now := time.Unix(1000, 0)
	o := newOthers("self", 1, nil, quiet)
	edge := func(id string) *meshv1.EdgeDigest {
		return &meshv1.EdgeDigest{EdgeId: id, EdgeIncarnation: 5, PublicAddress: id + ":7400"}
	}
	expect := func(want ...string) {
		t.Helper()
		if got := named(o); !slices.Equal(got, want) {
			t.Errorf("named %v, want %v", got, want)
		}
	}
	expect()
	for _, id := range []string{"self", "a", "b", "c", "d"} {
		says(t, o, now, edge(id))
	}
	says(t, o, now, &meshv1.EdgeDigest{EdgeId: "private"})
	now = now.Add(chosenFor)
	says(t, o, now, edge("a"))
	expect("a:7400", "b:7400", "c:7400", "d:7400")

	drains := edge("b")
	drains.Draining = true
	says(t, o, now, drains)
	expect("a:7400", "c:7400", "d:7400")
	leaves := edge("c")
	leaves.Leaving = true
	says(t, o, now, leaves)
	again := edge("c")
	again.EdgeIncarnation = 4 // another process, whatever the number
	now = now.Add(2 * chosenFor)
	says(t, o, now, again)
	says(t, o, now, leaves) // said late by the one before
	expect("a:7400", "c:7400", "d:7400")
	for range 3 { // d is silent
		now = now.Add(silence/2 + 1)
		says(t, o, now, edge("a"))
		says(t, o, now, again)
	}
	expect("a:7400", "c:7400")
	o.hear([]byte{0xff}, now)
	expect("a:7400", "c:7400")
}

// What the operator named is named instead, but for what is known to drain.
func TestNamedByTheOperator(t *testing.T) {
	now := time.Unix(1000, 0)
	o := newOthers("self", 1, []string{"balancer:7400", "b:7400"}, quiet)
	says(t, o, now, &meshv1.EdgeDigest{EdgeId: "a", PublicAddress: "a:7400"})
	if got := named(o); !slices.Equal(got, []string{"b:7400", "balancer:7400"}) {
		t.Errorf("named %v", got)
	}
	says(t, o, now, &meshv1.EdgeDigest{EdgeId: "b", PublicAddress: "b:7400", Draining: true})
	if got := named(o); !slices.Equal(got, []string{"balancer:7400"}) {
		t.Errorf("named %v", got)
	}
}

func TestSomeOfManyAreNamed(t *testing.T) {
	now := time.Unix(1000, 0)
	o := newOthers("self", 1, nil, quiet)
	for i := range 100 {
		says(t, o, now, &meshv1.EdgeDigest{EdgeId: fmt.Sprint("e", i), PublicAddress: fmt.Sprint("e", i, ":7400")})
	}
	says(t, o, now.Add(chosenFor), &meshv1.EdgeDigest{EdgeId: "e0", PublicAddress: "e0:7400"})
	if n := len(named(o)); n != mostNamed {
		t.Errorf("%d are named", n)
	}
}

// An edge that hears another with its own id says so while it does, and a straggler of the process
// before it is no such edge.
func TestAnEdgeHearsThatAnotherHasItsID(t *testing.T) {
	now := time.Unix(1000, 0)
	o := newOthers("self", 7, nil, quiet)
	m := &Mesh{others: o}
	beat := func(incarnation uint64) {
		says(t, o, now, &meshv1.EdgeDigest{EdgeId: "self", EdgeIncarnation: incarnation})
	}
	beat(3)
	beat(3)
	beat(7)
	if err := m.CheckID(); err != nil {
		t.Errorf("after stragglers: %v", err)
	}
	for range 4 {
		now = now.Add(time.Second)
		beat(3)
		beat(7)
	}
	if err := m.CheckID(); err == nil || !strings.Contains(err.Error(), "the id self") {
		t.Errorf("beside another: %v", err)
	}
	now = now.Add(time.Minute)
	beat(7)
	if err := m.CheckID(); err != nil {
		t.Errorf("alone again: %v", err)
	}
}
