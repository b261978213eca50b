package claimrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// margin before the end of a hold, for what this process is late itself.
func margin(ttl time.Duration) time.Duration { return min(ttl/20, time.Second) }

// errInTime says that a hold is about to run out.
var errInTime = errors.New("the claim could not be renewed in time")

// keep renews a hold at a third of its TTL, and ends with the reason once it is lost, or notice
// before it can have run out.
func (c *Claim) keep(ctx context.Context, h *Hold, notice time.Duration) error {
	next := h.Until.Add(-2 * h.TTL / 3)
	why := errInTime
	for {
		stop := h.Until.Add(-notice - margin(h.TTL))
		at := next
		if stop.Before(at) {
			at = stop
		}
		if !sleep(ctx, time.Until(at)) {
			return ctx.Err()
		}
		left := time.Until(stop)
		if left <= 0 {
			return why
		}
		began := time.Now()
		renewed, err := c.renew(ctx, h.Token, min(left, callTimeout))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			// The TTL stays the one that it began with: less is left of it where max_hold comes
			// near.
			h.Until, h.TTL, why = renewed.Until, max(h.TTL, renewed.TTL), errInTime
			next = began.Add(h.TTL / 3)
		case !retryable(err):
			return err
		default:
			why = fmt.Errorf("%w: %w", errInTime, err)
			next = time.Now().Add(min(max(code.From(err).RetryAfter, pause), h.TTL/10))
		}
	}
}

// follow ends with the reason once the hold is told to be lost. Where the stream breaks, keep finds
// out.
func (c *Claim) follow(ctx context.Context, h *Hold) error {
	for ctx.Err() == nil {
		err := c.lost(ctx, h)
		var lost *NotYoursError
		if errors.As(err, &lost) {
			return err
		}
		if !sleep(ctx, max(code.From(err).RetryAfter, pause)) {
			break
		}
	}
	return ctx.Err()
}

func (c *Claim) lost(ctx context.Context, h *Hold) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.API.Watch(ctx, &pushmeshv1.WatchRequest{Resource: c.Resource, Owner: c.Owner}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		if st := resp.GetState(); st.GetState() != wirev1.ClaimState_STATE_GRANTED || st.GetToken() != h.Token {
			return &NotYoursError{st}
		}
	}
}
