package pushmesh

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// What happens to messages of a log that begins anew while they are held, wait, or were just
// ACKed: their numbers are those of others now.

// stands fails where a subscription is not at a position.
func stands(t *testing.T, sub *Subscription, want Position) {
	t.Helper()
	if p := sub.Positions(); len(p) != 1 || p[0] != want {
		t.Errorf("at %v, want %v", p, want)
	}
}

// A message that the application ACKs when its log is gone moves nothing in the one that took its
// place, whose message of the same number is handed over.
func TestTheEndOfAMessageOfTheLogBefore(t *testing.T) {
	const n = 3
	changed := func(c *edgeConn, epoch uint64) {
		c.progress(&wirev1.Progress{Topic: "room/a", Epoch: epoch, Code: wirev1.Code_CODE_EPOCH_CHANGED})
	}
	for name, x := range map[string]struct {
		filter string
		opts   []Option
		begins func(c *edgeConn, id uint32) // the first log
		anew   func(e *fakeEdge, c *edgeConn) *edgeConn
		epoch  uint64 // of the second one
		shared bool
	}{
		"a new epoch": {
			filter: "room/a", begins: func(c *edgeConn, id uint32) { c.stands(id, 7, 0, true) },
			anew: func(_ *fakeEdge, c *edgeConn) *edgeConn { changed(c, 9); return c }, epoch: 9,
		},
		"an epoch that was never named": {
			filter: "room/+", begins: func(c *edgeConn, id uint32) { c.stands(id, 0, 0, true) },
			anew: func(_ *fakeEdge, c *edgeConn) *edgeConn { changed(c, 9); return c }, epoch: 9,
		},
		"a log that has not come as far, of the same epoch": {
			filter: "room/a", begins: func(c *edgeConn, id uint32) { c.stands(id, 7, 0, true) },
			anew: func(e *fakeEdge, c *edgeConn) *edgeConn {
				c.close()
				c = e.welcomeWith(seldom)
				c.subscribed(7, 0, false)
				return c
			}, epoch: 7,
		},
		"of a group": {
			filter: "room/a", opts: []Option{WithGroup("g")}, begins: func(c *edgeConn, id uint32) { c.stands(id, 7, 0, true) },
			anew: func(_ *fakeEdge, c *edgeConn) *edgeConn { changed(c, 9); return c }, shared: true,
		},
		"of a group, whose epoch was never named": {
			filter: "room/+", opts: []Option{WithGroup("g")}, begins: func(c *edgeConn, id uint32) { c.stands(id, 0, 0, true) },
			anew: func(_ *fakeEdge, c *edgeConn) *edgeConn { changed(c, 9); return c }, shared: true,
		},
		"of a group, over a break": {
			filter: "room/a", opts: []Option{WithGroup("g")}, begins: func(c *edgeConn, id uint32) { c.stands(id, 7, 0, true) },
			anew: func(e *fakeEdge, c *edgeConn) *edgeConn {
				c.close()
				c = e.welcomeWith(seldom)
				c.subscribed(9, 0, true)
				return c
			}, shared: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inSubs(t, func(t *testing.T, s *Subscriber, e *fakeEdge, c *edgeConn) {
				got := make(keeper, 10)
				sub := c.start(s, x.filter, got.handle, append(x.opts, WithManualAck())...)
				m := c.subscribe()
				x.begins(c, m.GetId())
				var old []*Delivery
				for seq := range uint64(n) {
					c.message("room/a", seq+1, 0, m.GetId())
					old = append(old, got.next(t, seq+1))
				}
				c = x.anew(e, c)
				synctest.Wait()
				for _, d := range old[1:] {
					if err := d.Ack(); err != nil {
						t.Error(err)
					}
				}
				if !x.shared {
					stands(t, sub, Position{"room/a", x.epoch, 0})
				}
				for seq := range uint64(n) {
					c.message("room/a", seq+1, 0, m.GetId())
					d := got.next(t, seq+1)
					if seq == 0 { // that of the log before is still held: this one is another
						if err := old[0].Nack(0); err != nil {
							t.Error(err)
						}
						c.quiet(time.Second)
					}
					if err := d.Ack(); err != nil {
						t.Error(err)
					}
					for _, a := range c.acks() {
						if a.GetSeq() != seq+1 || a.GetEpoch() != d.Epoch {
							t.Errorf("ACKed %v, want %d of %d", a, seq+1, d.Epoch)
						}
					}
				}
				if !x.shared {
					stands(t, sub, Position{"room/a", x.epoch, n})
				}
			})
		})
	}
}

