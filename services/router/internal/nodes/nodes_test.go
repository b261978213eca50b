package nodes

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// fakeBus hands what is said to whoever subscribed.
type fakeBus struct {
	hear   map[string]func([]byte, func([]byte) error)
	refuse string // a subject
	left   int
}

func (b *fakeBus) Subscribe(subject string, _ int, handle func([]byte, func([]byte) error)) (func(), error) {
	if subject == b.refuse {
		return nil, errors.New("refused")
	}
	b.hear[subject] = handle
	return func() { b.left++ }, nil
}

func (b *fakeBus) say(t *testing.T, subject string, m proto.Message) {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	b.hear[subject](data, nil)
}

type world struct {
	*Registry
	bus *fakeBus
	now time.Time
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{bus: &fakeBus{hear: map[string]func([]byte, func([]byte) error){}}, now: time.Unix(1000, 0)}
	w.Registry = New(w.bus, func() time.Time { return w.now })
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) expect(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, n := range w.List() {
		line := fmt.Sprintf("%s %s %d", n.GetTier(), n.GetId(), n.GetIncarnation())
		if n.GetProblem() != "" {
			line += " " + n.GetProblem()
		}
		got = append(got, line)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("nodes %q, want %q", got, want)
	}
}

func TestNodesComeAndGo(t *testing.T) {
	w := start(t)
	w.expect(t)
	w.bus.say(t, bus.StoreBeat, &meshv1.StoreBeat{StoreId: "s", StoreIncarnation: 7})
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "b", EdgeIncarnation: 2})
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 9})
	// restarted, with a lower number
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 5})
	w.expect(t, "TIER_EDGE a 5", "TIER_EDGE b 2", "TIER_STORE s 7")

	// late
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 9})
	// likewise
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 9, Leaving: true})
	// restarted
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "b", EdgeIncarnation: 3})
	w.expect(t, "TIER_EDGE a 5", "TIER_EDGE b 3", "TIER_STORE s 7")

	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 5, Leaving: true})
	w.bus.say(t, bus.RouterBeat, &meshv1.RouterBeat{RouterId: "a"}) // names are a tier's own
	w.expect(t, "TIER_EDGE b 3", "TIER_ROUTER a 0", "TIER_STORE s 7")
	w.bus.say(t, bus.RouterBeat, &meshv1.RouterBeat{RouterId: "a", Leaving: true})
	w.expect(t, "TIER_EDGE b 3", "TIER_STORE s 7")

	w.now = w.now.Add(silentAfter)
	// its database is away
	w.bus.say(t, bus.StoreBeat, &meshv1.StoreBeat{StoreId: "s", StoreIncarnation: 7, Leaving: true})
	w.expect(t, "TIER_EDGE b 3", "TIER_STORE s 7")
	w.now = w.now.Add(1)
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "b", EdgeIncarnation: 1})
	w.expect(t, "TIER_EDGE b 1", "TIER_STORE s 7")
	w.now = w.now.Add(silentAfter + 1)
	w.expect(t, "TIER_EDGE b 1 not heard for 3s") // the store said that it leaves
	if err := w.Stop(t.Context()); err != nil || w.bus.left != len(w.bus.hear) {
		t.Errorf("stop: %v, %d subscriptions ended", err, w.bus.left)
	}
}

// One that fell silent without a word is listed as such for a while: it died, hangs, or is cut off.
func TestWhoFellSilentIsRemembered(t *testing.T) {
	w := start(t)
	for _, d := range []*meshv1.EdgeDigest{
		{EdgeId: "dead", HttpAddress: "a:7480"}, {EdgeId: "replaced", HttpAddress: "b:7480"}, {EdgeId: "stopped", HttpAddress: "c:7480", Draining: true},
	} {
		w.bus.say(t, bus.EdgeDigest, d)
	}
	w.now = w.now.Add(2 * time.Minute)
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "new", HttpAddress: "b:7480"})
	// another tier's
	w.bus.say(t, bus.RouterBeat, &meshv1.RouterBeat{RouterId: "r", HttpAddress: "a:7480"})
	w.expect(t, "TIER_EDGE dead 0 not heard for 2m0s", "TIER_EDGE new 0", "TIER_ROUTER r 0")
	if n := w.List()[0]; n.GetReady() != pushmeshv1.Ready_READY_NO || n.GetHttpAddress() != "a:7480" {
		t.Errorf("it is said to be %v", n)
	}
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "dead", HttpAddress: "a:7480"})
	w.expect(t, "TIER_EDGE dead 0", "TIER_EDGE new 0", "TIER_ROUTER r 0")
	w.now = w.now.Add(listedFor + 1)
	w.expect(t)
}

