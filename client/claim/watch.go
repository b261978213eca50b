package claim

import (
	"context"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// State of a resource, for this client where it has a place there.
type State int32

// The states.
const (
	Granted     = State(wirev1.ClaimState_STATE_GRANTED)
	Queued      = State(wirev1.ClaimState_STATE_QUEUED)
	Lost        = State(wirev1.ClaimState_STATE_LOST)
	Released    = State(wirev1.ClaimState_STATE_RELEASED)
	Free        = State(wirev1.ClaimState_STATE_FREE)
	HeldByOther = State(wirev1.ClaimState_STATE_HELD_BY_OTHER)
)

// String is the name of the state, as the mesh writes it: "GRANTED".
func (s State) String() string {
	return strings.TrimPrefix(wirev1.ClaimState_State(s).String(), "STATE_")
}

// Info is what is so at a resource, for this client where it has a place there.
type Info struct {
	Resource string
	State    State
	// Token of this client's hold.
	Token uint64
	// Position in the line, 1 is next.
	Position int
	// ExpiresIn is what was left of the hold when it was told; of HeldByOther, of the hold
	// that ends first.
	ExpiresIn time.Duration
	// Holder that holds it longest: "client:" and a ClientID, or a backend's owner.
	Holder string
	// Holding and Waiting are how many.
	Holding, Waiting int
	// Code of Lost says why.
	Code pushmesh.Code
}

func infoOf(st *wirev1.ClaimState) Info {
	return Info{
		Resource: st.GetResource(), State: State(st.GetState()), Token: st.GetToken(), Position: int(st.GetPosition()), ExpiresIn: time.Duration(st.GetExpiresInMs()) * time.Millisecond,
		Holder: st.GetHolder(), Holding: int(st.GetHolding()), Waiting: int(st.GetWaiting()), Code: pushmesh.Code(st.GetCode()),
	}
}

// Check asks what is so at a resource.
func Check(ctx context.Context, s *pushmesh.Subscriber, resource string) (Info, error) {
	r := roomOf(s)
	done, err := r.Waits(ctx)
	if err != nil {
		return Info{}, err
	}
	defer done()
	st, _, err := r.call(ctx, &wirev1.Claim{Resource: resource, Op: wirev1.Claim_OP_CHECK})
	return infoOf(st), err
}

// Watcher tells of a resource. It outlives connections.
type Watcher struct {
	r        *room
	resource string
	f        func(Info)
	answered ext.Latch // opened at the first answer, or at the end
	ended    ext.Latch

	// Guarded by the Subscriber's lock.
	asking, tied, active bool
	pause                reconnect.Backoff // after refusals, since the last answer
	err                  error
}

// Watch has f told of a resource and of every change of it: while this client has a place
// there, of that; otherwise who holds it, at most ten times a second, the last state always. After
// a reconnect f is told again. f must not block. There is one watch of a resource.
func Watch(ctx context.Context, s *pushmesh.Subscriber, resource string, f func(Info)) (*Watcher, error) {
	if f == nil {
		return nil, &pushmesh.ConfigError{Field: "Watch", Problem: "needs a function to call: it is nil"}
	}
	r := roomOf(s)
	done, err := r.Waits(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	w := &Watcher{r: r, resource: resource, f: f, answered: make(ext.Latch), ended: make(ext.Latch), pause: r.backoff()}
	r.Lock()
	switch err := r.Over(); {
	case err != nil:
		defer r.Unlock()
		return nil, err
	case r.watches[resource] != nil:
		defer r.Unlock()
		return nil, &pushmesh.Error{Code: pushmesh.CodeAlreadyExists, Message: "this Subscriber watches the resource already"}
	}
	r.watches[resource] = w
	delete(r.unwatched, resource)
	w.pump()
	r.Unlock()
	select {
	case <-w.answered:
	case <-ctx.Done():
		w.Stop()
		return nil, r.Waited(ctx, "not watched")
	}
	return w, w.Err()
}

// Done is closed once nothing more is told.
func (w *Watcher) Done() <-chan struct{} { return w.ended }

// Err says why the watch ended; nil while it goes on and after Stop.
func (w *Watcher) Err() error {
	w.r.Lock()
	defer w.r.Unlock()
	return w.err
}

// Stop ends the watch. A claim on the resource stays.
func (w *Watcher) Stop() {
	r := w.r
	r.Lock()
	defer r.Unlock()
	if w.over() {
		return
	}
	w.end(nil)
	switch {
	case r.claims[w.resource] != nil: // LEAVE would take its place; the claim does that at its end
		r.unwatched[w.resource] = true
	case r.Link() != nil:
		r.ask(&asking{m: &wirev1.Claim{Resource: w.resource, Op: wirev1.Claim_OP_LEAVE}, done: unheard})
	}
}

// What follows is called with the Subscriber's lock held.

func (w *Watcher) over() bool { return w.ended.IsOpen() }

func (w *Watcher) pump() {
	if w.over() || w.asking || w.tied || w.r.Link() == nil {
		return
	}
	w.asking = true
	w.r.ask(&asking{m: &wirev1.Claim{Resource: w.resource, Op: wirev1.Claim_OP_WATCH}, done: w.answer})
}

func (w *Watcher) answer(_ time.Time, _ *wirev1.ClaimState, err *pushmesh.Error) {
	w.asking = false
	switch {
	case w.over():
	case err == nil:
		w.tied, w.active = true, true
		w.pause.Reset()
		w.answered.Open()
	case !err.Retryable():
		w.end(err)
	case !err.Unknown:
		refusing := w.r.Link()
		time.AfterFunc(w.pause.Next(err.RetryAfter), func() {
			w.r.Lock()
			defer w.r.Unlock()
			if w.r.Link() == refusing { // another connection has asked at once
				w.pump()
			}
		})
	}
}

func (w *Watcher) told(st *wirev1.ClaimState) {
	if w.active && !w.over() {
		w.r.Later(func() { w.f(infoOf(st)) })
	}
}

func (w *Watcher) end(err error) {
	if w.over() {
		return
	}
	w.err = err
	w.ended.Open()
	w.answered.Open()
	delete(w.r.watches, w.resource)
}
