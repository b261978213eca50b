package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func (c *edgeConn) nacked(seq uint64) *wirev1.Nack {
	c.t.Helper()
	n := &wirev1.Nack{}
	if c.expect(wirev1.FrameType_FRAME_TYPE_NACK, n); n.GetSeq() != seq {
		c.t.Fatalf("%v, want %d", n, seq)
	}
	return n
}

// keeper is a handler that keeps what it gets.
type keeper chan *Delivery

func (k keeper) handle(_ context.Context, d *Delivery) error {
	k <- d
	return nil
}

func (k keeper) next(t *testing.T, seq uint64) *Delivery {
	t.Helper()
	select {
	case d := <-k:
		if d.Seq != seq {
			t.Fatalf("%d is handed over, want %d", d.Seq, seq)
		}
		return d
	case <-time.After(patience):
		t.Fatalf("%d is not handed over", seq)
		return nil
	}
}

// The application ACKs what it likes when it likes, once. What it has not is owed by the mesh: a
// reconnect asks for it, and the copy is not handed over, but is what an ACK is then for.
func TestManualAcks(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	got := make(keeper, 10)
	sub := start(t, s, "room/a", got.handle, WithManualAck(), FromEarliest())
	c := e.welcome()
	id := c.subscribed(7, 0, true).GetId()
	for seq := range uint64(4) {
		c.message("room/a", seq+1, 0, id)
	}
	one, two, three, four := got.next(t, 1), got.next(t, 2), got.next(t, 3), got.next(t, 4)
	if err := two.Ack(); err != nil {
		t.Fatal(err)
	}
	c.ackedAlone("room/a", 2)
	if err := two.Ack(); !errors.Is(err, ErrSettled) {
		t.Errorf("ACKed twice: %v", err)
	}
	if err := two.Nack(0); !errors.Is(err, ErrSettled) {
		t.Errorf("Nacked after its ACK: %v", err)
	}
	if err := three.Nack(time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := c.nacked(3); n.GetDelayMs() != 60_000 {
		t.Errorf("%v", n)
	}
	if p := sub.Positions(); len(p) != 1 || p[0].Seq != 0 {
		t.Errorf("positions %v, though 1 is held", p)
	}
	c.close()
	c = e.welcome()
	if m := c.subscribed(7, 4, true); len(m.GetPositions()) != 1 || m.GetPositions()[0].GetSeq() != 0 {
		t.Fatalf("resumed with %v", m)
	}
	if err := four.Ack(); err != nil { // its copy has not come yet
		t.Fatal(err)
	}
	for seq := range uint64(4) {
		c.message("room/a", seq+1, 1, id)
	}
	got.next(t, 3)
	c.ackedAlone("room/a", 2, 4)
	if err := one.Ack(); err != nil {
		t.Fatal(err)
	}
	c.ackedThrough("room/a", 1)
	c.message("room/a", 5, 0, id)
	got.next(t, 5)
	if len(got) > 0 {
		t.Errorf("%d is handed over again", (<-got).Seq)
	}
	if st := s.Stats(); st.Repeated != 3 {
		t.Errorf("stats %+v", st)
	}
}

// What a handler says by Ack and Nack counts, not what it returns; where there is nothing to ACK,
// that is an error, and an ephemeral message needs nothing.
func TestAnswersBesideResults(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	var kept *Delivery
	said := make(chan error, 1)
	start(t, s, "room/a", func(_ context.Context, d *Delivery) error {
		switch d.Seq {
		case 1:
			said <- d.Nack(time.Second)
			return nil
		case 2:
			kept = d
			said <- d.Ack()
			return errors.New("after all")
		}
		said <- kept.Ack()
		return nil
	}, WithAck())
	plain := make(keeper, 1)
	start(t, s, "room/b", plain.handle)
	c := e.welcome()
	c.subscribed(7, 0, true)
	c.subscribed(7, 0, true)
	c.message("room/a", 1, 0)
	if n := c.nacked(1); n.GetDelayMs() != 1000 || <-said != nil {
		t.Errorf("%v", n)
	}
	c.message("room/a", 2, 0)
	c.ackedAlone("room/a", 2)
	if err := <-said; err != nil {
		t.Error(err)
	}
	c.message("room/a", 3, 0)
	if err := <-said; !errors.Is(err, ErrSettled) {
		t.Errorf("ACKed when its handler had returned: %v", err)
	}
	c.message("room/b", 1, 0)
	if err := plain.next(t, 1).Ack(); !errors.Is(err, ErrSettled) {
		t.Errorf("of a subscription without WithAck: %v", err)
	}
	c.message("room/b", 0, 0)
	if err := plain.next(t, 0).Ack(); err != nil {
		t.Errorf("an ephemeral message: %v", err)
	}
	if err := (&Delivery{Seq: 1}).Ack(); !errors.Is(err, ErrSettled) {
		t.Errorf("of nobody: %v", err)
	}
}

// An error of a handler is a Nack with WithManualAck, too.
func TestAManualHandlerThatFails(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	start(t, s, "room/a", func(_ context.Context, d *Delivery) error {
		if d.Attempt == 0 {
			return errors.New("not now")
		}
		return d.Ack()
	}, WithManualAck())
	c := e.welcome()
	c.subscribed(7, 0, true)
	c.message("room/a", 1, 0)
	c.nacked(1)
	c.message("room/a", 1, 1)
	c.ackedThrough("room/a", 1)
}

// A message of two subscriptions is ACKed once both have dealt with it, whoever is later.
func TestAMessageOfTwoIsACKedByTheLater(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		held := make(keeper, 1)
		var filters []string
		c.start(s, "room/a", held.handle, WithManualAck())
		c.subscribed(7, 0, true)
		c.start(s, "room/+", func(_ context.Context, d *Delivery) error {
			filters = append(filters, d.Filter)
			return nil
		}, WithAck())
		c.subscribed(0, 0, true)
		c.message("room/a", 1, 0)
		d := held.next(t, 1)
		synctest.Wait()
		if len(filters) != 1 || filters[0] != "room/+" || d.Filter != "room/a" {
			t.Errorf("handed over for %v and %s", filters, d.Filter)
		}
		if st := s.Stats(); st.Acked != 0 {
			t.Errorf("stats %+v", st)
		}
		go func() { _ = d.Ack() }()
		c.ackedThrough("room/a", 1)
	})
}

