package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Close waits for the handler that runs, as long as its context: then the handler's ends, too, and
// Close returns whatever the handler does. Nothing that waited is handed over.
func TestCloseWaitsForTheHandler(t *testing.T) {
	const most = 3 * time.Second
	for _, x := range []struct {
		name    string
		h       func(ctx context.Context)
		returns time.Duration
	}{
		{"a handler that takes a second", func(context.Context) { pass(time.Second) }, time.Second},
		{"a handler that ends with its context", func(ctx context.Context) { <-ctx.Done() }, most},
		{"a handler that takes its time", func(context.Context) { pass(time.Minute) }, most},
		{"no handler", nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}})
			var handled atomic.Int32
			start(t, s, "talk", func(ctx context.Context, _ *Delivery) error {
				handled.Add(1)
				x.h(ctx)
				return nil
			})
			c := e.welcomeWith(seldom)
			c.subscribed(0, 0, true)
			if x.h != nil {
				c.message("talk", 0, 0)
				c.message("talk", 0, 0)
				synctest.Wait()
			}
			began := time.Now()
			err := s.Close(in(t, most))
			if late := errors.Is(err, context.DeadlineExceeded); late != (x.returns == most) || err != nil && !late {
				t.Errorf("%s: %v", x.name, err)
			}
			if d := time.Since(began); d != x.returns || handled.Load() > 1 {
				t.Errorf("%s: closed after %v, %d messages handled", x.name, d, handled.Load())
			}
			if x.h != nil {
				pass(time.Hour)
			}
			if _, err = s.Start("x", fine); !errors.Is(err, ErrClosed) || s.Err() != nil {
				t.Errorf("%s: %v, %v", x.name, err, s.Err())
			}
		})
	}
}

// An edge that takes no bytes can't keep Close from returning.
func TestCloseWithAnEdgeThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, AckDelay: time.Hour})
		start(t, s, "room/a", fine, WithAck())
		c := e.welcomeWith(seldom)
		c.subscribed(7, 0, true)
		c.message("room/a", 1, 0)
		synctest.Wait()
		began := time.Now()
		_ = s.Close(in(t, 3*time.Second))
		if d := time.Since(began); d != 4*time.Second {
			t.Errorf("closed after %v", d)
		}
		<-s.Done()
	})
}

// halfConn is a pipe whose one way can be closed, as of TCP.
type halfConn struct {
	net.Conn
	shut func()
	fail bool
}

func (c halfConn) CloseWrite() error {
	if c.fail {
		return errors.New("it can't")
	}
	c.shut()
	return nil
}

// Who hangs up says that nothing more comes, and reads on for a moment: to close over bytes that
// were not read would reset the connection, and take the last ACKs along.
func TestHangingUp(t *testing.T) {
	for name, x := range map[string]struct {
		fail  bool
		waits time.Duration
	}{"": {false, 250 * time.Millisecond}, "of what can't be closed by half": {true, 0}} {
		synctest.Test(t, func(t *testing.T) {
			e, shut := newPipeEdge(t), make(chan struct{})
			s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{"edge"}, AckDelay: time.Hour, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := e.dial(ctx, addr)
				return halfConn{conn, func() { close(shut) }, x.fail}, err
			}})
			start(t, s, "room/a", fine, WithAck())
			c := e.welcomeWith(seldom)
			c.subscribed(7, 0, true)
			c.message("room/a", 1, 0)
			synctest.Wait()
			closed := make(chan time.Time, 1)
			began := time.Now()
			go func() {
				_ = s.Close(in(t, 10*time.Second))
				closed <- time.Now()
			}()
			c.ackedThrough("room/a", 1)
			if !x.fail {
				<-shut
				for range 3 {
					c.message("room/a", 2, 0) // the edge does not know yet
				}
			}
			if d := (<-closed).Sub(began); d != x.waits {
				t.Errorf("hanging up %s took %v", name, d)
			}
		})
	}
}

