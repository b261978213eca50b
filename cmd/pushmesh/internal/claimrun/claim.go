// Package claimrun gets a claim from routers, keeps it, and runs a command while it is held.
package claimrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// callTimeout bounds one call to a router.
	callTimeout = 5 * time.Second
	// pause is the shortest between two tries.
	pause = 100 * time.Millisecond
)

// Claim is what an owner wants.
type Claim struct {
	API             pushmeshv1.ClaimServiceClient
	Resource, Owner string
	// TTL of the hold; 0: the policy's. Wait bounds the time in the line; 0: as long as it takes.
	TTL, Wait time.Duration
	Priority  uint32
	NoWait    bool
	// Say is told of every state but the grant, once.
	Say func(*wirev1.ClaimState)

	said *wirev1.ClaimState
}

// Hold is a claim that was granted and taken up.
type Hold struct {
	Token uint64
	TTL   time.Duration
	// Until is the earliest time at which the hold can have run out, by this process's monotonic
	// clock.
	Until time.Time
	State *wirev1.ClaimState
}

// holdOf a state that came in answer to a call made at began: what was left of the hold is counted
// from there.
func holdOf(st *wirev1.ClaimState, began time.Time) *Hold {
	left := time.Duration(st.GetExpiresInMs()) * time.Millisecond
	return &Hold{Token: st.GetToken(), TTL: left, Until: began.Add(left), State: st}
}

// NotYoursError says that the claim was not got, or is lost.
type NotYoursError struct{ State *wirev1.ClaimState }

func (e *NotYoursError) Error() string {
	switch e.State.GetState() {
	case wirev1.ClaimState_STATE_HELD_BY_OTHER:
		return fmt.Sprintf("%s is held by %s", e.State.GetResource(), e.State.GetHolder())
	case wirev1.ClaimState_STATE_LOST:
		return fmt.Sprintf("%s is lost: %s", e.State.GetResource(), code.Name(e.State.GetCode()))
	case wirev1.ClaimState_STATE_RELEASED:
		return e.State.GetResource() + " was released by another process"
	}
	return e.State.GetResource() + " is not held"
}

// Get waits until the claim is granted and takes it up. A wait that ctx ends gives the place up.
// NotYoursError: it was not to be had.
func (c *Claim) Get(ctx context.Context) (*Hold, error) {
	for began := time.Now(); ; {
		left := time.Duration(0)
		if c.Wait > 0 {
			if left = c.Wait - time.Since(began); left <= 0 {
				return nil, &NotYoursError{&wirev1.ClaimState{Resource: c.Resource, State: wirev1.ClaimState_STATE_LOST, Code: wirev1.Code_CODE_EXPIRED}}
			}
		}
		h, st, err := c.acquire(ctx, left)
		switch {
		case err != nil, h != nil:
			return h, err
		case st.GetState() != wirev1.ClaimState_STATE_QUEUED:
			return nil, &NotYoursError{st}
		}
		c.say(st)
		h, err = c.line(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), c.leave(ctx))
		}
		if h != nil || err != nil {
			return h, err
		}
		if !sleep(ctx, pause) { // the place is gone: from the end of the line again
			return nil, ctx.Err()
		}
	}
}

func (c *Claim) say(st *wirev1.ClaimState) {
	if c.said == nil || c.said.GetState() != st.GetState() || c.said.GetPosition() != st.GetPosition() {
		c.Say(st)
	}
	c.said = st
}

func (c *Claim) acquire(ctx context.Context, wait time.Duration) (*Hold, *wirev1.ClaimState, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	resp, err := c.API.Acquire(ctx, &pushmeshv1.AcquireRequest{
		Resource: c.Resource, Owner: c.Owner, Ttl: duration(c.TTL), Priority: c.Priority, Wait: duration(wait), NoWait: c.NoWait,
	})
	if err != nil || resp.GetState().GetState() != wirev1.ClaimState_STATE_GRANTED {
		return nil, resp.GetState(), err
	}
	return holdOf(resp.GetState(), began), resp.GetState(), nil
}

// line waits in the line. Neither a hold nor an error: the place is gone, and it can be tried
// again.
func (c *Claim) line(ctx context.Context) (*Hold, error) {
	for {
		h, again, err := c.watch(ctx)
		if e := code.From(err); e == nil || !again || ctx.Err() != nil {
			return h, err
		}
		if !sleep(ctx, max(code.From(err).RetryAfter, pause)) {
			return nil, ctx.Err()
		}
	}
}

// watch follows the place on one stream. again: the error is one of the stream alone.
func (c *Claim) watch(ctx context.Context) (h *Hold, again bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.API.Watch(ctx, &pushmeshv1.WatchRequest{Resource: c.Resource, Owner: c.Owner}, grpc.WaitForReady(true))
	if err != nil {
		return nil, retryable(err), err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return nil, retryable(err), err
		}
		st := resp.GetState()
		switch st.GetState() {
		case wirev1.ClaimState_STATE_GRANTED:
			h, err := c.renew(ctx, st.GetToken(), callTimeout)
			if retryable(err) || code.Of(err) == wirev1.Code_CODE_NOT_HELD {
				return nil, false, nil // Acquire says what is so
			}
			return h, false, err
		case wirev1.ClaimState_STATE_QUEUED:
			c.say(st)
		case wirev1.ClaimState_STATE_LOST:
			c.say(st)
			switch st.GetCode() {
			case wirev1.Code_CODE_IDLE_TIMEOUT, wirev1.Code_CODE_ACK_TIMEOUT, wirev1.Code_CODE_NOT_HELD:
				return nil, false, nil
			}
			return nil, false, &NotYoursError{st}
		case wirev1.ClaimState_STATE_RELEASED:
			return nil, false, &NotYoursError{st}
		default:
			return nil, false, nil
		}
	}
}

func (c *Claim) renew(ctx context.Context, token uint64, timeout time.Duration) (*Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	resp, err := c.API.Renew(ctx, &pushmeshv1.RenewRequest{Resource: c.Resource, Owner: c.Owner, Token: token, Ttl: duration(c.TTL)})
	if err != nil {
		return nil, err
	}
	return holdOf(resp.GetState(), began), nil
}

// leave gives the place up, whatever ctx says.
func (c *Claim) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_, err := c.API.Leave(ctx, &pushmeshv1.LeaveRequest{Resource: c.Resource, Owner: c.Owner})
	return err
}

// Release ends a hold, whatever ctx says. It is tried twice: what is left of it ends by itself.
func (c *Claim) Release(ctx context.Context, h *Hold) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	req := &pushmeshv1.ReleaseRequest{Resource: c.Resource, Owner: c.Owner, Token: h.Token}
	_, err := c.API.Release(ctx, req)
	if retryable(err) && sleep(ctx, pause) {
		_, err = c.API.Release(ctx, req)
	}
	return err
}

// retryable reports whether an error is about the way to the stores, not about the claim.
func retryable(err error) bool {
	return err != nil && code.Retryable(code.Of(err))
}

func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