// With WithConcurrency a topic that is slow holds up no other, and messages of one topic wait for
// each other; no more handlers run than were asked for.
func TestTopicsBesideEachOther(t *testing.T) {
	const n = 3
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, ReceiveWindow: 1000})
	slow := make(chan struct{})
	var mu sync.Mutex
	running, most, had := 0, 0, map[string][]uint64{}
	all := make(chan struct{}, 1000)
	start(t, s, "room/+", func(_ context.Context, d *Delivery) error {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		if d.Topic == "room/slow" {
			<-slow
		}
		mu.Lock()
		defer mu.Unlock()
		running--
		had[d.Topic] = append(had[d.Topic], d.Seq)
		all <- struct{}{}
		return nil
	}, WithAck(), WithConcurrency(n))
	c := e.welcome()
	c.subscribed(0, 0, true)
	const topics, each = 7, 20
	c.message("room/slow", 1, 0)
	c.message("room/slow", 2, 0)
	for seq := range uint64(each) {
		for i := range topics {
			c.message(fmt.Sprint("room/", i), seq+1, 0)
		}
	}
	for range topics * each {
		<-all
	}
	for through := map[string]bool{}; len(through) < topics; {
		for _, a := range c.acks() {
			if a.GetThrough() && a.GetSeq() == each {
				through[a.GetTopic()] = true
			}
		}
	}
	mu.Lock()
	if len(had["room/slow"]) > 0 || most > n {
		t.Errorf("of the slow topic %v, %d at once", had["room/slow"], most)
	}
	mu.Unlock()
	close(slow)
	c.ackedThrough("room/slow", 2)
	mu.Lock()
	defer mu.Unlock()
	for topic, seqs := range had {
		if !slices.IsSorted(seqs) {
			t.Errorf("%s: %v", topic, seqs)
		}
	}
}

