package delivery

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
)

// A namespace that is changed to let no client subscribe ends what clients have there, with what is
// queued and what sessions have of it; backends and other namespaces go on. Once the rule is taken
// back, clients may subscribe again.
func TestANamespaceThatIsShutEndsSubscriptions(t *testing.T) {
	w := newWorld(t, Limits{})
	namespaces := func() *policy.Table { return w.table }
	redeems := func([]byte, uint64) bool { return true }
	w.lets(principals.Config{Namespaces: namespaces, Redeem: redeems})
	w.h.rules.Namespaces = namespaces
	open := w.table
	c := w.connect(&wirev1.Hello{ClientId: "c", Session: "s"})
	backend := w.connect(&wirev1.Hello{Ticket: []byte("t")})
	for i, m := range []*wirev1.Subscribe{
		{Filter: "room/1"}, {Filter: "room/+"}, {Filter: "#"}, {Filter: "room/2", Ack: true, Start: wirev1.Start_START_SESSION}, {Filter: "other/1"}, {Filter: "room/1", Group: "g"},
	} {
		m.Id = uint32(i + 1)
		c.subscribe(m)
	}
	backend.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+"})
	w.h.Event(exchange.GroupJoined{Conn: w.h.Handle(c.slot), Sub: w.h.conns.Get(c.slot).Groups[0].Ref})
	w.settle()
	c.take()
	backend.take()
	c.got, backend.got = nil, nil

	c.slow = true
	w.mesh.Send("room/2", "queued")
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "room", Policy: &pushmeshv1.Policy{Durable: true, ClientSubscribe: pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE}}})
	w.h.Event(exchange.PoliciesChanged{})
	w.settle()
	c.slow = false
	c.take()
	ended := map[uint32]bool{}
	for _, f := range c.got {
		switch m := f.m.(type) {
		case *wirev1.Unsubscribed:
			ended[m.GetId()] = true
			if m.GetCode() != wirev1.Code_CODE_FORBIDDEN || !strings.Contains(m.GetReason(), "rule namespace:room,") {
				t.Error(m)
			}
		case *wirev1.Message:
			t.Errorf("what is barred comes: %v", m)
		}
	}
	if len(ended) != 5 || ended[5] {
		t.Errorf("ended: %v", ended)
	}
	if n := len(w.mesh.Session("client:c", "s").Filters); n != 0 {
		t.Errorf("the session has %d filters", n)
	}
	if s := w.h.Stats().Principals; s.Barred != 5 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	c.got = nil
	backend.expect("room/2/1")
	w.mesh.Send("room/1", "goes on")
	w.mesh.Send("other/1", "goes on")
	backend.expect("room/1/1")
	c.expect("other/1/1")
	c.subscribe(&wirev1.Subscribe{Id: 7, Filter: "room/1"})
	c.expect("Error FORBIDDEN ref=7")
	w.table = open
	w.h.Event(exchange.PoliciesChanged{})
	c.subscribe(&wirev1.Subscribe{Id: 8, Filter: "room/1"})
	c.expect("Subscribed 8 head=1")
}
