package delivery

import (
	"fmt"
	"math"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

func (c *client) profile() *exchange.Profile { return c.w.h.conns.Get(c.slot).Profile }

func TestHelloHasAProfile(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{Profile: map[string]float64{"sport": 0.5}, ProfileVector: []float32{1, 2}})
	if p := c.profile(); p == nil || p.Features["sport"] != 0.5 || len(p.Vector) != 2 {
		t.Fatalf("the profile is %v", p)
	}
	plain := w.connect(&wirev1.Hello{})
	if n := w.h.conns.Mores.Taken(); n != 1 || plain.profile() != nil {
		t.Fatalf("%d connections have more than they need", n)
	}
	many := map[string]float64{}
	for i := range 65 {
		many[fmt.Sprint(i)] = 1
	}
	for _, bad := range []*wirev1.Hello{
		{Profile: many},
		{Profile: map[string]float64{"a": math.Inf(1)}},
		{ProfileVector: make([]float32, 513)},
		{ProfileVector: []float32{float32(math.NaN())}},
	} {
		bad.Version = 1
		c := w.dial()
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, bad)
		c.expect("Error INVALID_ARGUMENT ref=0")
	}
}

func TestSetProfile(t *testing.T) {
	w := newWorld(t, Limits{})
	a, b := w.connect(&wirev1.Hello{ClientId: "a"}), w.connect(&wirev1.Hello{ClientId: "b", Profile: map[string]float64{"x": 1}})
	w.mesh.Hold()
	waits := w.dial()
	waits.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "c", Session: "inbox"})
	set := func(clientID, user string, p *exchange.Profile) int {
		n := -1
		w.h.Event(exchange.SetProfile{ClientID: clientID, User: user, Profile: p, Reply: func(k int) { n = k }})
		w.settle()
		return n
	}
	p := exchange.NewProfile(map[string]float64{"y": 2}, nil)
	if n := set("nobody", "a", p); n != 0 || a.profile() != nil {
		t.Errorf("%d were meant by other names", n)
	}
	if n := set("a", "client:b", p); n != 2 || a.profile() != p || b.profile() != p {
		t.Errorf("%d were meant, their profiles are %v and %v", n, a.profile(), b.profile())
	}
	if n := set("c", "", p); n != 1 || waits.profile() != p {
		t.Errorf("of those that wait for their session %d were meant, the profile is %v", n, waits.profile())
	}
	if n := set("", "client:a", exchange.NewProfile(nil, nil)); n != 1 || a.profile() != nil {
		t.Errorf("%d were meant, and there is still %v", n, a.profile())
	}
	if n := w.h.conns.Mores.Taken(); n != 2 {
		t.Errorf("%d connections have more than they need, want 2", n)
	}
}

// Many connections with one client id get a profile in slices.
func TestSetProfileOfManyIsSliced(t *testing.T) {
	h, slots := crowd(t, 400, &wirev1.Subscribe{})
	p := exchange.NewProfile(map[string]float64{"y": 2}, nil)
	left := func() (n int) {
		for _, slot := range slots {
			if h.conns.Get(slot).Profile != p {
				n++
			}
		}
		return n
	}
	replied := 0
	h.Event(exchange.SetProfile{ClientID: "client-0001", Profile: p, Reply: func(n int) { replied = n }})
	slicesOf(t, h, fanSlice, "connections have the profile", left)
	if replied != len(slots) || left() != 0 {
		t.Fatalf("%d have the profile, %d have not", replied, left())
	}
}
