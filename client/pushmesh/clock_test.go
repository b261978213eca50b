package pushmesh

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// What the SDK does by the clock. These tests run in bubbles, whose clock stands still while
// anybody computes: what they say of times is exact.

// newPipeEdge is a fake edge at the other end of pipes, which dial makes. A write waits until the
// other end reads.
func newPipeEdge(t *testing.T) *fakeEdge {
	return &fakeEdge{t: t, conns: make(chan *edgeConn, 100)}
}

func (e *fakeEdge) dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	e.conns <- &edgeConn{t: e.t, conn: far, br: bufio.NewReader(far)}
	return near, nil
}

// nobodyDials has a moment without a connection to this edge.
func (e *fakeEdge) nobodyDials() {
	e.t.Helper()
	synctest.Wait()
	if n := len(e.conns); n > 0 {
		e.t.Fatalf("%d connections too early", n)
	}
}

// pass lets the time of a bubble pass.
func pass(d time.Duration) { <-time.After(d) }

// seldom asks for Pings every six weeks.
var seldom = &wirev1.Welcome{Version: 1, HeartbeatMs: 4_000_000_000}

// quiet fails where a frame comes within a time.
func (c *edgeConn) quiet(d time.Duration) {
	c.t.Helper()
	began := time.Now()
	_ = c.conn.SetReadDeadline(began.Add(d))
	for {
		ft, _, err := wire.Read(c.br, nil, wire.MaxBody)
		if err != nil {
			return
		}
		if ft != wirev1.FrameType_FRAME_TYPE_PING {
			c.t.Fatalf("after %v there came a frame of type %v", time.Since(began), ft)
		}
	}
}

// gone reads until the connection ends, and says when that was.
func (c *edgeConn) gone() time.Time {
	_ = c.conn.SetReadDeadline(time.Time{})
	for {
		if _, _, err := wire.Read(c.br, nil, wire.MaxBody); err != nil {
			return time.Now()
		}
	}
}

// welcomeWith accepts a connection and answers with that Welcome.
func (e *fakeEdge) welcomeWith(w *wirev1.Welcome) *edgeConn {
	e.t.Helper()
	c, _ := e.accept()
	c.send(wirev1.FrameType_FRAME_TYPE_WELCOME, w)
	return c
}

// An edge is asked once in every heartbeat whether it is there, and left after two and a half of
// them without a word, at the next question: a client that waits longer is deaf, one that waits
// less leaves edges that are well.
func TestASilentEdgeIsLeftInTime(t *testing.T) {
	for said, beat := range map[uint32]time.Duration{0: 30 * time.Second, 1: time.Second, 10_000: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}})
			c := e.welcomeWith(&wirev1.Welcome{Version: 1, HeartbeatMs: said})
			last := time.Now()
			for i := range 20 {
				p := c.ping()
				if d := time.Since(last); i == 0 && d >= beat || i > 0 && d != beat {
					t.Fatalf("Ping %d came after %v, the heartbeat is %v", i, d, beat)
				}
				last = time.Now()
				c.send(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{SentAt: p.GetSentAt()})
			}
			if d := c.gone().Sub(last); d != 3*beat {
				t.Errorf("left after %v of silence, the heartbeat is %v", d, beat)
			}
			e.welcome()
		})
	}
}

// Connections that are made together do not ping together: an edge with a hundred thousand of them
// would have them all at once for ever.
func TestFirstPingsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		seen := map[time.Duration]bool{}
		for range 20 {
			s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}})
			c, began := e.welcome(), time.Now()
			c.ping()
			seen[time.Since(began)] = true
			c.close()
			_ = s.Close(in(t, 10*time.Second))
		}
		if len(seen) < 10 {
			t.Errorf("20 first Pings at %d times", len(seen))
		}
	})
}

// Whose handler works for an hour, on the goroutine that reads, has heard nothing meanwhile, and
// stays connected.
func TestABusyHandlerIsNoSilentEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, Inline: true})
		start(t, s, "room/a", func(context.Context, *Delivery) error {
			pass(time.Hour)
			return nil
		}, WithAck())
		c := e.welcome()
		c.subscribed(7, 0, true)
		c.message("room/a", 1, 0)
		c.ping()
		_ = c.conn.SetReadDeadline(time.Time{})
		c.conn = patient{c.conn}
		c.ackedThrough("room/a", 1)
		if st := s.Stats(); st.Connects != 1 || !st.Connected {
			t.Errorf("stats %+v", st)
		}
	})
}

// patient is a connection whose reads wait for ever.
type patient struct{ net.Conn }

func (patient) SetReadDeadline(time.Time) error { return nil }

