package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// scriptEdge is an edge in memory that answers everything. Its topic room/a holds a finished log of
// n messages; every other topic is empty. Connection i is cut once cuts[i] bytes have passed, in
// both directions together, in the middle of a frame or not; those after the last cut live on.
type scriptEdge struct {
	n    uint64
	cuts []int64
	// placed answers a Subscribe in another way; nil: as above.
	placed func(m *wirev1.Subscribe) []sent

	mu      sync.Mutex
	dials   int
	through int64 // bytes of all connections
	serving sync.WaitGroup
}

// cutConn passes so many bytes, and then breaks.
type cutConn struct {
	net.Conn
	left    *atomic.Int64
	through *atomic.Int64
}

func (c cutConn) pass(p []byte, f func([]byte) (int, error)) (int, error) {
	left := c.left.Load()
	if left <= 0 {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	n, err := f(p[:min(int64(len(p)), left)])
	c.through.Add(int64(n))
	if c.left.Add(-int64(n)) <= 0 {
		_ = c.Close()
		err = net.ErrClosed
	}
	return n, err
}

func (c cutConn) Read(p []byte) (int, error)  { return c.pass(p, c.Conn.Read) }
func (c cutConn) Write(p []byte) (int, error) { return c.pass(p, c.Conn.Write) }

func (e *scriptEdge) dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	left, through := &atomic.Int64{}, &atomic.Int64{}
	e.mu.Lock()
	defer e.mu.Unlock()
	left.Store(1 << 40)
	if e.dials < len(e.cuts) {
		left.Store(e.cuts[e.dials])
	}
	e.dials++
	e.serving.Go(func() {
		e.serve(cutConn{far, left, through})
		e.mu.Lock()
		defer e.mu.Unlock()
		e.through += through.Load()
	})
	return near, nil
}

// serve reads in one goroutine and writes in another, as a socket's buffers would have it.
func (e *scriptEdge) serve(conn net.Conn) {
	out := make(chan []byte, 4096)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for b := range out {
			if _, err := conn.Write(b); err != nil {
				_ = conn.Close()
			}
		}
	}()
	defer func() {
		_ = conn.Close()
		close(out)
		<-written
	}()
	for {
		ft, body, err := wire.Read(conn, nil, wire.MaxBody)
		if err != nil {
			return
		}
		frames, err := e.answer(ft, body)
		if err != nil {
			return
		}
		for _, f := range frames {
			b, err := wire.Append(nil, f.t, f.m)
			if err != nil {
				return
			}
			out <- b
		}
	}
}

func (e *scriptEdge) answer(ft wirev1.FrameType, body []byte) ([]sent, error) {
	switch ft {
	case wirev1.FrameType_FRAME_TYPE_HELLO:
		return []sent{{wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Version: 1, HeartbeatMs: 30000, MaxFrame: 1 << 20, ClientId: "c", PublishWindow: 2}}}, nil
	case wirev1.FrameType_FRAME_TYPE_SUBSCRIBE:
		m := &wirev1.Subscribe{}
		if err := proto.Unmarshal(body, m); err != nil {
			return nil, err
		}
		return e.subscribe(m), nil
	case wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE:
		m := &wirev1.Unsubscribe{}
		err := proto.Unmarshal(body, m)
		return []sent{{wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: m.GetId()}}}, err
	case wirev1.FrameType_FRAME_TYPE_PUBLISH:
		m := &wirev1.Publish{}
		err := proto.Unmarshal(body, m)
		return []sent{{wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: m.GetId(), Seq: 1, Epoch: 7}}}, err
	case wirev1.FrameType_FRAME_TYPE_CLAIM:
		m := &wirev1.Claim{}
		err := proto.Unmarshal(body, m)
		return []sent{{wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, &wirev1.ClaimState{Id: m.GetId()}}}, err
	case wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN:
		m := &wirev1.RefreshToken{}
		err := proto.Unmarshal(body, m)
		return []sent{{wirev1.FrameType_FRAME_TYPE_REFRESHED, &wirev1.Refreshed{Id: m.GetId(), ExpiresAt: 1}}}, err
	case wirev1.FrameType_FRAME_TYPE_NACK:
		m := &wirev1.Nack{}
		err := proto.Unmarshal(body, m)
		return []sent{{wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: m.GetTopic(), Seq: m.GetSeq(), Attempt: 1, Subs: []uint32{m.GetSub()}}}}, err
	}
	return nil, nil
}

