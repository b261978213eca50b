package pushmesh

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Messages that come again while somebody has them.

// ackedFor reads Acks until each of these subscriptions (0: none is named) has one of seq, and
// fails where another one has.
func (c *edgeConn) ackedFor(seq uint64, subs ...uint32) {
	c.t.Helper()
	want := map[uint32]bool{}
	for _, sub := range subs {
		want[sub] = true
	}
	for len(want) > 0 {
		for _, a := range c.acks() {
			if a.GetSeq() != seq || !want[a.GetSub()] {
				c.t.Fatalf("ACKed %v, want %d for %v", a, seq, subs)
			}
			delete(want, a.GetSub())
		}
	}
}

// twoOf runs a test with two subscriptions of room/a that ACK by hand, and that one connection's
// messages of room/a are for.
func twoOf(t *testing.T, f func(t *testing.T, s *Subscriber, c *edgeConn, a, b keeper, ids [2]uint32, again func() *edgeConn)) {
	t.Helper()
	inSubs(t, func(t *testing.T, s *Subscriber, e *fakeEdge, c *edgeConn) {
		a, b := make(keeper, 10), make(keeper, 10)
		var ids [2]uint32
		c.start(s, "room/a", a.handle, WithManualAck())
		ids[0] = c.subscribed(7, 0, true).GetId()
		c.start(s, "room/+", b.handle, WithManualAck())
		ids[1] = c.subscribed(0, 0, true).GetId()
		f(t, s, c, a, b, ids, func() *edgeConn {
			c.close()
			c = e.welcomeWith(seldom)
			for range ids {
				m := c.subscribe()
				c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Recovered: true})
			}
			return c
		})
	})
}

// One of two subscriptions refuses a message that the other one still has. When it comes again, the
// first one has it again, and it is ACKed when both have dealt with it, whoever is first.
func TestACopyForOneOfTwo(t *testing.T) {
	for _, first := range []string{"the one that has it again", "the one that still has it"} {
		t.Run(first, func(t *testing.T) {
			twoOf(t, func(t *testing.T, _ *Subscriber, c *edgeConn, a, b keeper, ids [2]uint32, again func() *edgeConn) {
				c.message("room/a", 1, 0)
				da, db := a.next(t, 1), b.next(t, 1)
				if err := da.Nack(0); err != nil {
					t.Error(err)
				}
				c.quiet(time.Second) // b has it
				c = again()
				c.message("room/a", 1, 1, ids[:]...)
				dealt := []*Delivery{a.next(t, 1), db}
				if first == "the one that still has it" {
					dealt[0], dealt[1] = dealt[1], dealt[0]
				}
				if err := dealt[0].Ack(); err != nil {
					t.Error(err)
				}
				c.quiet(time.Second)
				if len(a)+len(b) > 0 {
					t.Error("it is handed over again")
				}
				if err := dealt[1].Ack(); err != nil {
					t.Error(err)
				}
				c.ackedFor(1, ids[:]...)
				c.quiet(time.Second)
			})
		})
	}
}

// Of a message that one subscription has dealt with and another one refuses, a Nack names the one
// that refuses it, nothing is ACKed, and the copy is for that one alone; then it is ACKed for both.
func TestARefusalOfOneOfTwo(t *testing.T) {
	twoOf(t, func(t *testing.T, _ *Subscriber, c *edgeConn, a, b keeper, ids [2]uint32, _ func() *edgeConn) {
		c.message("room/a", 1, 0, ids[:]...)
		da, db := a.next(t, 1), b.next(t, 1)
		if err := errors.Join(da.Ack(), db.Nack(time.Second)); err != nil {
			t.Error(err)
		}
		if n := c.nacked(1); n.GetSub() != ids[1] {
			t.Errorf("%v, want one for %d", n, ids[1])
		}
		c.quiet(time.Second)
		c.message("room/a", 1, 1, ids[:]...)
		if err := b.next(t, 1).Ack(); err != nil {
			t.Error(err)
		}
		c.ackedFor(1, ids[:]...)
		if len(a) > 0 {
			t.Error("it is handed over to who had it")
		}
	})
}

