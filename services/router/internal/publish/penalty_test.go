package publish

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// rude is a stream whose client sends without end, whatever it is told.
type rude struct {
	grpc.ServerStream
	ctx   context.Context
	until time.Time
	sent  int
}

func (r *rude) Context() context.Context { return r.ctx }
func (r *rude) RecvMsg(into any) error {
	if !time.Now().Before(r.until) {
		return io.EOF
	}
	r.sent++
	return come(into, &pushmeshv1.PublishStreamRequest{Message: &pushmeshv1.PublishRequest{Topic: "live/1"}})
}

// come is how a request reaches a stream.
func come(into any, req *pushmeshv1.PublishStreamRequest) error {
	data, err := codec.Codec{}.Marshal(req)
	if err != nil {
		return err
	}
	defer data.Free()
	return codec.Codec{}.Unmarshal(data, into)
}

func limitedTo(l admission.Limits, namespaces ...*pushmeshv1.Namespace) *Publisher {
	p, _ := newPublisher(noop.NewTracerProvider())
	p.cfg.Admission = admission.New(admission.Config{Producer: l})
	p.cfg.Policies = fixed{policy.NewTable(namespaces)}
	return p
}

// Reading from a client that ignores refusals costs no more than twice what it may send.
func TestAStreamThatIgnoresRefusalsIsReadSlowly(t *testing.T) {
	t.Run("as they come", func(t *testing.T) { readSlowly(t, nil, 0) })
	t.Run("from an inbox", func(t *testing.T) { readSlowly(t, func(time.Duration) {}, maxWaiting+2) })
}

// readWhole has a service read a stream to its end, while its client reads the answers.
func readWhole(t *testing.T, s *Service, stream grpc.ServerStream) {
	t.Helper()
	out, sent := newAnswers(), make(chan error, 1)
	go func() { sent <- out.send(&reader{ctx: stream.Context(), got: map[uint64]int{}}) }()
	if err := s.read(stream, out); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	out.finish()
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// readSlowly lets a router read a rude stream, of which it takes so many requests ahead.
func readSlowly(t *testing.T, waited func(time.Duration), ahead int) {
	synctest.Test(t, func(t *testing.T) {
		s := NewService(limitedTo(admission.Limits{Rate: 100, InFlight: 10}), nil, nil)
		s.publisher.cfg.Waited = waited
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer rude"))
		stream := &rude{ctx: ctx, until: time.Now().Add(20 * time.Second)}
		readWhole(t, s, stream)
		if stream.sent < 20*100 || stream.sent > 20*(100+100)+200+ahead {
			t.Errorf("%d messages were read in 20 s", stream.sent)
		}
		for range 300 { // the bucket of refusals is used up again
			s.publisher.Publish(&Message{Context: ctx, Producer: producer(ctx), Request: &pushmeshv1.PublishRequest{Topic: "live/1"}, To: newAnswers()})
		}
		w := make(chan time.Duration, 1)
		go func() {
			began := time.Now()
			_, _ = s.Publish(ctx, &pushmeshv1.PublishRequest{Topic: "live/1"})
			w <- time.Since(began)
		}()
		if d := <-w; d < 10*time.Millisecond || d > time.Second {
			t.Errorf("a unary call of the same producer took %v", d)
		}
		s.Drain()
	})
}

// A user is held to one producer's limits on all connections together; without a user, each client
// is.
func TestClientsAreLimitedPerUser(t *testing.T) {
	taking(t, admission.Limits{Rate: 100, InFlight: 10}, 1, func(c *taker) {
		c.patient.Store(mostPatient) // nobody waits
		publish := func(user, id string) int {
			all, _ := c.ask(user, id, "open/1", 20)
			return c.oks(all)
		}
		if n := publish("ann", "phone"); n != 10 {
			t.Errorf("%d of 20 at once, at 100 a second and a burst of 10", n)
		}
		if n := publish("ann", "laptop"); n != 0 {
			t.Errorf("%d more from her other connection", n)
		}
		if n := publish("bob", "phone"); n != 10 {
			t.Errorf("%d of another user", n)
		}
		if n := publish("", "phone") + publish("", "laptop"); n != 20 {
			t.Errorf("%d of two clients without a user", n)
		}
		c.patient.Store(0)
	})
}
