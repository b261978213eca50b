package publish

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Service is pushmesh.v1.PublishService.
type Service struct {
	pushmeshv1.UnimplementedPublishServiceServer
	publisher *Publisher
	draining  chan struct{}
	drained   atomic.Bool
}

// NewService makes the gRPC service of a publisher.
func NewService(p *Publisher) *Service {
	return &Service{publisher: p, draining: make(chan struct{})}
}

// Drain refuses new messages (DRAINING) from now on; those under way are answered, then open streams end.
func (s *Service) Drain() {
	if s.drained.CompareAndSwap(false, true) {
		close(s.draining)
	}
}

func errDraining() error {
	return code.Retry(wirev1.Code_CODE_DRAINING, 100*time.Millisecond, "this router stops: go to another one")
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
	s.publisher.Publish(&Message{Context: ctx, Producer: producer(ctx), Request: req, To: w})
	select {
	case res := <-w:
		if err := res.Err(); err != nil {
			return nil, err
		}
		return response(res), nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// CancelScheduled implements PublishService.
func (s *Service) CancelScheduled(context.Context, *pushmeshv1.CancelScheduledRequest) (*pushmeshv1.CancelScheduledResponse, error) {
	return nil, code.New(wirev1.Code_CODE_UNSUPPORTED, "scheduled messages are not supported")
}

func response(res *Result) *pushmeshv1.PublishResponse {
	return &pushmeshv1.PublishResponse{
		MessageId: res.MessageID, Seq: res.Seq, Epoch: res.Epoch, Duplicate: res.Duplicate, Results: res.Topics,
	}
}

func streamResult(ref uint64, res *Result) *pushmeshv1.PublishStreamResponse_Result {
	if res.Code == wirev1.Code_CODE_OK {
		return &pushmeshv1.PublishStreamResponse_Result{Ref: ref, Response: response(res)}
	}
	r := &pushmeshv1.PublishStreamResponse_Result{Ref: ref, Code: res.Code, Error: res.Error}
	if res.RetryAfter > 0 {
		r.RetryAfter = durationpb.New(res.RetryAfter)
	}
	return r
}
