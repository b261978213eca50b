package pushmesh

import (
	"context"
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// States of a ClaimInfo.
const (
	ClaimGranted     = wirev1.ClaimState_STATE_GRANTED
	ClaimQueued      = wirev1.ClaimState_STATE_QUEUED
	ClaimLost        = wirev1.ClaimState_STATE_LOST
	ClaimReleased    = wirev1.ClaimState_STATE_RELEASED
	ClaimFree        = wirev1.ClaimState_STATE_FREE
	ClaimHeldByOther = wirev1.ClaimState_STATE_HELD_BY_OTHER
)

// ClaimInfo is what is so at a resource, for this client where it has a place there.
type ClaimInfo struct {
	Resource string
	State    wirev1.ClaimState_State
	// Token of this client's hold.
	Token uint64
	// Position in the line, 1 is next.
	Position int
	// ExpiresIn is what was left of the hold when it was told; of ClaimHeldByOther, of the hold
	// that ends first.
	ExpiresIn time.Duration
	// Holder that holds it longest: "client:" and a ClientID, or a backend's owner.
	Holder string
	// Holding and Waiting are how many.
	Holding, Waiting int
	// Code of ClaimLost says why.
	Code Code
}

func infoOf(st *wirev1.ClaimState) ClaimInfo {
	return ClaimInfo{
		Resource: st.GetResource(), State: st.GetState(), Token: st.GetToken(), Position: int(st.GetPosition()), ExpiresIn: time.Duration(st.GetExpiresInMs()) * time.Millisecond,
		Holder: st.GetHolder(), Holding: int(st.GetHolding()), Waiting: int(st.GetWaiting()), Code: st.GetCode(),
	}
}

// CheckClaim asks what is so at a resource.
func (s *Subscriber) CheckClaim(ctx context.Context, resource string) (ClaimInfo, error) {
	st, _, err := s.call(ctx, &wirev1.Claim{Resource: resource, Op: wirev1.Claim_OP_CHECK})
	return infoOf(st), err
}

// ClaimWatch tells of a resource. It outlives connections.
type ClaimWatch struct {
	s        *Subscriber
	resource string
	f        func(ClaimInfo)
	answered latch // opened at the first answer, or at the end
	ended    latch

	// Guarded by Subscriber.mu.
	asking, tied, active bool
	err                  error
}

// WatchClaim has f told of a resource and of every change of it: while this client has a place
// there, of that; otherwise who holds it, at most ten times a second, the last state always. After
// a reconnect f is told again. f must not block. There is one watch of a resource.
func (s *Subscriber) WatchClaim(ctx context.Context, resource string, f func(ClaimInfo)) (*ClaimWatch, error) {
	if f == nil {
		return nil, errors.New("pushmesh: WatchClaim needs a function to call: it is nil")
	}
	w := &ClaimWatch{s: s, resource: resource, f: f, answered: make(latch), ended: make(latch)}
	s.mu.Lock()
	switch {
	case s.closing || s.err != nil:
		defer s.unlock()
		return nil, s.endError()
	case s.watches[resource] != nil:
		defer s.unlock()
		return nil, &Error{Code: wirev1.Code_CODE_ALREADY_EXISTS, Message: "this Subscriber watches the resource already"}
	}
	s.watches[resource] = w
	delete(s.unwatched, resource)
	w.pump()
	s.unlock()
	select {
	case <-w.answered:
	case <-ctx.Done():
		w.Stop()
		return nil, waited(ctx, "not watched", s.faultOf())
	}
	return w, w.Err()
}

// Done is closed once nothing more is told.
func (w *ClaimWatch) Done() <-chan struct{} { return w.ended }

// Err says why the watch ended; nil while it goes on and after Stop.
func (w *ClaimWatch) Err() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.err
}

// Stop ends the watch. A claim on the resource stays.
func (w *ClaimWatch) Stop() {
	s := w.s
	s.mu.Lock()
	defer s.unlock()
	if w.over() {
		return
	}
	w.end(nil)
	switch {
	case s.claims[w.resource] != nil: // LEAVE would take its place; the claim does that at its end
		s.unwatched[w.resource] = true
	case s.link != nil:
		s.ask(&claimAsk{m: &wirev1.Claim{Resource: w.resource, Op: wirev1.Claim_OP_LEAVE}, done: unheard})
	}
}

// What follows is called with Subscriber.mu held.

func (w *ClaimWatch) over() bool { return w.ended.isOpen() }

func (w *ClaimWatch) pump() {
	if w.over() || w.asking || w.tied || w.s.link == nil {
		return
	}
	w.asking = true
	w.s.ask(&claimAsk{m: &wirev1.Claim{Resource: w.resource, Op: wirev1.Claim_OP_WATCH}, done: w.answer})
}

func (w *ClaimWatch) answer(_ time.Time, _ *wirev1.ClaimState, err *Error) {
	w.asking = false
	switch {
	case w.over():
	case err == nil:
		w.tied, w.active = true, true
		w.answered.open()
	case !err.Retryable():
		w.end(err)
	case !err.Unknown:
		time.AfterFunc(max(err.RetryAfter, w.s.cfg.MinBackoff), func() {
			w.s.mu.Lock()
			defer w.s.unlock()
			w.pump()
		})
	}
}

func (w *ClaimWatch) told(st *wirev1.ClaimState) {
	if w.active && !w.over() {
		w.s.later(func() { w.f(infoOf(st)) })
	}
}

func (w *ClaimWatch) end(err error) {
	if w.over() {
		return
	}
	w.err = err
	w.ended.open()
	w.answered.open()
	delete(w.s.watches, w.resource)
}
