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

// What the program's own functions, which the SDK calls, may call.

// calls are the calls that wait, of a Subscriber and of one of its subscriptions.
var calls = map[string]func(ctx context.Context, s *Subscriber, sub *Subscription) error{
	"Publish": func(ctx context.Context, s *Subscriber, _ *Subscription) error {
		_, err := s.Publish(ctx, ClientMessage{Topic: "room/b"})
		return err
	},
	"Subscribe": func(ctx context.Context, s *Subscriber, _ *Subscription) error {
		_, err := s.Subscribe(ctx, "room/c", fine)
		return err
	},
	"Pull": func(ctx context.Context, s *Subscriber, _ *Subscription) error {
		_, err := s.Pull(ctx, "room/c")
		return err
	},
	"RefreshToken": func(ctx context.Context, s *Subscriber, _ *Subscription) error {
		_, err := s.RefreshToken(ctx, "new")
		return err
	},
	"Connected": func(ctx context.Context, s *Subscriber, _ *Subscription) error { return s.Connected(ctx) },
	"History": func(ctx context.Context, s *Subscriber, _ *Subscription) error {
		n := 0
		for _, err := range s.History(ctx, "room/a", 2) {
			if n++; err != nil {
				return err
			}
		}
		if n == 0 {
			return errors.New("it has none")
		}
		return nil
	},
	"Drain":       func(ctx context.Context, s *Subscriber, _ *Subscription) error { return s.Drain(ctx) },
	"Close":       func(ctx context.Context, s *Subscriber, _ *Subscription) error { return s.Close(ctx) },
	"Ready":       func(ctx context.Context, _ *Subscriber, sub *Subscription) error { return sub.Ready(ctx) },
	"CaughtUp":    func(ctx context.Context, _ *Subscriber, sub *Subscription) error { return sub.CaughtUp(ctx) },
	"Unsubscribe": func(ctx context.Context, _ *Subscriber, sub *Subscription) error { return sub.Unsubscribe(ctx) },
	"a room's": func(ctx context.Context, s *Subscriber, _ *Subscription) error {
		done, err := host{s}.Waits(ctx)
		if err == nil {
			defer done()
			err = check(ctx, s, "seat")
		}
		return err
	},
}

// site calls a function once, from a place within a Subscriber.
type site struct {
	prepare func(cfg *SubscriberConfig, e *scriptEdge, here func())
	handler func(here func()) Handler // nil: the program takes messages
	opts    []Option
	refused []string // calls that are an error there
}

func handlerThat(here func()) Handler {
	return func(context.Context, *Delivery) error { here(); return nil }
}

func sites() map[string]site {
	plain := func(func()) Handler { return fine }
	await := []string{"CaughtUp", "Close", "Drain", "History"}
	answers := append([]string{"Publish", "Pull", "RefreshToken", "Subscribe", "Unsubscribe", "a room's"}, await...)
	begins := append([]string{"Ready"}, answers...)
	gapped := func(frames func(id uint32) []sent) func(cfg *SubscriberConfig, e *scriptEdge, here func()) {
		return func(cfg *SubscriberConfig, e *scriptEdge, here func()) {
			cfg.OnGap = func(Gap) { here() }
			e.placed = func(m *wirev1.Subscribe) []sent {
				e := scriptEdge{n: 3}
				if m.GetStart() == wirev1.Start_START_EARLIEST {
					return frames(m.GetId())
				}
				return e.subscribe(m)
			}
		}
	}
	return map[string]site{
		"a handler":           {handler: handlerThat, refused: await},
		"a handler by hand":   {handler: handlerThat, opts: []Option{WithManualAck()}, refused: await},
		"a handler of a crew": {handler: handlerThat, opts: []Option{WithConcurrency(1)}, refused: []string{"CaughtUp", "Close", "Drain"}},
		"an inline handler":   {prepare: func(cfg *SubscriberConfig, _ *scriptEdge, _ func()) { cfg.Inline = true }, handler: handlerThat, refused: answers},
		"a loop":              {refused: []string{"CaughtUp", "Drain"}},
		"OnGap": {prepare: gapped(func(id uint32) []sent {
			return []sent{
				{wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: id, Epoch: 7, Head: 9, Recovered: true}},
				{wirev1.FrameType_FRAME_TYPE_PROGRESS, &wirev1.Progress{Topic: "room/a", Epoch: 7, From: 1, To: 3, Code: wirev1.Code_CODE_RETENTION, Subs: []uint32{id}}},
			}
		}), handler: plain, refused: await},
		"OnGap, of Subscribed": {prepare: gapped(func(id uint32) []sent {
			return []sent{{wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: id, Epoch: 7, Head: 9, Missed: 2}}}
		}), handler: plain, refused: answers},
		"OnConnect": {prepare: func(cfg *SubscriberConfig, _ *scriptEdge, here func()) {
			cfg.OnConnect = func(Connection) { here() }
		}, handler: plain, refused: begins},
		"OnDisconnect": {prepare: func(cfg *SubscriberConfig, e *scriptEdge, here func()) {
			e.cuts = []int64{2000}
			cfg.OnDisconnect = func(error) { here() }
		}, handler: func(func()) Handler {
			// until the connection is cut
			return func(context.Context, *Delivery) error { return errors.New("again") }
		}, opts: []Option{WithAck()}, refused: slices.DeleteFunc(append([]string{"Connected"}, answers...), func(call string) bool { return call == "Unsubscribe" })},
		"Token": {prepare: func(cfg *SubscriberConfig, _ *scriptEdge, here func()) {
			cfg.Token = func(context.Context) (string, error) { here(); return "t", nil }
		}, handler: plain, refused: slices.DeleteFunc(append([]string{"Connected"}, begins...), func(call string) bool { return call == "Unsubscribe" })},
	}
}