// What a crew has no room for waits before it, and then others wait behind that: nothing is kept
// without bounds.
func TestAFullCrewHoldsUpTheOthers(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		s.cfg.ReceiveWindow = 1
		release := make(chan struct{})
		c.start(s, "talk/a", func(context.Context, *Delivery) error { <-release; return nil }, WithConcurrency(1))
		c.subscribed(0, 0, true)
		got := newSeqLog()
		c.start(s, "room/b", got.handle)
		c.subscribed(7, 0, true)
		const room = 1 + 65 // one is handled, and the window and 64 wait
		for range room {
			c.message("talk/a", 0, 0)
		}
		c.message("room/b", 1, 0)
		synctest.Wait()
		got.wait(t, 1)
		c.message("talk/a", 0, 0)
		c.message("room/b", 2, 0)
		synctest.Wait()
		got.wait(t, 1)
		close(release)
		synctest.Wait()
		got.wait(t, 1, 2)
	})
}

// A loop takes messages in order, ACKs what it went on from, and what it left; a Nack in it counts,
// and a panic is one. It ends with the subscription, or its context.
func TestALoop(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c := make(chan *edgeConn, 1)
	go func() {
		c1 := e.welcome()
		c1.subscribed(7, 0, true)
		c <- c1
	}()
	sub, err := s.Pull(t.Context(), "room/a", WithAck())
	if err != nil {
		t.Fatal(err)
	}
	conn := <-c
	for seq := range uint64(5) {
		conn.message("room/a", seq+1, 0)
	}
	var seqs []uint64
	for d, err := range sub.Messages(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, d.Seq)
		if d.Seq == 2 {
			if err := d.Nack(time.Second); err != nil {
				t.Error(err)
			}
		}
		if d.Seq == 3 {
			break
		}
	}
	if !slices.Equal(seqs, []uint64{1, 2, 3}) {
		t.Fatalf("had %v", seqs)
	}
	conn.ackedThrough("room/a", 1)
	conn.nacked(2)
	conn.ackedAlone("room/a", 3)
	func() {
		defer func() { _ = recover() }()
		for d, err := range sub.Messages(t.Context()) {
			panic(fmt.Sprint(d.Seq, err))
		}
	}()
	conn.nacked(4)
	conn.message("room/a", 2, 1)
	for d, err := range sub.Messages(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if seqs = append(seqs, d.Seq); len(seqs) == 5 {
			break
		}
	}
	if !slices.Equal(seqs[3:], []uint64{5, 2}) {
		t.Errorf("had %v", seqs)
	}
	for acked := map[uint64]bool{}; !acked[5] || !acked[2]; {
		for _, a := range conn.acks() {
			acked[a.GetSeq()] = true
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs []error
	for _, err := range sub.Messages(ctx) {
		errs = append(errs, err)
	}
	if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		t.Errorf("a context's end: %v", errs)
	}
	go func() { _ = s.Close(context.Background()) }()
	for d, err := range sub.Messages(t.Context()) {
		t.Errorf("%v, %v", d, err)
	}
	other := start(t, newTestSubscriber(t, SubscriberConfig{Addrs: []string{nobody}}), "room/b", fine)
	for _, err := range other.Messages(t.Context()) {
		if !errors.As(err, new(*ConfigError)) {
			t.Errorf("a loop over a subscription with a handler: %v", err)
		}
	}
}