// A Close that comes between a connection and its first frame ends that connection.
func TestCloseBeforeAConnectionIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		conn, _ := e.dial(t.Context(), "")
		s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{"edge"}, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		_ = s.Close(in(t, 10*time.Second))
		l := link.New(conn)
		l.SetWelcome(seldom)
		served := make(chan error, 1)
		go func() { served <- s.serve(l) }()
		if err := <-served; err == nil {
			t.Error("it went on")
		}
	})
}

// Every connection is told of, with all that its edge said, and every end that nobody asked for,
// with its reason.
func TestConnectionsAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		made, ended := make(chan Connection, 10), make(chan error, 10)
		s := newTestSubscriber(t, SubscriberConfig{
			Dial: e.dial, Addrs: []string{"edge"}, OnConnect: func(c Connection) { made <- c }, OnDisconnect: func(err error) { ended <- err },
		})
		for i := range 2 {
			c, hello := e.accept()
			if i == 1 && hello.GetClientId() != "made up" {
				t.Errorf("it came back as %q: the name that an edge gave stays", hello.GetClientId())
			}
			c.send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{ConnectionId: 5, Edge: "edge-a", ClientId: "made up", User: "ann", Resumed: true, Features: []string{"f"}})
			want := Connection{ID: 5, Edge: "edge-a", ClientID: "made up", User: "ann", Resumed: true, Features: []string{"f"}}
			if got := <-made; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("told of %+v, want %+v", got, want)
			}
			if i == 0 {
				c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_IDLE_TIMEOUT})
				if err := <-ended; CodeOf(err) != CodeIdleTimeout {
					t.Errorf("ended with %v", err)
				}
			}
		}
		_ = s.Close(in(t, 10*time.Second))
		if len(ended) > 0 {
			t.Errorf("Close is told as %v", <-ended)
		}
	})
}

// inSubs runs a test in a bubble, with a subscriber that is connected.
func inSubs(t *testing.T, f func(t *testing.T, s *Subscriber, e *fakeEdge, c *edgeConn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, MinBackoff: 100 * time.Millisecond})
		f(t, s, e, e.welcomeWith(seldom))
	})
}

// start adds a subscription on this connection, whose Subscribe is read next.
func (c *edgeConn) start(s *Subscriber, filter string, h Handler, opts ...Option) *Subscription {
	c.t.Helper()
	started := make(chan *Subscription, 1)
	go func() {
		sub, _ := s.Start(filter, h, opts...) // nil where it fails
		started <- sub
	}()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.br.Peek(1); err != nil { // which lets the write return
		c.t.Fatal(err)
	}
	return <-started
}

// A subscription that is refused for now, or taken away for now, is asked for again not before the
// mesh said, on the connection that it was refused on: another one asks by itself, and one that is
// over is not asked for.
func TestRefusedSubscriptionsByTheClock(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, e *fakeEdge, c *edgeConn) {
		sub := c.start(s, "room/a", fine)
		m := c.subscribe()
		refuse := func(after time.Duration, taken bool) {
			if taken {
				c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: m.GetId(), Code: wirev1.Code_CODE_OVERLOADED})
				return
			}
			c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, Ref: m.GetId(), RetryAfterMs: uint32(after.Milliseconds())})
		}
		for _, x := range []struct {
			after    time.Duration
			taken    bool
			from, to time.Duration // later each time
		}{{3 * time.Second, false, 3 * time.Second, 3750 * time.Millisecond}, {0, false, 100 * time.Millisecond, 200 * time.Millisecond}, {0, true, 200 * time.Millisecond, 400 * time.Millisecond}} {
			began := time.Now()
			refuse(x.after, x.taken)
			m = c.subscribe()
			if after := time.Since(began); after < x.from || after > x.to {
				t.Errorf("%+v: asked again after %v", x, after)
			}
		}
		refuse(time.Second, false)
		synctest.Wait()
		c.close()
		c = e.welcomeWith(seldom)
		m = c.subscribe()
		c.quiet(time.Minute) // and once
		refuse(time.Second, false)
		if err := sub.Unsubscribe(t.Context()); err != nil {
			t.Error(err)
		}
		c.quiet(time.Minute)
		if !sub.ending() || sub.Err() == nil && sub.Ready(t.Context()) == nil {
			t.Error("it goes on")
		}
	})
}