// An edge that sends, and takes no byte, is left as a silent one is.
func TestAnEdgeThatTakesNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}})
		c, began := e.welcome(), time.Now()
		pong, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			pass(time.Second)
			_, err = c.conn.Write(pong)
		}
		if d := time.Since(began); d < 75*time.Second || d > 4*30*time.Second+time.Second {
			t.Errorf("left after %v, the heartbeat is 30 s", d)
		}
	})
}

// The round trip is what it took, and nonsense of an edge is none.
func TestRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}})
		c := e.welcome()
		p := c.ping()
		for _, at := range []uint64{p.GetSentAt() + uint64(time.Hour), p.GetSentAt() - uint64(time.Hour)} {
			c.send(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{SentAt: at})
			synctest.Wait()
			if rtt := s.Stats().RTT; rtt != 0 {
				t.Errorf("a Pong for a Ping that was never sent is a round trip of %v", rtt)
			}
		}
		c.send(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{SentAt: p.GetSentAt()})
		synctest.Wait()
		if rtt := s.Stats().RTT; rtt != time.Microsecond {
			t.Errorf("a round trip of no time is %v, want the least that is one", rtt)
		}
		p = c.ping()
		pass(40 * time.Millisecond)
		c.send(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{SentAt: p.GetSentAt()})
		synctest.Wait()
		if st := s.Stats(); st.RTT != 40*time.Millisecond || !st.Connected {
			t.Errorf("stats %+v, want a round trip of 40 ms", st)
		}
		c.close()
		synctest.Wait()
		if st := s.Stats(); st.Connected || st.RTT != 0 {
			t.Errorf("stats without a connection %+v", st)
		}
	})
}

// dialler notes when it was asked, and fails while the edge is down.
type dialler struct {
	e    *fakeEdge
	down atomic.Bool
	mu   sync.Mutex
	at   []time.Time
}

func (d *dialler) dial(ctx context.Context, addr string) (net.Conn, error) {
	d.mu.Lock()
	d.at = append(d.at, time.Now())
	d.mu.Unlock()
	if d.down.Load() {
		return nil, errors.New("down")
	}
	return d.e.dial(ctx, addr)
}

// since is what was dialled from a time on, as what passed between.
func (d *dialler) since(began time.Time) (waits []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range d.at {
		if !at.Before(began) {
			waits = append(waits, at.Sub(began))
			began = at
		}
	}
	return waits
}

// doubling checks waits from the first on: half to all of what doubles from low to high.
func doubling(t *testing.T, waits []time.Duration, low, high time.Duration) {
	t.Helper()
	for i, d := range waits {
		if most := min(low<<min(i, 30), high); d < most/2 || d > most {
			t.Fatalf("waited %v, the one at %d not half of to all of %v", waits, i, most)
		}
	}
}

// Rounds in vain are further and further apart, up to a bound. A connection that has lived for 2 s,
// and none that ended before, has the waits begin anew: a mesh that is away is not hammered at, and
// one that is back is not stayed away from.
func TestWaitsBetweenRounds(t *testing.T) {
	const low, high = 100 * time.Millisecond, 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		d := &dialler{e: newPipeEdge(t)}
		d.down.Store(true)
		began := time.Now()
		newTestSubscriber(t, SubscriberConfig{Dial: d.dial, Addrs: []string{"edge"}, MinBackoff: low, MaxBackoff: high})
		pass(time.Minute)
		waits := d.since(began)
		if waits[0] != 0 || len(waits) < 20 {
			t.Fatalf("waited %v", waits)
		}
		doubling(t, waits[1:], low, high)
		for _, lived := range []time.Duration{steady - 1, steady} {
			d.down.Store(false)
			c := d.e.welcome()
			pass(lived)
			d.down.Store(true)
			ended := time.Now()
			c.close()
			pass(time.Minute)
			if lived < steady {
				doubling(t, d.since(ended), high, high)
			} else {
				doubling(t, d.since(ended), low, high)
			}
		}
	})
}

// What a refusal says of when to come back: one that names a time is kept to, wherever else there
// may be an edge; one of an edge that has too much to do is that edge's alone, and one without a
// time is no reason to wait while there is another edge.
func TestARefusalsTime(t *testing.T) {
	for _, x := range []struct {
		refusal     *wirev1.Error
		least, most time.Duration
	}{
		{&wirev1.Error{Code: wirev1.Code_CODE_RATE_LIMITED, RetryAfterMs: 10_000}, 10 * time.Second, 12500 * time.Millisecond},
		{&wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: 10_000}, 0, 0},
		{&wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE}, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"a", "b"}, MinBackoff: time.Millisecond})
			c, _ := e.accept()
			began := time.Now()
			c.send(wirev1.FrameType_FRAME_TYPE_ERROR, x.refusal)
			e.welcome()
			if d := time.Since(began); d < x.least || d > x.most {
				t.Errorf("after %v it is back in %v", x.refusal, d)
			}
		})
	}
}
