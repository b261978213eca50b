package pushmesh

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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

// What of a group waits for a handler when the connection ends is another member's by then: it is
// let go, neither handed over nor ACKed.
func TestAGroupsBacklogEndsWithItsConnection(t *testing.T) {
	for _, o := range []Option{WithAck(), WithManualAck()} {
		inSubs(t, func(t *testing.T, s *Subscriber, e *fakeEdge, c *edgeConn) {
			leave, got := make(chan struct{}), newSeqLog()
			c.start(s, "room/a", func(_ context.Context, d *Delivery) error {
				got.add(d.Seq)
				<-leave
				return d.Ack()
			}, o, WithGroup("g"))
			id := c.subscribed(7, 0, true).GetId()
			for seq := range uint64(3) {
				c.message("room/a", seq+1, 0, id)
			}
			synctest.Wait()
			c.close()
			synctest.Wait()
			leave <- struct{}{} // while there is no connection
			synctest.Wait()
			got.wait(t, 1)
			c = e.welcomeWith(seldom)
			c.subscribed(7, 3, true)
			close(leave)
			c.message("room/a", 4, 0, id)
			c.ackedAlone("room/a", 4)
			got.wait(t, 1, 4)
			c.quiet(time.Minute)
		})
	}
}

// So is what waits for a crew, and it does not pile up over many connections.
func TestACrewsBacklogEndsWithItsConnection(t *testing.T) {
	for _, o := range []Option{WithAck(), WithManualAck()} {
		inSubs(t, func(t *testing.T, s *Subscriber, e *fakeEdge, c *edgeConn) {
			s.cfg.ReceiveWindow = 1 // one is handled, 65 wait, and the others before these
			leave, got := make(chan struct{}), newSeqLog()
			sub := c.start(s, "room/a", func(_ context.Context, d *Delivery) error {
				got.add(d.Seq)
				<-leave
				return d.Ack()
			}, o, WithGroup("g"), WithConcurrency(1))
			const each, cuts = 70, 5
			seq := uint64(0)
			for range cuts {
				id := c.subscribed(7, seq, true).GetId()
				for range each {
					seq++
					c.message("room/a", seq, 0, id)
				}
				c.message("room/a", 0, 0, id) // would be lost
				synctest.Wait()
				c.close()
				synctest.Wait()
				c = e.welcomeWith(seldom)
			}
			id := c.subscribed(7, seq, true).GetId()
			synctest.Wait()
			got.wait(t, 1)
			s.mu.Lock()
			if n, _ := sub.crew.Waiting(); s.queue.Len()+n > 2*cuts || s.held > 1 {
				t.Errorf("%d messages wait, and %d before them, %d are held", n, s.queue.Len(), s.held)
			}
			s.mu.Unlock()
			c.message("room/a", seq+1, 0, id)
			close(leave)
			c.ackedAlone("room/a", seq+1)
			c.quiet(time.Minute)
			got.wait(t, 1, 0, 0, 0, 0, 0, seq+1)
		})
	}
}