// What came as two deliveries and comes again as one is ACKed when both have dealt with it.
func TestTwoDeliveriesThatBecomeOne(t *testing.T) {
	twoOf(t, func(t *testing.T, s *Subscriber, c *edgeConn, a, b keeper, ids [2]uint32, again func() *edgeConn) {
		c.message("room/a", 1, 0, ids[0])
		c.message("room/a", 1, 0, ids[1])
		da, db := a.next(t, 1), b.next(t, 1)
		c = again()
		c.message("room/a", 1, 1, ids[:]...)
		synctest.Wait()
		if err := da.Ack(); err != nil {
			t.Error(err)
		}
		c.quiet(time.Second)
		if err := db.Ack(); err != nil {
			t.Error(err)
		}
		c.ackedFor(1, ids[:]...)
		if len(a)+len(b) > 0 {
			t.Error("it is handed over again")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held != 0 {
			t.Errorf("%d messages are held", s.held)
		}
	})
}

// A message that comes again over a connection is ACKed there for who had it over that one, and not
// for a subscription that it has not come for yet.
func TestACopyOfOneOfTwoConnections(t *testing.T) {
	twoOf(t, func(t *testing.T, _ *Subscriber, c *edgeConn, a, b keeper, ids [2]uint32, again func() *edgeConn) {
		c.message("room/a", 1, 0, ids[:]...)
		da, db := a.next(t, 1), b.next(t, 1)
		c = again()
		c.message("room/a", 1, 1, ids[1])
		synctest.Wait()
		if err := errors.Join(da.Ack(), db.Ack()); err != nil {
			t.Error(err)
		}
		c.ackedFor(1, ids[1])
		c.quiet(time.Second)
		c.message("room/a", 1, 1, ids[0])
		c.ackedFor(1, ids[0])
	})
}

// The end of a handler whose subscription is over does not ACK the message for one that took its
// place and still has it.
func TestTheEndOfASubscriptionsHandler(t *testing.T) {
	for name, opts := range map[string][]Option{"one at a time": {WithAck()}, "of a crew": {WithAck(), WithConcurrency(1)}} {
		t.Run(name, func(t *testing.T) {
			inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
				leave := make(chan struct{})
				first := c.start(s, "room/a", func(context.Context, *Delivery) error { <-leave; return nil }, opts...)
				id := c.subscribed(7, 0, true).GetId()
				c.message("room/a", 1, 0)
				synctest.Wait()
				gone := failed(first.Unsubscribe)
				c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
				c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id})
				if err := <-gone; err != nil {
					t.Fatal(err)
				}
				got := make(keeper, 1)
				c.start(s, "room/a", got.handle, WithManualAck(), WithConcurrency(1))
				c.subscribed(7, 0, true)
				c.message("room/a", 1, 0)
				synctest.Wait()
				close(leave)
				d := got.next(t, 1)
				c.quiet(time.Second)
				if err := d.Ack(); err != nil {
					t.Error(err)
				}
				c.ackedThrough("room/a", 1)
			})
		})
	}
}

// A message of two subscriptions is ACKed for the other one where one of them ends and never deals
// with it.
func TestOneOfTwoEnds(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		got := make(keeper, 1)
		leaving := c.start(s, "room/a", got.handle, WithManualAck())
		id := c.subscribed(7, 0, true).GetId()
		c.start(s, "room/+", fine, WithAck())
		c.subscribed(0, 0, true)
		c.message("room/a", 1, 0)
		d := got.next(t, 1)
		c.quiet(time.Second)
		gone := failed(leaving.Unsubscribe)
		c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
		c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id})
		if err := <-gone; err != nil {
			t.Error(err)
		}
		c.ackedThrough("room/a", 1)
		if err := d.Ack(); !errors.Is(err, ErrClosed) {
			t.Errorf("ACKed after its subscription: %v", err)
		}
	})
}

