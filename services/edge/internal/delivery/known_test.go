package delivery

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// knows has the hub go by the world's table.
func (w *world) knows(table *policy.Table) {
	w.table = table
	w.h.rules.Unknown = func() *code.Error { return w.table.Known() }
	w.h.rules.Refuses = func(filter string) *code.Error { return w.table.Refuses(filter) }
}

// An edge that does not know which topics are durable lets nobody in: neither a session, whose
// backlog it would pass over, nor anybody else.
func TestNobodyIsLetInBeforeTheNamespacesAreKnown(t *testing.T) {
	w := newWorld(t, Limits{})
	known := w.table
	w.knows(policy.Unknown("not yet"))
	for _, hello := range []*wirev1.Hello{{}, {ClientId: "c", Session: "s"}} {
		hello.Version = 1
		c := w.dial()
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
		c.expect("Error UNAVAILABLE ref=0")
		if !c.ended {
			t.Error("the connection goes on")
		}
	}
	w.knows(known)
	w.connect(&wirev1.Hello{})
}

// What is in a namespace that the edge does not understand is refused, with a retry, and nothing
// else is.
func TestANamespaceThatIsNotUnderstoodIsRefused(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	w.knows(policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "orders", NotUnderstood: "a field", Policy: &pushmeshv1.Policy{ClientPublish: true}},
		{Prefix: "bills", Policy: &pushmeshv1.Policy{ClientPublish: true}},
	}))
	id := uint32(0)
	refused := func(send func()) {
		t.Helper()
		id++
		send()
		c.expect(fmt.Sprintf("Error UNAVAILABLE ref=%d", id))
	}
	for _, filter := range []string{"orders/1", "orders/#", "+/1", "#"} {
		for _, group := range []string{"", "g"} {
			refused(func() { c.subscribe(&wirev1.Subscribe{Id: id, Filter: filter, Group: group}) })
		}
	}
	refused(func() { c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: "orders/1"}) })
	refused(func() { c.claim(&wirev1.Claim{Id: id, Resource: "orders/1"}) })
	if why := w.h.rules.Publish(w.h.conns.Get(c.slot).Asking(id+1), &wirev1.Publish{Id: id + 1, Topic: "bills/1"}); why != nil {
		t.Error("another namespace is refused:", why)
	}
}