// A subscription that an edge takes away for good is over, with the reason; one that nobody waits
// for any more, or that was ended, is not asked for again.
func TestSubscriptionsThatAreOver(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, e *fakeEdge, c *edgeConn) {
		taken := c.start(s, "room/a", fine)
		id := c.subscribed(7, 0, true).GetId()
		c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id, Code: wirev1.Code_CODE_FORBIDDEN, Reason: "not any more"})
		<-taken.Done()
		if CodeOf(taken.Err()) != CodeForbidden || taken.Err().Error() != "pushmesh: FORBIDDEN: not any more" {
			t.Error(taken.Err())
		}
		c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: 999})
		c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: 999})
		c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: 999, Code: wirev1.Code_CODE_FORBIDDEN})

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := failed(func(context.Context) error { _, err := s.Subscribe(ctx, "room/b", fine); return err })
		c.subscribe()
		if err := <-late; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})

		leaving := c.start(s, "room/c", fine)
		c.subscribed(7, 0, true)
		gone := failed(leaving.Unsubscribe)
		c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
		c.close() // without an answer: there is nothing to confirm any more
		if err := <-gone; err != nil || leaving.Err() != nil {
			t.Error(err, leaving.Err())
		}
		synctest.Wait()
		quick := start(t, s, "room/d", fine)
		if err := errors.Join(quick.Unsubscribe(t.Context()), quick.Unsubscribe(t.Context())); err != nil {
			t.Error(err)
		}
		if !errors.Is(quick.Ready(t.Context()), ErrClosed) {
			t.Error("what was never subscribed is ready")
		}
		c = e.welcomeWith(seldom)
		c.quiet(time.Minute)
		stays := c.start(s, "room/e", fine)
		c.subscribed(7, 0, true)
		short, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		unanswered := failed(func(context.Context) error { return stays.Unsubscribe(short) })
		c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
		if err := <-unanswered; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		// It was being ended when its edge refused it: it does not come back.
		c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, Ref: stays.request.GetId(), RetryAfterMs: 10})
		<-stays.Done()
		c.quiet(time.Minute)
		waiting := c.start(s, "room/f", fine)
		c.subscribe()
		going := c.start(s, "room/g", fine)
		c.subscribed(7, 0, true)
		if err := going.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		_ = s.Close(in(t, 10*time.Second))
		if waiting.Err() == nil || !errors.Is(waiting.Ready(t.Context()), ErrClosed) || going.Err() != nil || !going.ending() {
			t.Errorf("closed: %v, %v", waiting.Err(), going.Err())
		}
	})
}

// Ids of requests are never 0, and none has the id of another that waits.
func TestIDsOfRequests(t *testing.T) {
	s := &Subscriber{
		lastID: math.MaxUint32 - 1, subs: map[uint32]*Subscription{1: {}}, rooms: []room{{Room: &checks{asks: map[uint32]chan error{2: make(chan error), 4: make(chan error)}}}},
	}
	var got []uint32
	for range 4 {
		got = append(got, s.nextID())
	}
	if want := []uint32{math.MaxUint32, 3, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("ids %v, want %v", got, want)
	}
}

// A handler that keeps a durable message through a break has its subscription asked for again once
// it has returned, from what it made of it; others are not kept waiting.
func TestABreakDuringAHandler(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		inSubs(t, func(t *testing.T, s *Subscriber, e *fakeEdge, c *edgeConn) {
			leave := make(chan struct{})
			held := c.start(s, "room/a", func(context.Context, *Delivery) error {
				<-leave
				return nil
			}, WithAck())
			c.subscribed(7, 0, true)
			c.start(s, "room/b", fine, WithAck())
			c.subscribed(7, 0, true)
			c.message("room/a", 1, 0)
			c.message("room/a", 2, 0)
			synctest.Wait()
			c.close()
			c = e.welcomeWith(seldom)
			if m := c.subscribe(); m.GetFilter() != "room/b" {
				t.Fatalf("asked for %s", m.GetFilter())
			}
			c.quiet(10 * time.Second)
			if leaves {
				if err := held.Unsubscribe(t.Context()); err != nil {
					t.Error(err)
				}
			}
			close(leave)
			if !leaves {
				if m := c.subscribe(); m.GetFilter() != "room/a" || len(m.GetPositions()) != 1 || m.GetPositions()[0].GetSeq() != 1 {
					t.Errorf("asked for %v", m)
				}
			}
			// once, and without an ACK of what this connection has not delivered
			c.quiet(time.Minute)
		})
	}
}