func (e *scriptEdge) subscribe(m *wirev1.Subscribe) []sent {
	if e.placed != nil {
		return e.placed(m)
	}
	if m.GetFilter() != "room/a" {
		return []sent{{wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Recovered: true}}}
	}
	from := uint64(0)
	for _, p := range m.GetPositions() {
		from = p.GetSeq()
	}
	out := []sent{{wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Epoch: 7, Head: e.n, Recovered: true}}}
	for seq := from + 1; seq <= e.n; seq++ {
		out = append(out, sent{wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "room/a", Seq: seq, Subs: []uint32{m.GetId()}}})
	}
	return out
}

// within fails the test, with every goroutine's stack, where done is not closed in time.
func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		stacks := make([]byte, 1<<20)
		t.Fatalf("%s: it hangs\n%s", what, stacks[:runtime.Stack(stacks, true)])
	}
}

// harmless is an error that a broken connection may cause.
func harmless(err error) bool {
	var e *Error
	return err == nil || errors.Is(err, ErrClosed) || errors.As(err, &e) && (e.Unknown || e.Retryable())
}

// busyHandler does with each message another thing of the API, with a context that nothing ends.
func busyHandler(t *testing.T, s *Subscriber, dealt func(seq uint64)) Handler {
	var mu sync.Mutex
	refused := map[uint64]bool{}
	none := func(context.Context, *Delivery) error { return nil }
	return func(_ context.Context, d *Delivery) error {
		ctx := context.Background()
		var err error
		switch d.Seq % 8 {
		case 0:
			_, err = s.Publish(ctx, ClientMessage{Topic: "room/b"})
		case 1:
			_, err = s.Publish(ctx, ClientMessage{Topic: "room/b", DedupeKey: fmt.Sprint(d.Seq)})
		case 2:
			err = check(ctx, s, fmt.Sprint("seat/", d.Seq))
		case 3:
			var sub *Subscription
			if sub, err = s.Subscribe(ctx, "room/c/#", none, WithAck()); err == nil {
				err = sub.Unsubscribe(ctx)
			}
		case 4:
			err = check(ctx, s, "seat/0")
		case 5:
			err = d.Ack()
		case 6:
			mu.Lock()
			defer mu.Unlock()
			if !refused[d.Seq] {
				refused[d.Seq] = true
				return errors.New("not now \xff")
			}
		}
		if !harmless(err) {
			t.Errorf("message %d: %v", d.Seq, err)
		}
		dealt(d.Seq)
		return nil
	}
}

// breakAndFinish runs a subscriber whose connections break there, until its handler has dealt with
// every message once.
func breakAndFinish(t *testing.T, e *scriptEdge) {
	t.Helper()
	s, err := NewSubscriber(SubscriberConfig{Addrs: []string{"edge"}, Dial: e.dial, MinBackoff: time.Microsecond, MaxBackoff: time.Millisecond, ClientID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	times, all := map[uint64]int{}, make(chan struct{})
	start(t, s, "room/a", busyHandler(t, s, func(seq uint64) {
		mu.Lock()
		defer mu.Unlock()
		if times[seq]++; times[seq] == 1 && len(times) == int(e.n) {
			close(all)
		}
	}), WithAck(), FromEarliest())
	within(t, fmt.Sprintf("connections cut at %v", e.cuts), all)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if err := s.Close(in(t, 10*time.Second)); err != nil {
			t.Errorf("cut at %v: %v", e.cuts, err)
		}
	}()
	within(t, fmt.Sprintf("Close, connections cut at %v", e.cuts), closed)
	e.serving.Wait()
	for seq, n := range times {
		if n > 1 {
			t.Errorf("cut at %v: message %d was dealt with %d times", e.cuts, seq, n)
		}
	}
}

// Handlers do whatever the API allows while the connection breaks, at every byte of a conversation:
// each of them returns, each message is dealt with once, and nothing is left running.
func TestHandlersReturnWhereverTheConnectionBreaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	whole := &scriptEdge{n: 16}
	breakAndFinish(t, whole)
	for cut := int64(1); cut <= whole.through; cut++ {
		breakAndFinish(t, &scriptEdge{n: 16, cuts: []int64{cut, cut/2 + 1}})
	}
	noneLeft(t, before)
}

