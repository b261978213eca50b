package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Whoever ends a subscriber, and however much waits for its handler: nothing more is handed over
// once the handler has returned, and the end waits for that alone.
func TestTheEndBehindAFullQueue(t *testing.T) {
	for _, refused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := newPipeEdge(t)
			s := newTestSubscriber(t, SubscriberConfig{Dial: e.dial, Addrs: []string{"edge"}, ReceiveWindow: 4})
			var handled atomic.Int32
			start(t, s, "talk", func(context.Context, *Delivery) error {
				handled.Add(1)
				pass(4 * time.Second)
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
				_ = s.Close(in(t, time.Minute))
			}
			if d := time.Since(began); d != 3*time.Second || handled.Load() != 1 {
				t.Errorf("refused %v: it ended after %v, %d messages were handed over", refused, d, handled.Load())
			}
		})
	}
}

// What a producer leaves behind is answered: what was not sent with the reason of the end, and what
// the mesh may have with that nobody knows.
func TestWhatAProducerLeavesBehind(t *testing.T) {
	for _, end := range []error{ErrClosed, &Error{Code: CodeForbidden, Message: "not you"}} {
		p := idleProducer(ProducerConfig{})
		sent := p.offer(t, Message{Topic: "a", Payload: []byte("x")})
		p.fly(t, "x")
		p.grounded()
		unsent := p.offer(t, Message{Topic: "b", Payload: []byte("y")})
		p.end(end)
		want := CodeOf(end)
		if errors.Is(end, ErrClosed) {
			want = CodeUnavailable
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

// A router that says it is not ready, or is not there, is no place to go to; one that knows no
// health is.
func TestWhereAProducerGoes(t *testing.T) {
	_, doors, addrs := routers(t, 2)
	p := idleProducer(ProducerConfig{SilentTimeout: patience})
	p.cfg.DialOptions = newTestProducer(t, ProducerConfig{Addrs: []string{nobody}}).cfg.DialOptions
	at := func(addr string) reconnect.Place { return reconnect.Place{Addr: addr, Name: addr} }
	doors[0].health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	if to, ok := p.anyReady(t.Context(), []reconnect.Place{at(addrs[0]), at(nobody)}); ok {
		t.Errorf("goes to %v", to)
	}
	for range 5 {
		if to, ok := p.anyReady(t.Context(), []reconnect.Place{at(addrs[0]), at(nobody), at(addrs[1])}); !ok || to.Addr != addrs[1] {
			t.Errorf("goes to %v, %v", to, ok)
		}
	}
	if to, ok := p.anyReady(t.Context(), []reconnect.Place{at(emptyServer(t))}); !ok {
		t.Errorf("goes to %v", to)
	}
	if _, ok := p.anyReady(t.Context(), nil); ok {
		t.Error("goes nowhere")
	}
}

// One name with two addresses: when the router at one of them ends, the producer goes to the other
// one; so does a subscriber.
func TestANameLeadsToAnotherAddress(t *testing.T) {
	r := newFakeRouter(t)
	_, port, _ := net.SplitHostPort(r.addr)
	second := newDoor(t, r, "127.0.0.2:"+port)
	look := func(context.Context, string) ([]string, error) { return []string{"127.0.0.1", "127.0.0.2"}, nil }
	p := newTestProducer(t, ProducerConfig{Addrs: []string{"routers.test:" + port}, lookup: look})
	end := keepPublishing(t, p, "room/a")
	waitUntil(t, func() bool { return len(r.log("room/a")) > 5 })
	if second.streams.Load() > 0 {
		second.stop()
	} else {
		r.stop()
	}
	before := len(r.log("room/a"))
	waitUntil(t, func() bool { return len(r.log("room/a")) > before+5 })
	checkLog(t, r, "room/a", end())

	e := newFakeEdge(t)
	_, port, _ = net.SplitHostPort(e.addr())
	// nobody at the first
	hosts := func(context.Context, string) ([]string, error) { return []string{"127.0.0.3", "127.0.0.1"}, nil }
	newTestSubscriber(t, SubscriberConfig{Addrs: []string{fmt.Sprint("edges.test:", port)}, lookup: hosts})
	e.welcome()
}