// A call from within works, or is an error at once: none waits for who called it.
func TestCallsFromWithin(t *testing.T) {
	for at := range sites() {
		for name, call := range calls {
			t.Run(at+" calls "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					callFromWithin(t, sites()[at], name, call)
				})
			})
		}
	}
}

func callFromWithin(t *testing.T, at site, name string, call func(context.Context, *Subscriber, *Subscription) error) {
	e := &scriptEdge{n: 3}
	cfg := SubscriberConfig{Addrs: []string{"edge"}, Dial: e.dial}
	var s *Subscriber
	var sub *Subscription
	known, said := make(chan struct{}), make(chan error, 1)
	here := sync.OnceFunc(func() {
		<-known
		began := time.Now()
		err := call(in(t, time.Hour), s, sub)
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		said <- err
	})
	if at.prepare != nil {
		at.prepare(&cfg, e, here)
	}
	s = newTestSubscriber(t, cfg)
	var h Handler
	if at.handler != nil {
		h = at.handler(here)
	}
	var err error
	if sub, err = s.add("room/a", h, append([]Option{FromEarliest()}, at.opts...)); err != nil {
		t.Fatal(err)
	}
	close(known)
	if at.handler == nil {
		go func() {
			for _, err := range sub.Messages(context.Background()) {
				if err == nil {
					here()
				}
			}
		}()
	}
	err = <-said
	if refused := slices.Contains(at.refused, name); refused != (err != nil) {
		t.Errorf("refused %v: %v", refused, err)
	}
	switch name {
	case "Unsubscribe":
		<-sub.Done()
	case "Close":
		<-s.Done()
	}
	if err := s.Close(in(t, time.Hour)); err != nil {
		t.Error(err)
	}
}

// A handler of one Subscriber may wait for another one, whose handlers run.
func TestAHandlerWaitsForAnotherSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, leave := &scriptEdge{n: 3}, make(chan struct{})
		other := newTestSubscriber(t, SubscriberConfig{Addrs: []string{"edge"}, Dial: e.dial})
		theirs := start(t, other, "room/a", func(context.Context, *Delivery) error { <-leave; return nil }, FromEarliest())
		synctest.Wait()
		s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{"edge"}, Dial: e.dial})
		said := make(chan error, 10)
		start(t, s, "room/a", func(ctx context.Context, d *Delivery) error {
			if d.Seq == 1 {
				said <- theirs.CaughtUp(ctx)
				said <- other.Drain(ctx)
				said <- other.Close(ctx)
			}
			return nil
		}, FromEarliest())
		synctest.Wait()
		close(leave)
		for range 3 {
			if err := <-said; err != nil {
				t.Error(err)
			}
		}
	})
}

// What a handler has begun on another goroutine is not the handler.
func TestAGoroutineOfAHandlerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, said := &scriptEdge{n: 3}, make(chan error, 1)
		s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{"edge"}, Dial: e.dial})
		sub := start(t, s, "room/b", fine)
		start(t, s, "room/a", func(ctx context.Context, d *Delivery) error {
			if d.Seq == 1 {
				go func() {
					said <- errors.Join(sub.CaughtUp(ctx), s.Drain(context.Background()))
				}()
			}
			return nil
		}, FromEarliest())
		if err := <-said; err != nil {
			t.Error(err)
		}
	})
}

// Nothing of a subscription is handed over once its end was asked for, whoever asked.
func TestNothingAfterUnsubscribe(t *testing.T) {
	for name, opts := range map[string][]Option{"a handler": nil, "a crew": {WithConcurrency(1)}} {
		t.Run(name, func(t *testing.T) {
			inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
				got, leave := newSeqLog(), make(chan struct{})
				sub := c.start(s, "room/a", func(_ context.Context, d *Delivery) error {
					got.add(d.Seq)
					<-leave
					return nil
				}, append(opts, WithAck())...)
				id := c.subscribed(7, 0, true).GetId()
				c.message("room/a", 1, 0)
				c.message("room/a", 2, 0)
				synctest.Wait()
				gone := failed(sub.Unsubscribe)
				c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
				close(leave)
				c.message("room/a", 3, 0)
				c.quiet(time.Minute) // nor ACKed
				c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id})
				if err := <-gone; err != nil {
					t.Error(err)
				}
				got.wait(t, 1)
			})
		})
	}
}