// A handler that publishes gets its answer, however much lies before that in the connection.
func TestHandlerPublishesAheadOfAFullQueue(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, ReceiveWindow: 4})
	got, asked := newSeqLog(), make(chan error, 1)
	const n = 2000
	start(t, s, "room/a", func(_ context.Context, d *Delivery) error {
		if d.Seq == 1 {
			_, err := s.Publish(context.Background(), ClientMessage{Topic: "room/b"})
			asked <- err
		}
		got.add(d.Seq)
		return nil
	})
	c := e.welcome()
	c.subscribed(7, 0, true)
	c.message("room/a", 1, 0)
	m := c.publish()
	want := []uint64{1}
	for seq := uint64(2); seq <= n; seq++ {
		c.message("room/a", seq, 0)
		want = append(want, seq)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: m.GetId(), Seq: 1, Epoch: 7})
	select {
	case err := <-asked:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("the answer lies behind messages that wait for the handler that waits for the answer")
	}
	got.wait(t, want...)
}

// The reason of a NACK may be anything.
func TestANackWhoseReasonIsNotUTF8(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	start(t, s, "room/a", func(context.Context, *Delivery) error { return NackAfter(time.Microsecond, errors.New("\xff?")) }, WithAck())
	c := e.welcome()
	c.subscribed(7, 0, true)
	c.message("room/a", 1, 0)
	n := &wirev1.Nack{}
	c.expect(wirev1.FrameType_FRAME_TYPE_NACK, n)
	if n.GetSeq() != 1 || !strings.HasSuffix(n.GetReason(), "\uFFFD?") || n.GetDelayMs() != 1 {
		t.Fatal(n)
	}
}

// A subscriber that ends, whoever ends it, answers the handlers that wait for the mesh, and
// returns.
func TestTheEndAnswersHandlers(t *testing.T) {
	for name, end := range map[string]func(s *Subscriber, c *edgeConn){
		"closed by another goroutine": func(s *Subscriber, _ *edgeConn) { _ = s.Close(context.Background()) },
		"refused for good": func(_ *Subscriber, c *edgeConn) {
			c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_SESSION_TAKEN_OVER})
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEdge(t)
			s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
			calls := []func(context.Context) error{
				func(ctx context.Context) error {
					_, err := s.Publish(ctx, ClientMessage{Topic: "room/b", DedupeKey: "k"})
					return err
				},
				func(ctx context.Context) error { return check(ctx, s, "seat/1") },
				func(ctx context.Context) error { return check(ctx, s, "seat/2") },
				func(ctx context.Context) error {
					_, err := s.Subscribe(ctx, "room/c", func(context.Context, *Delivery) error { return nil })
					return err
				},
			}
			errs := make(chan error, len(calls))
			start(t, s, "room/a", func(context.Context, *Delivery) error {
				var all sync.WaitGroup
				for _, call := range calls {
					all.Go(func() { errs <- call(context.Background()) })
				}
				all.Wait()
				return nil
			}, WithAck())
			c := e.welcome()
			c.subscribed(7, 0, true)
			c.message("room/a", 1, 0)
			for range calls {
				c.next()
			}
			end(s, c)
			within(t, name, s.Done())
			for range calls {
				if err := <-errs; err == nil {
					t.Error("an answer that never came")
				}
			}
		})
	}
}

// Close is not for handlers: it says so, and the subscriber ends all the same.
func TestAHandlerThatCloses(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	closed := make(chan error, 1)
	start(t, s, "room/a", func(context.Context, *Delivery) error {
		closed <- s.Close(in(t, 10*time.Second))
		return nil
	})
	c := e.welcome()
	c.subscribed(7, 0, true)
	c.message("room/a", 1, 0)
	within(t, "Close in a handler", s.Done())
	if err := <-closed; err == nil || !strings.Contains(err.Error(), "called by a handler") {
		t.Fatal(err)
	}
	if err := s.Close(in(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
}
