package pushmesh

import (
	"context"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// CancelScheduled withdraws a message that waits for its DeliverAt; id is the MessageID of its
// Result. After nil it will not be delivered. An *Error with CONFLICT: it was delivered already;
// NOT_FOUND: the mesh doesn't know it, any more (a day after its delivery) or at all. It may be
// repeated, and repeats itself, over all routers, until one answers, ctx ends or the producer is
// closed.
func (p *Producer) CancelScheduled(ctx context.Context, id []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	route := newRoute(p.cfg.Addrs, p.cfg.lookup)
	wait := backoff{low: p.cfg.MinBackoff, high: p.cfg.MaxBackoff}
	for {
		e := p.cancelAt(ctx, route.next(ctx), id)
		switch {
		case e == nil:
			return nil
		case p.ctx.Err() != nil:
			return ErrClosed
		case ctx.Err() != nil:
			return waited(ctx, "no answer to CancelScheduled", e)
		case !e.Retryable():
			return e
		}
		if route.round() || e.RetryAfter > 0 {
			pause(ctx, wait.next(e))
		}
	}
}

// cancelAt asks one router.
func (p *Producer) cancelAt(ctx context.Context, at place, id []byte) *Error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.AnswerTimeout)
	defer cancel()
	conn, err := p.dial(at)
	if err != nil {
		return &Error{Code: wirev1.Code_CODE_UNAVAILABLE, Message: err.Error()}
	}
	defer func() { _ = conn.Close() }() // the call's own error says more
	_, err = pushmeshv1.NewPublishServiceClient(conn).CancelScheduled(ctx, &pushmeshv1.CancelScheduledRequest{MessageId: id})
	if err == nil {
		return nil
	}
	return connFault(at.addr, err)
}