// With WithManualAck an ACK and a Nack leave at the call, also while the handler runs.
func TestManualAcksLeaveAtTheCall(t *testing.T) {
	for name, opts := range map[string][]Option{"one at a time": nil, "of a crew": {WithConcurrency(1)}, "of a group": {WithGroup("g")}} {
		t.Run(name, func(t *testing.T) {
			inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
				leave := make(chan struct{})
				c.start(s, "room/a", func(_ context.Context, d *Delivery) error {
					err := d.Ack()
					if d.Seq == 2 {
						err = d.Nack(time.Second)
						if !errors.Is(err, ErrSettled) {
							t.Errorf("Nacked what was ACKed: %v", err)
						}
						err = nil
					}
					<-leave
					return err
				}, append(opts, WithManualAck())...)
				id := c.subscribed(7, 0, true).GetId()
				c.start(s, "room/+", fine, WithAck()) // it is done with before
				c.subscribed(0, 0, true)
				for seq := range uint64(2) {
					c.message("room/a", seq+1, 0, id)
					if a := c.acks(); len(a) != 1 || a[0].GetSeq() != seq+1 {
						t.Errorf("ACKed %v", a)
					}
					leave <- struct{}{}
				}
				c.start(s, "room/b", func(_ context.Context, d *Delivery) error {
					if err := d.Nack(2 * time.Second); err != nil {
						t.Error(err)
					}
					<-leave
					return errors.New("said already")
				}, append(opts, WithManualAck())...)
				id = c.subscribed(7, 0, true).GetId()
				c.message("room/b", 1, 0, id)
				if n := c.nacked(1); n.GetDelayMs() != 2000 {
					t.Errorf("%v", n)
				}
				leave <- struct{}{}
				c.quiet(time.Second)
			})
		})
	}
}

// A message of two subscriptions leaves at the ACK of the one that ACKs by hand, when the other one
// has dealt with it before.
func TestWhoACKsByHandIsLast(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		leave := make(chan struct{})
		c.start(s, "room/a", func(_ context.Context, d *Delivery) error {
			defer func() { <-leave }()
			return d.Ack()
		}, WithManualAck())
		c.subscribed(7, 0, true)
		c.start(s, "room/+", fine, WithAck())
		c.subscribed(0, 0, true)
		c.message("room/a", 1, 0)
		c.ackedThrough("room/a", 1)
		close(leave)
	})
}

// A Delivery that was kept stays as it was, and can be ACKed later, itself or as a copy, whatever
// comes meanwhile. The race detector looks on.
func TestDeliveriesThatAreKept(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	var mu sync.Mutex
	var kept []*Delivery
	var copies []Delivery
	var watching sync.WaitGroup
	stop := make(chan struct{})
	keep := func(_ context.Context, d *Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		kept, copies = append(kept, d), append(copies, *d)
		filter, payload := d.Filter, string(d.Payload)
		watching.Go(func() {
			for {
				if one := *d; one.Filter != filter || string(one.Payload) != payload || string(d.Payload) != payload {
					t.Errorf("%d of %s became %d of %s", d.Seq, filter, one.Seq, one.Filter)
				}
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
		return nil
	}
	start(t, s, "room/a", keep, WithManualAck())
	c := e.welcome()
	ids := []uint32{c.subscribed(7, 0, true).GetId()}
	for _, filter := range []string{"room/+", "room/#"} {
		start(t, s, filter, keep)
		ids = append(ids, c.subscribed(0, 0, true).GetId())
	}
	const n = 5
	for range 3 { // it comes again while it is held
		for seq := range uint64(n) {
			c.message("room/a", seq+1, 0, ids...)
		}
	}
	waitUntil(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(kept) == 3*n && s.Stats().Repeated == 2*3*n
	})
	close(stop)
	watching.Wait()
	mu.Lock()
	defer mu.Unlock()
	had := map[string]int{}
	for i, d := range kept {
		if had[d.Filter]++; d.Filter != "room/a" {
			if err := d.Ack(); err == nil || !errors.Is(err, ErrSettled) {
				t.Errorf("of a subscription without WithAck: %v", err)
			}
			continue
		}
		err := d.Ack()
		if d.Seq%2 == 0 {
			err = errors.Join(err, errAsTwice(copies[i].Ack()))
		}
		if err != nil {
			t.Error(err)
		}
	}
	if had["room/a"] != n || had["room/+"] != n || had["room/#"] != n {
		t.Errorf("had %v", had)
	}
	c.ackedThrough("room/a", n)
}

// errAsTwice is nil where an ACK was refused as the second one.
func errAsTwice(err error) error {
	if errors.Is(err, ErrSettled) {
		return nil
	}
	return errors.Join(errors.New("ACKed twice"), err)
}

// A copy of a Delivery settles the message, too.
func TestACopyOfADeliverySettles(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	got := make(chan Delivery, 1)
	start(t, s, "room/a", func(_ context.Context, d *Delivery) error {
		got <- *d
		return nil
	}, WithManualAck())
	c := e.welcome()
	c.subscribed(7, 0, true)
	c.message("room/a", 1, 0)
	d := <-got
	if err := d.Ack(); err != nil {
		t.Fatal(err)
	}
	c.ackedThrough("room/a", 1)
}
