package pushmesh

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Whoever ends a subscriber, and however much waits for its handler: nothing more is handed over
// once the handler has returned, and the end waits for that alone.
func TestTheEndBehindAFullQueue(t *testing.T) {
	for _, refused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, ReceiveWindow: 4, CloseTimeout: time.Minute})
			var handled atomic.Int32
			start(t, s, "talk", func(context.Context, *Delivery) error {
				handled.Add(1)
				pass(10 * time.Second)
				return nil
			})
			c := e.welcomeWith(seldom)
			c.subscribed(0, 0, true)
			n := 100 // beyond what is kept: the reader waits for room
			if refused {
				n = 10
			}
			c.flood(n, 5000)
			synctest.Wait()
			pass(time.Second)
			began := time.Now()
			if refused {
				c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_SESSION_TAKEN_OVER})
				<-s.Done()
			} else {
				_ = s.Close()
			}
			if d := time.Since(began); d != 9*time.Second || handled.Load() != 1 {
				t.Errorf("refused %v: it ended after %v, %d messages were handed over", refused, d, handled.Load())
			}
		})
	}
}

// What a producer leaves behind is answered: what was not sent with the reason of the end, and what
// the mesh may have with that nobody knows.
func TestWhatAProducerLeavesBehind(t *testing.T) {
	for _, end := range []error{ErrClosed, &Error{Code: wirev1.Code_CODE_FORBIDDEN, Message: "not you"}} {
		p := idleProducer(ProducerConfig{})
		sent := p.offer(t, Message{Topic: "a", Payload: []byte("x")})
		p.fly(t, "x")
		p.grounded()
		unsent := p.offer(t, Message{Topic: "b", Payload: []byte("y")})
		p.end(end)
		want := CodeOf(end)
		if errors.Is(end, ErrClosed) {
			want = wirev1.Code_CODE_UNAVAILABLE
		}
		var e *Error
		if sent.times != 1 || !errors.As(sent.err, &e) || !e.Unknown || e.Code != want || e.Message == "" {
			t.Errorf("ended with %v: what was sent is answered %+v", end, sent)
		}
		if unsent.times != 1 || !errors.Is(unsent.err, end) || p.size != 0 {
			t.Errorf("ended with %v: what was not sent is answered %+v, %d are left", end, unsent, p.size)
		}
		if _, err := p.enqueue(t.Context(), Message{Topic: "a"}, nil); !errors.Is(err, end) {
			t.Errorf("after its end: %v", err)
		}
	}
}

// The clients that an edge sends elsewhere spread over the places that it names, each of which is
// tried once.
func TestDetoursAreSpread(t *testing.T) {
	first := map[string]int{}
	for range 200 {
		r := newRoute([]string{"home:1"}, nil)
		r.detour(place{"a:1", "a:1"}, place{"b:1", "b:1"}, place{"c:1", "c:1"})
		var got []string
		for range 3 {
			if r.round() {
				t.Fatal("a round is over, and not all were tried")
			}
			got = append(got, r.next(t.Context()).addr)
		}
		first[got[0]]++
		if slices.Sort(got); !slices.Equal(got, []string{"a:1", "b:1", "c:1"}) || r.next(t.Context()).addr != "home:1" {
			t.Fatalf("went to %v", got)
		}
	}
	if len(first) != 3 {
		t.Errorf("200 clients go first to %v", first)
	}
}

// A router that says it is not ready, or is not there, is no place to go to; one that knows no
// health is.
func TestWhereAProducerGoes(t *testing.T) {
	_, doors, addrs := routers(t, 2)
	p := idleProducer(ProducerConfig{SilentTimeout: patience})
	p.cfg.DialOptions = newTestProducer(t, ProducerConfig{Addrs: []string{nobody}}).cfg.DialOptions
	at := func(addr string) place { return place{addr, addr} }
	doors[0].health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	if to, ok := p.anyReady(t.Context(), []place{at(addrs[0]), at(nobody)}); ok {
		t.Errorf("goes to %v", to)
	}
	for range 5 {
		if to, ok := p.anyReady(t.Context(), []place{at(addrs[0]), at(nobody), at(addrs[1])}); !ok || to.addr != addrs[1] {
			t.Errorf("goes to %v, %v", to, ok)
		}
	}
	if to, ok := p.anyReady(t.Context(), []place{at(emptyServer(t))}); !ok {
		t.Errorf("goes to %v", to)
	}
	if _, ok := p.anyReady(t.Context(), nil); ok {
		t.Error("goes nowhere")
	}
}

// What wants no answer, and what is nonsense, gets none of the bridge to a router.
func TestTheBridgeAnswersWhatHasAnID(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	b := &bridge{pipe: far}
	for name, body := range map[string][]byte{
		"nothing": nil, "nonsense": {0xff}, "another field first": protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 5),
		"an id of another type": protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "x"),
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.refuse(wirev1.FrameType_FRAME_TYPE_PUBLISH, body) // a write would wait for who reads
		}()
		within(t, name, done)
	}
}