// stands answers a Subscribe.
func (c *edgeConn) stands(id uint32, epoch, head uint64, recovered bool) {
	c.t.Helper()
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: id, Epoch: epoch, Head: head, Recovered: recovered})
}

// An ACK that waits when a log begins anew is of the log before, and covers nothing of the new one.
func TestACKsThatWaitAreOfTheirLog(t *testing.T) {
	inAcks(t, SubscriberConfig{AckDelay: 10 * time.Second}, fine, []Option{WithAck()}, func(t *testing.T, _ *fakeEdge, c *edgeConn, _ uint32) {
		for seq := range uint64(5) {
			c.message("room/a", seq+1, 0)
		}
		c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 9, Code: wirev1.Code_CODE_EPOCH_CHANGED})
		c.message("room/a", 1, 0)
		for _, want := range []*wirev1.Ack_Entry{{Seq: 5, Epoch: 7}, {Seq: 1, Epoch: 9}} {
			if a := c.acks(); len(a) != 1 || a[0].GetSeq() != want.GetSeq() || a[0].GetEpoch() != want.GetEpoch() || !a[0].GetThrough() {
				t.Errorf("ACKed %v, want all up to %v", a, want)
			}
		}
	})
}

// Messages that wait for a handler when an edge takes their subscription away and gives it another
// log are handed over, and say nothing of that log.
func TestWhatWaitsIsOfTheLogBefore(t *testing.T) {
	type had struct{ epoch, seq uint64 }
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		leave, got := make(chan struct{}), make(chan had, 10)
		sub := c.start(s, "room/a", func(_ context.Context, d *Delivery) error {
			<-leave
			got <- had{d.Epoch, d.Seq}
			return nil
		}, WithAck())
		id := c.subscribed(7, 0, true).GetId()
		for seq := range uint64(3) {
			c.message("room/a", seq+1, 0)
		}
		c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 7, From: 4, To: 6, Code: wirev1.Code_CODE_FILTERED})
		synctest.Wait()
		c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id, Code: wirev1.Code_CODE_OVERLOADED})
		c.subscribed(9, 0, false)
		synctest.Wait()
		for seq := range uint64(2) {
			c.message("room/a", seq+1, 0)
		}
		close(leave)
		for _, want := range []had{{7, 1}, {7, 2}, {7, 3}, {9, 1}, {9, 2}} {
			select {
			case have := <-got:
				if have != want {
					t.Errorf("%v is handed over, want %v", have, want)
				}
			case <-time.After(patience):
				t.Fatalf("%v is not handed over", want)
			}
		}
		synctest.Wait()
		stands(t, sub, Position{"room/a", 9, 2})
		for _, a := range c.acks() {
			if a.GetEpoch() != 9 || a.GetSeq() != 2 {
				t.Errorf("ACKed %v", a)
			}
		}
	})
}

// Who waits for the head of a log that is gone waits for nothing.
func TestTheHeadOfALogThatIsGone(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		sub := c.start(s, "room/a", fine, FromEarliest())
		id := c.subscribed(7, 5, true).GetId()
		synctest.Wait()
		caught := failed(sub.CaughtUp)
		synctest.Wait()
		c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 9, Code: wirev1.Code_CODE_EPOCH_CHANGED, Subs: []uint32{id}})
		select {
		case err := <-caught:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("it waits for messages that are gone")
		}
		if head, known := sub.Head("room/a"); !known || head != (Position{"room/a", 9, 0}) {
			t.Errorf("head %v, %v", head, known)
		}
	})
}
