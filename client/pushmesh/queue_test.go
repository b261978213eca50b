package pushmesh

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// room is how much the reader takes in that no handler has yet: at most a window's messages and
// some, in bytes too; while somebody waits for an answer behind them, much more. One message has
// always room.
func TestTheRoomBeforeHandlers(t *testing.T) {
	const window = 10
	for _, x := range []struct {
		n, bytes, size int
		owed, crowded  bool
	}{
		{0, 0, 2 * maxAsideBytes, false, false},
		{window + 63, 0, 1, false, false},
		{window + 64, 0, 1, false, true},
		{window + 64, 0, 1, true, false},
		{1, maxQueueBytes - 1, 1, false, false},
		{1, maxQueueBytes, 1, false, true},
		{1, maxQueueBytes, 1, true, false},
		{1, maxAsideBytes - 1, 1, true, false},
		{1, maxAsideBytes, 1, true, true},
		{maxAside - 1, 0, 1, true, false},
		{maxAside, 0, 1, true, true},
		{maxAside, 0, 1, false, true},
	} {
		s := &Subscriber{cfg: SubscriberConfig{ReceiveWindow: window}}
		for i := range x.n {
			s.queue.Push(item{size: x.bytes * (1 - min(i, 1))}) // the first one has them all
		}
		if x.owed {
			s.rooms = []room{{Room: &checks{asks: map[uint32]chan error{1: nil}}}}
		}
		if got := s.crowded(x.size); got != x.crowded {
			t.Errorf("%d items, %d bytes and one of %d, owed %v: crowded %v", x.n, x.bytes, x.size, x.owed, got)
		}
	}
}

// What is owed an answer: a request of a room, a subscription that is asked for or being ended. One
// that goes on is not.
func TestWhoIsOwedAnAnswer(t *testing.T) {
	for name, x := range map[string]struct {
		s    *Subscriber
		owed bool
	}{
		"nobody":              {&Subscriber{}, false},
		"a request":           {&Subscriber{rooms: []room{{Room: &checks{asks: map[uint32]chan error{1: nil}}}}}, true},
		"a Subscribe":         {&Subscriber{subs: map[uint32]*Subscription{1: {sent: true}}}, true},
		"a Subscribe not yet": {&Subscriber{subs: map[uint32]*Subscription{1: {}}}, false},
		"what goes on":        {&Subscriber{subs: map[uint32]*Subscription{1: {sent: true, active: true}}}, false},
		"an Unsubscribe":      {&Subscriber{subs: map[uint32]*Subscription{1: {sent: true, active: true, unasked: make(chan struct{})}}}, true},
	} {
		if got := x.s.owed(); got != x.owed {
			t.Errorf("%s: owed %v", name, got)
		}
	}
}

// flood writes n messages of topic talk with so many bytes of payload; written counts those that
// the client has read.
func (c *edgeConn) flood(n, size int) (written *atomic.Int32, ended chan struct{}) {
	c.t.Helper()
	frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "talk", Payload: make([]byte, size)})
	if err != nil {
		c.t.Fatal(err)
	}
	written, ended = &atomic.Int32{}, make(chan struct{})
	go func() {
		defer close(ended)
		for range n {
			if _, err := c.conn.Write(frame); err != nil {
				return
			}
			written.Add(1)
		}
	}()
	return written, ended
}

// A slow handler holds the connection up after a window's messages and some, or 8 MiB of them. It
// is read on from when half a window waits, so that handlers do not run dry; and nobody gives up on
// a handler that takes its time while nobody waits for an answer.
func TestASlowHandlerHoldsTheEdgeUp(t *testing.T) {
	for size, held := range map[int]int{5000: 1 + 68 + 1, 1 << 20: 1 + 7 + 1} {
		// in the handler, before it, and in the reader's hands
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, ReceiveWindow: 4})
			inside, leave := make(chan struct{}), make(chan struct{})
			start(t, s, "talk", func(context.Context, *Delivery) error {
				inside <- struct{}{}
				<-leave
				return nil
			})
			c := e.welcomeWith(seldom)
			c.subscribed(0, 0, true)
			written, _ := c.flood(held+10, size)
			for i := range held - 1 {
				<-inside
				synctest.Wait()
				waiting := held - 2 - i
				if n := int(written.Load()); waiting > 2 && n != held || waiting == 2 && n <= held {
					t.Fatalf("%d messages of %d bytes were read with %d waiting", n, size, waiting)
				}
				if i == 0 {
					pass(time.Hour + time.Second)
				}
				leave <- struct{}{}
				if waiting == 2 {
					break
				}
			}
			for range 11 + 2 {
				<-inside
				leave <- struct{}{}
			}
			if st := s.Stats(); st.Connects != 1 || !st.Connected {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

// What is kept aside for an answer has a bound. At it the connection is given up once a handler has
// had one message for 5 s, which answers everybody.
func TestAnAnswerBehindTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		ended := make(chan error, 10)
		s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, ReceiveWindow: 4, OnDisconnect: func(err error) { ended <- err }})
		asked := make(chan error, 1)
		start(t, s, "talk", func(context.Context, *Delivery) error {
			_, err := s.Publish(context.Background(), ClientMessage{Topic: "room/b"})
			select {
			case asked <- err:
			default:
			}
			return nil
		})
		c := e.welcomeWith(seldom)
		c.subscribed(0, 0, true)
		written, over := c.flood(200, 1<<20)
		c.publish()
		synctest.Wait()
		if n := written.Load(); n != 1+63+1 {
			t.Errorf("%d messages of 1 MiB are kept", n)
		}
		began := time.Now()
		<-over
		if d := time.Since(began); d != handlerPatience {
			t.Errorf("given up after %v", d)
		}
		var unknown *Error
		if err := <-asked; !errors.As(err, &unknown) || !unknown.Unknown {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, errBacklog) {
			t.Error(err)
		}
	})
}

// Handlers that get on, if slowly, are waited for, however long it takes them to come to an answer.
func TestHandlersThatGetOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, ReceiveWindow: 4})
		slow := 0
		start(t, s, "talk", func(context.Context, *Delivery) error {
			if slow++; slow <= 20 {
				pass(handlerPatience - time.Second)
			}
			return nil
		})
		c := e.welcomeWith(seldom)
		c.subscribed(0, 0, true)
		done := publishing1(s, ClientMessage{Topic: "room/b"})
		m := c.publish()
		_, over := c.flood(80, 1<<20)
		<-over
		c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: m.GetId(), Seq: 1})
		if p := <-done; p.err != nil || s.Stats().Connects != 1 {
			t.Errorf("%v, stats %+v", p.err, s.Stats())
		}
	})
}
