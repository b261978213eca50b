package pushmesh

import (
	"context"
	"errors"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A group keeps the positions: what it delivers is handled whatever came before, and a reconnect
// names none.
func TestAGroupsMessagesAreHandledAsTheyCome(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	got, refuse := newSeqLog(), true
	start(t, s, "room/a", func(_ context.Context, d *Delivery) error {
		got.add(d.Seq)
		if d.Seq == 4 && refuse {
			refuse = false
			return errors.New("not now")
		}
		return nil
	}, WithAck(), FromEarliest(), WithGroup("g"), WithGroupKey(KeyHeader("k")))
	c := e.welcome()
	m := c.subscribed(7, 9, true)
	if m.GetGroup() != "g" || m.GetGroupKey() != "header:k" {
		t.Fatalf("subscribed with %v", m)
	}
	id := m.GetId()
	for _, seq := range []uint64{9, 5} {
		// below the head, and out of order: another member let 5 time out
		c.message("room/a", seq, 0, id)
		c.ackedAlone("room/a", seq)
	}
	c.message("room/a", 4, 0, id)
	var n wirev1.Nack
	if c.expect(wirev1.FrameType_FRAME_TYPE_NACK, &n); n.GetSeq() != 4 || n.GetSub() != id {
		t.Fatalf("nack %v", &n)
	}
	c.message("room/a", 4, 1, id)
	c.ackedAlone("room/a", 4)
	c.message("room/a", 9, 1, id) // its ACK was lost
	c.ackedAlone("room/a", 9)
	got.wait(t, 9, 5, 4, 4, 9)
	c.close()
	c = e.welcome()
	if m := c.subscribe(); m.GetGroup() != "g" || m.GetStart() != wirev1.Start_START_EARLIEST || len(m.GetPositions()) != 0 {
		t.Fatalf("resubscribed with %v", m)
	}
}

func TestAGroupKeyNeedsAGroup(t *testing.T) {
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{nobody}})
	if _, err := s.Start("room/a", func(context.Context, *Delivery) error { return nil }, WithGroupKey(KeyTopic)); err == nil {
		t.Error("a key without a group is taken")
	}
}