func TestWhatANodeSays(t *testing.T) {
	w := start(t)
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{
		EdgeId: "e", EdgeIncarnation: 1, Connections: 12, Draining: true, HttpAddress: "h:7480", Address: "h:7400", Program: "v1", SentAt: 999_000_000, NotReady: true,
	})
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "old", EdgeIncarnation: 1})
	w.bus.say(t, bus.StoreBeat, &meshv1.StoreBeat{
		StoreId: "s", StoreIncarnation: 3, Address: "h:7403", HttpAddress: "h:7483", Program: "v2", SentAt: 1_000_000_000, Shards: 1024, Leaving: true,
	})
	w.bus.say(t, bus.RouterBeat, &meshv1.RouterBeat{
		RouterId: "r", RouterIncarnation: 3, Address: "h:7401", HttpAddress: "h:7481", Version: "v3", SentAt: 1_000_000_001,
	})
	want := []*pushmeshv1.Node{
		{
			Tier: pushmeshv1.Tier_TIER_EDGE, Id: "e", Incarnation: 1, Version: "v1", SubscriberAddress: "h:7400", HttpAddress: "h:7480", Connections: 12,
			Draining: true, Ready: pushmeshv1.Ready_READY_NO, Clock: 999_000_000, HeardAt: 1_000_000_000,
		},
		{Tier: pushmeshv1.Tier_TIER_EDGE, Id: "old", Incarnation: 1, HeardAt: 1_000_000_000},
		{
			Tier: pushmeshv1.Tier_TIER_ROUTER, Id: "r", Incarnation: 3, Version: "v3", GrpcAddress: "h:7401", HttpAddress: "h:7481",
			Ready: pushmeshv1.Ready_READY_YES, Clock: 1_000_000_001, HeardAt: 1_000_000_000,
		},
		{
			Tier: pushmeshv1.Tier_TIER_STORE, Id: "s", Incarnation: 3, Version: "v2", GrpcAddress: "h:7403", HttpAddress: "h:7483", Draining: true,
			Clock: 1_000_000_000, HeardAt: 1_000_000_000, Shards: 1024,
		},
	}
	for i, n := range w.List() {
		if !proto.Equal(n, want[i]) {
			t.Errorf("%v, want %v", n, want[i])
		}
	}
}

// What comes from outside is bounded, and need not make sense.
func TestNonsense(t *testing.T) {
	w := start(t)
	w.bus.hear[bus.EdgeDigest]([]byte("\xff"), nil)
	w.bus.say(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "a.b"})
	w.expect(t)
	for i := range maxNodes + 5 {
		w.bus.say(t, bus.StoreBeat, &meshv1.StoreBeat{StoreId: fmt.Sprint(i)})
	}
	if n := len(w.List()); n != maxNodes {
		t.Errorf("%d nodes are kept", n)
	}
	w.now = w.now.Add(silentAfter + 1)
	w.bus.say(t, bus.StoreBeat, &meshv1.StoreBeat{StoreId: "new"})
	w.expect(t, "TIER_STORE new 0") // the silent ones made room
}

func TestASubscriptionThatFails(t *testing.T) {
	b := &fakeBus{hear: map[string]func([]byte, func([]byte) error){}, refuse: bus.StoreBeat}
	if err := New(b, time.Now).Start(t.Context()); err == nil || b.left != len(b.hear) {
		t.Errorf("%v, %d of %d subscriptions ended", err, b.left, len(b.hear))
	}
}
