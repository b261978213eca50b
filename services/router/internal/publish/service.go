package publish

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/turns"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Service is pushmesh.v1.PublishService.
type Service struct {
	pushmeshv1.UnimplementedPublishServiceServer
	publisher *Publisher
	schedule  Schedule
	turns     *turns.Turns
	draining  chan struct{}
	drained   atomic.Bool
}

// Schedule is where messages wait for their time (storeclient.Client).
type Schedule interface {
	// CancelScheduled withdraws a message of a topic that one of filters matches; nil: of any.
	CancelScheduled(ctx context.Context, messageID []byte, filters []string) error
}

// NewService makes the gRPC service of a publisher, whose streams take turns. nil: they don't.
func NewService(p *Publisher, schedule Schedule, turns *turns.Turns) *Service {
	return &Service{publisher: p, schedule: schedule, turns: turns, draining: make(chan struct{})}
}

// Drain refuses new messages (DRAINING) from now on; those under way are answered, then open
// streams end.
func (s *Service) Drain() {
	if s.drained.CompareAndSwap(false, true) {
		close(s.draining)
	}
}

func errDraining() error {
	return code.Retry(wirev1.Code_CODE_DRAINING, 100*time.Millisecond, "this router is stopping: use another one")
}

// waiter takes the one result of a unary call.
type waiter chan *Result

func (w waiter) Published(_ uint64, res *Result) { w <- res }

// Publish implements PublishService.
func (s *Service) Publish(ctx context.Context, req *pushmeshv1.PublishRequest) (*pushmeshv1.PublishResponse, error) {
	if s.drained.Load() {
		return nil, errDraining()
	}
	if hasTraceparent(ctx) {
		req.Traceparent = "" // the call's metadata comes first; its span is in ctx already
	}
	w := make(waiter, 1)
	name := producer(ctx)
	refused := s.publisher.Publish(&Message{Context: ctx, Producer: name, By: backends.Of(ctx), Request: req, To: w})
	select {
	case res := <-w:
		if refused {
			req.Reset() // nothing is kept while it waits
			s.pause(ctx, s.publisher.cfg.Admission.CallPenalty(time.Now(), name))
		}
		if err := res.Err(); err != nil {
			return nil, err
		}
		return response(res), nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// penalty waits where a producer that was just refused goes on sending what is refused, and says
// whether it did. It must be the only thing that its caller holds up.
func (s *Service) penalty(ctx context.Context, producer string) (waited bool) {
	return s.pause(ctx, s.publisher.cfg.Admission.Penalty(time.Now(), producer))
}

// pause waits, unless ctx or the service ends, and reports whether there was anything to wait for.
func (s *Service) pause(ctx context.Context, d time.Duration) (waited bool) {
	if d == 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.draining:
	}
	return true
}

// CancelScheduled implements PublishService.
func (s *Service) CancelScheduled(ctx context.Context, req *pushmeshv1.CancelScheduledRequest) (*pushmeshv1.CancelScheduledResponse, error) {
	if len(req.GetMessageId()) != messageIDSize {
		return nil, invalid("message_id has %d bytes, must be %d", len(req.GetMessageId()), messageIDSize)
	}
	var filters []string
	if who := backends.Of(ctx); who != nil {
		if own, all := who.Who().Filters(backends.Publisher); !all {
			filters = own
		}
	}
	if err := s.schedule.CancelScheduled(ctx, req.GetMessageId(), filters); err != nil {
		return nil, code.From(err)
	}
	return &pushmeshv1.CancelScheduledResponse{}, nil
}

func response(res *Result) *pushmeshv1.PublishResponse {
	return &pushmeshv1.PublishResponse{
		MessageId: res.MessageID, Seq: res.Seq, Epoch: res.Epoch, Duplicate: res.Duplicate, Scheduled: res.Scheduled, Results: res.Topics,
	}
}

func streamResult(ref uint64, res *Result) *pushmeshv1.PublishStreamResponse_Result {
	if res.Code == wirev1.Code_CODE_OK && res.Topics == nil {
		r := &struct { // one allocation for what nearly every message is answered with
			result   pushmeshv1.PublishStreamResponse_Result
			response pushmeshv1.PublishResponse
			id       [messageIDSize]byte // a copy: the id itself lies in the message's job
		}{}
		r.result.Ref, r.result.Response = ref, &r.response
		r.response.MessageId = r.id[:copy(r.id[:], res.MessageID)]
		r.response.Seq, r.response.Epoch = res.Seq, res.Epoch
		r.response.Duplicate, r.response.Scheduled = res.Duplicate, res.Scheduled
		return &r.result
	}
	if res.Code == wirev1.Code_CODE_OK {
		return &pushmeshv1.PublishStreamResponse_Result{Ref: ref, Response: response(res)}
	}
	r := &pushmeshv1.PublishStreamResponse_Result{Ref: ref, Code: res.Code, Error: res.Error}
	if res.RetryAfter > 0 {
		r.RetryAfter = durationpb.New(res.RetryAfter)
	}
	return r
}