// Drain has everything handled and settled that had come, and nothing that comes meanwhile.
func TestDraining(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		held := make(keeper, 10)
		c.start(s, "room/a", held.handle, WithManualAck())
		c.subscribed(7, 0, true)
		got := newSeqLog()
		c.start(s, "room/b", func(_ context.Context, d *Delivery) error {
			pass(time.Second)
			got.add(d.Seq)
			return nil
		}, WithAck())
		c.subscribed(7, 0, true)
		c.message("room/a", 1, 0)
		for seq := range uint64(3) {
			c.message("room/b", seq+1, 0)
		}
		synctest.Wait()
		began, done := time.Now(), make(chan error, 1)
		go func() { done <- s.Drain(in(t, time.Hour)) }()
		synctest.Wait()
		c.message("room/b", 4, 0)
		d := held.next(t, 1)
		go func() {
			pass(10 * time.Second)
			_ = d.Ack()
		}()
		c.ackedThrough("room/b", 3)
		c.ackedThrough("room/a", 1)
		c.close()
		if err := <-done; err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		got.wait(t, 1, 2, 3)
	})
}

// Drain ends with its context, too, and says so; a handler can't wait for itself.
func TestDrainingInVain(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		held, said := make(keeper, 1), make(chan error, 1)
		c.start(s, "room/a", func(ctx context.Context, d *Delivery) error {
			said <- s.Drain(ctx)
			return held.handle(ctx, d)
		}, WithManualAck())
		c.subscribed(7, 0, true)
		c.message("room/a", 1, 0)
		if err := <-said; !errors.Is(err, errDrainByHandler) {
			t.Errorf("in a handler: %v", err)
		}
		d := held.next(t, 1)
		began := time.Now()
		if err := s.Drain(in(t, time.Minute)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in vain: %v", err)
		}
		if d := time.Since(began); d < time.Minute || d > time.Minute+2*closeWithin {
			t.Errorf("after %v", d)
		}
		if err := d.Ack(); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A loop ends with its context, whether something waits or not, and what waits is had by the next
// one.
func TestALoopEndsWithItsContext(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		pulled := make(chan *Subscription, 1)
		go func() {
			sub, _ := s.Pull(context.Background(), "room/a", WithAck())
			pulled <- sub
		}()
		c.subscribed(7, 0, true)
		sub := <-pulled
		over, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		for d, err := range sub.Messages(over) {
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%v, %v after %v", d, err, time.Since(began))
			}
		}
		for seq := range uint64(3) {
			c.message("room/a", seq+1, 0)
		}
		synctest.Wait()
		var had []uint64
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, x := range []struct {
			ctx context.Context
			err error
		}{{ctx, context.Canceled}, {over, context.DeadlineExceeded}} {
			var err error
			for d, e := range sub.Messages(x.ctx) {
				if err = e; err == nil {
					had = append(had, d.Seq)
					cancel()
				}
			}
			if !errors.Is(err, x.err) {
				t.Errorf("ended with %v, want %v", err, x.err)
			}
		}
		for d, err := range sub.Messages(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if had = append(had, d.Seq); d.Seq == 3 {
				break
			}
		}
		if !slices.Equal(had, []uint64{1, 2, 3}) {
			t.Errorf("had %v", had)
		}
		c.ackedThrough("room/a", 3)
	})
}

// A loop ends with the reason that the mesh refused its Subscriber for.
func TestALoopEndsWithTheRefusal(t *testing.T) {
	for _, waits := range []bool{false, true} {
		inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
			inside, leave := make(chan struct{}, 1), make(chan struct{})
			c.start(s, "room/b", func(context.Context, *Delivery) error { // the end waits for it
				inside <- struct{}{}
				<-leave
				return nil
			})
			c.subscribed(7, 0, true)
			pulled := make(chan *Subscription, 1)
			go func() {
				sub, _ := s.Pull(context.Background(), "room/a")
				pulled <- sub
			}()
			c.subscribed(7, 0, true)
			sub := <-pulled
			c.message("room/a", 1, 0)
			c.message("room/b", 1, 0)
			<-inside
			said := make(chan error, 1)
			go func() {
				var err error
				for _, e := range sub.Messages(context.Background()) {
					if err = e; err == nil && waits {
						<-leave
					}
				}
				said <- err
			}()
			synctest.Wait()
			c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_FORBIDDEN})
			synctest.Wait()
			close(leave)
			if err := <-said; !errors.Is(err, ErrForbidden) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}