// Drain does not wait for what nobody handles any more: messages of a subscription that has ended,
// be they held by the application or before a crew that was busy.
func TestDrainingAfterUnsubscribe(t *testing.T) {
	for name, x := range map[string]struct {
		opts []Option
		n    int
		busy bool
	}{
		"by hand":             {[]Option{WithManualAck()}, 2, false},
		"a crew that is busy": {[]Option{WithAck(), WithConcurrency(1)}, 5, true},
		"a crew that is full": {[]Option{WithAck(), WithConcurrency(1)}, 70, true},
		"and without ACKs":    {[]Option{WithConcurrency(1)}, 70, true},
	} {
		t.Run(name, func(t *testing.T) {
			inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
				s.cfg.ReceiveWindow = 1 // 65 wait for a crew, and the next one before it
				leave := make(chan struct{})
				sub := c.start(s, "room/a", func(context.Context, *Delivery) error {
					if x.busy {
						<-leave
					}
					return nil
				}, x.opts...)
				id := c.subscribed(7, 0, true).GetId()
				for seq := range uint64(x.n) {
					c.message("room/a", seq+1, 0, id)
				}
				synctest.Wait()
				gone := failed(sub.Unsubscribe)
				c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
				c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id})
				if err := <-gone; err != nil {
					t.Error(err)
				}
				close(leave)
				began := time.Now()
				drained := failed(func(context.Context) error { return s.Drain(in(t, time.Hour)) })
				c.gone()
				if err := <-drained; err != nil || time.Since(began) > time.Minute {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// Drain lets a crew finish what waits for it, however busy it is.
func TestDrainingABusyCrew(t *testing.T) {
	inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
		s.cfg.ReceiveWindow = 1
		got := newSeqLog()
		c.start(s, "room/a", func(_ context.Context, d *Delivery) error {
			pass(time.Second)
			got.add(d.Seq)
			return nil
		}, WithAck(), WithConcurrency(1))
		id := c.subscribed(7, 0, true).GetId()
		const n = 70
		var want []uint64
		for seq := range uint64(n) {
			c.message("room/a", seq+1, 0, id)
			want = append(want, seq+1)
		}
		synctest.Wait()
		began := time.Now()
		drained := failed(func(context.Context) error { return s.Drain(in(t, time.Hour)) })
		c.ackedThrough("room/a", n)
		c.gone()
		if err := <-drained; err != nil || time.Since(began) > (n+1)*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		got.wait(t, want...)
	})
}

// History comes beside a subscription whose messages nobody takes just now, as in the body of a
// loop over them, or by a crew that is busy.
func TestHistoryBesideAFullCrew(t *testing.T) {
	const n = 300
	history := func(s *Subscriber) error {
		for d, err := range s.History(context.Background(), "room/b", 1) {
			if err != nil || d.Seq != 5 {
				return fmt.Errorf("had %v, %w", d, err)
			}
		}
		return nil
	}
	for name, begin := range map[string]func(c *edgeConn, s *Subscriber, done chan error){
		"before the loop": func(c *edgeConn, s *Subscriber, done chan error) {
			pulled := failed(func(ctx context.Context) error { _, err := s.Pull(ctx, "talk"); return err })
			c.subscribed(0, 0, true)
			if err := <-pulled; err != nil {
				done <- err
				return
			}
			c.flood(n, 10)
			synctest.Wait()
			go func() { done <- history(s) }()
		},
		"in the loop": func(c *edgeConn, s *Subscriber, done chan error) {
			pulled := make(chan *Subscription, 1)
			go func() {
				sub, _ := s.Pull(context.Background(), "talk")
				pulled <- sub
			}()
			c.subscribed(0, 0, true)
			sub := <-pulled
			c.flood(n, 10)
			synctest.Wait()
			go func() {
				for _, err := range sub.Messages(context.Background()) {
					if err == nil {
						err = history(s)
					}
					done <- err
					return
				}
			}()
		},
		"by a crew": func(c *edgeConn, s *Subscriber, done chan error) {
			var once sync.Once
			c.start(s, "talk", func(context.Context, *Delivery) error {
				once.Do(func() {
					synctest.Wait()
					done <- history(s)
				})
				return nil
			}, WithConcurrency(1))
			c.subscribed(0, 0, true)
			c.flood(n, 10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inSubs(t, func(t *testing.T, s *Subscriber, _ *fakeEdge, c *edgeConn) {
				s.cfg.ReceiveWindow = 1
				done := make(chan error, 1)
				begin(c, s, done)
				id := c.subscribed(7, 5, true).GetId()
				c.message("room/b", 5, 0, id)
				c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{})
				c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id})
				if err := <-done; err != nil {
					t.Error(err)
				}
				c.close()
			})
		})
	}
}