// An ephemeral message that a handler has, or that waits for one, when the connection breaks, holds
// nothing up and is not lost.
func TestEphemeralMessagesThroughABreak(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, e *fakeEdge, c *edgeConn) {
		leave, handled := make(chan struct{}), make(chan struct{}, 10)
		c.start(s, "talk", func(context.Context, *Delivery) error {
			<-leave
			handled <- struct{}{}
			return nil
		})
		c.subscribed(0, 0, true)
		c.message("talk", 0, 0)
		c.message("talk", 0, 0)
		synctest.Wait()
		c.close()
		c = e.welcomeWith(seldom)
		c.subscribed(0, 0, true)
		close(leave)
		<-handled
		<-handled
	})
}

// What an edge allows to be unanswered is kept to; one that does not say allows 16. Whoever waits
// for room stops waiting with its context.
func TestThePublishWindow(t *testing.T) {
	for said, want := range map[uint32]int{0: 16, 1: 1, 3: 3} {
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}})
			c := e.welcomeWith(&wirev1.Welcome{Version: 1, HeartbeatMs: seldom.GetHeartbeatMs(), PublishWindow: said})
			done := make(chan error, 100)
			for range want + 2 {
				go func() {
					_, err := s.Publish(t.Context(), ClientMessage{Topic: "a"})
					done <- err
				}()
			}
			var first *wirev1.Publish
			for i := range want {
				if m := c.publish(); i == 0 {
					first = m
				}
			}
			c.quiet(time.Minute)
			c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: first.GetId(), Seq: 1})
			if err := <-done; err != nil {
				t.Error(err)
			}
			c.publish()
			c.quiet(time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if _, err := s.Publish(ctx, ClientMessage{Topic: "a"}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Error(err)
			}
			// answered already
			c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: first.GetId(), Code: wirev1.Code_CODE_FORBIDDEN})
			c.quiet(time.Second)
			_ = s.Close(in(t, 10*time.Second))
			for range want + 1 {
				if err := <-done; err == nil {
					t.Error("answered by nobody")
				}
			}
			if _, err := s.Publish(t.Context(), ClientMessage{Topic: "a"}); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// Whoever waits for the answer of an edge that has the message stops waiting with its context, and
// leaves room.
func TestAPublishGivenUp(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := failed(func(context.Context) error { _, err := s.Publish(ctx, ClientMessage{Topic: "a"}); return err })
		m := c.publish()
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: m.GetId(), Seq: 1})
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.owed() {
			t.Error("a publish waits")
		}
	})
}

// Messages of every size arrive whole, around the reader's buffer too, and in one that runs its
// handlers itself.
func TestMessagesOfEverySize(t *testing.T) {
	for _, inline := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, Inline: inline})
			got := make(chan []byte, 1)
			start(t, s, "talk", func(_ context.Context, d *Delivery) error {
				got <- slices.Clone(d.Payload)
				return nil
			})
			c := e.welcomeWith(seldom)
			c.subscribed(0, 0, true)
			for n := range 200 {
				if n >= 20 {
					n += link.ReadBuffer - 120
				}
				want := make([]byte, n)
				for i := range want {
					want[i] = byte(i * n)
				}
				c.send(wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "talk", Payload: want})
				if have := <-got; !slices.Equal(have, want) {
					t.Fatalf("a message of %d bytes arrived as one of %d", len(want), len(have))
				}
			}
		})
	}
}

func failed(f func(context.Context) error) chan error {
	done := make(chan error, 1)
	go func() { done <- f(context.Background()) }()
	return done
}
