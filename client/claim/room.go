package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// askWindow is how many Claims may be unanswered: an edge takes 16.
const askWindow = 16

// asking is a Claim that is to be answered.
type asking struct {
	m *wirev1.Claim
	// done is called with the Subscriber's lock held: when it was sent, and what came of it.
	done func(sent time.Time, st *wirev1.ClaimState, err *pushmesh.Error)
	sent time.Time
	dead bool // nobody waits for it: if it was not sent, it is not
}

// room is what a Subscriber has of claims. Guarded by its lock.
type room struct {
	ext.Host
	claims    map[string]*Place // by resource, as are the next two
	watches   map[string]*Watcher
	unwatched map[string]bool // nobody watches it any more, but the edge does not know
	queue     []*asking       // not sent
	asks      map[uint32]*asking
}

// roomOf is the Subscriber's, made when it is asked for first.
func roomOf(s *pushmesh.Subscriber) *room {
	return ext.Attach(s, "claim", func(h ext.Host) ext.Room {
		return &room{Host: h, claims: map[string]*Place{}, watches: map[string]*Watcher{}, unwatched: map[string]bool{}, asks: map[uint32]*asking{}}
	}).(*room)
}

// Uses reports whether a Claim has the id.
func (r *room) Uses(id uint32) bool { return r.asks[id] != nil }

// Owes reports whether a Claim is unanswered.
func (r *room) Owes() bool { return len(r.asks) > 0 }

// Refused takes the refusal of a Claim.
func (r *room) Refused(id uint32, err error) bool {
	var why *pushmesh.Error
	errors.As(err, &why)
	return r.answered(id, nil, why)
}

// backoff has the pauses after refusals for now, longer each time.
func (r *room) backoff() reconnect.Backoff {
	low, high := r.Backoff()
	return reconnect.Backoff{Low: low, High: high}
}

// unheard is the done of a Claim whose answer nobody waits for.
func unheard(time.Time, *wirev1.ClaimState, *pushmesh.Error) {}

// ask has a Claim sent as soon as there is a connection with room for it. Called with the
// lock held, as are the next ones.
func (r *room) ask(a *asking) {
	r.queue = append(r.queue, a)
	r.send()
	r.Wake() // the reader reads on for the answer
}

// send sends what waits, in order. What is in the buffer leaves on another goroutine: the one
// that reads must not wait for an edge that waits for it.
func (r *room) send() {
	l, some := r.Link(), false
	for l != nil && len(r.queue) > 0 && len(r.asks) < askWindow {
		a := r.queue[0]
		r.queue = r.queue[1:]
		if a.dead {
			continue
		}
		m := proto.CloneOf(a.m)
		m.Id = r.NextID()
		a.sent = time.Now()
		if bad := l.Put(wirev1.FrameType_FRAME_TYPE_CLAIM, m); bad != nil {
			a.done(a.sent, nil, &pushmesh.Error{Code: pushmesh.Code(bad.Code), Message: bad.Message})
			continue
		}
		r.asks[m.GetId()] = a
		some = true
	}
	if some {
		// a failed write closes the connection; the reader reports it
		go func() { _ = l.Flush() }()
	}
}

// answered is false where no Claim has the id.
func (r *room) answered(id uint32, st *wirev1.ClaimState, err *pushmesh.Error) bool {
	a := r.asks[id]
	if a == nil {
		return false
	}
	delete(r.asks, id)
	a.done(a.sent, st, err)
	r.send()
	return true
}

// Connected has everything asked again on a new connection.
func (r *room) Connected(*link.Conn) {
	now := time.Now()
	for _, c := range r.claims {
		c.tied = false
		c.pump(now)
	}
	for _, w := range r.watches {
		w.tied = false
		w.pump()
	}
	r.send()
}

// Broken answers what the connection took with it.
func (r *room) Broken() {
	for id := range r.asks {
		r.answered(id, nil, &pushmesh.Error{Code: pushmesh.CodeUnavailable, Message: "the connection broke before the answer", Unknown: true})
	}
	clear(r.unwatched)
}

// End is for a subscriber that ends.
func (r *room) End(err error) {
	for _, c := range r.claims {
		c.end(err)
	}
	for _, w := range r.watches {
		w.end(err)
	}
	for _, a := range r.queue {
		a.done(time.Time{}, nil, &pushmesh.Error{Code: pushmesh.CodeUnavailable, Message: "the subscriber ended"})
	}
	r.queue = nil
}

// Frame takes an answer or a push.
func (r *room) Frame(t wirev1.FrameType, body []byte) (bool, error) {
	if t != wirev1.FrameType_FRAME_TYPE_CLAIM_STATE {
		return false, nil
	}
	st := &wirev1.ClaimState{}
	if proto.Unmarshal(body, st) != nil {
		return true, ext.ErrBadFrame
	}
	r.answered(st.GetId(), st, nil)
	if c := r.claims[st.GetResource()]; c != nil {
		c.told(st) // answers to others' requests tell of it, too
	}
	if w := r.watches[st.GetResource()]; w != nil {
		w.told(st)
	}
	return true, nil
}

// call asks, and asks again as long as that can help and ctx lasts. again says that an earlier one
// may have been done. Where one that was sent had no answer, and none came later, the error says
// so.
func (r *room) call(ctx context.Context, m *wirev1.Claim) (st *wirev1.ClaimState, again bool, err error) {
	wait := r.backoff()
	open := false // one may have been done that was not answered
	defer func() {
		if err != nil && open {
			err = unknown(err)
		}
	}()
	for {
		type answer struct {
			st  *wirev1.ClaimState
			err *pushmesh.Error
		}
		got := make(chan answer, 1)
		a := &asking{m: m, done: func(_ time.Time, st *wirev1.ClaimState, err *pushmesh.Error) { got <- answer{st, err} }}
		r.Lock()
		if err := r.Over(); err != nil {
			defer r.Unlock()
			return nil, again, err
		}
		r.ask(a)
		r.Unlock()
		var x answer
		select {
		case x = <-got:
		case <-ctx.Done():
			r.Lock()
			a.dead = true
			open = open || !a.sent.IsZero()
			r.Unlock()
			return nil, again, r.Waited(ctx, "no answer to a Claim")
		}
		if x.err == nil {
			return x.st, again, nil
		}
		if !x.err.Retryable() {
			return nil, again, x.err
		}
		open = open || x.err.Unknown
		again = again || x.err.Unknown || x.err.Code == pushmesh.CodeUnavailable
		reconnect.Pause(ctx, wait.Next(x.err.RetryAfter))
		if ctx.Err() != nil {
			return nil, again, x.err
		}
	}
}

// unknown is the error of a call whose Claim may have been done.
func unknown(err error) error {
	if said := (*pushmesh.Error)(nil); errors.As(err, &said) && said.Unknown {
		return err
	}
	code := pushmesh.CodeOf(err)
	if code == pushmesh.CodeNone {
		code = pushmesh.CodeUnavailable
	}
	return fmt.Errorf("%w: %w", &pushmesh.Error{Code: code, Message: "no answer, it may have been done", Unknown: true}, err)
}

// release ends the hold of a token.
func (r *room) release(ctx context.Context, resource string, token uint64, opts ...ReleaseOption) error {
	m := &wirev1.Claim{Resource: resource, Op: wirev1.Claim_OP_RELEASE, Token: token}
	for _, o := range opts {
		o.applyRelease(m)
	}
	st, again, err := r.call(ctx, m)
	if err == nil && st.GetState() != wirev1.ClaimState_STATE_RELEASED && !again {
		err = &pushmesh.Error{Code: pushmesh.CodeNotHeld, Message: "it was not held any more"}
	}
	return err
}

// leaveLine gives a place in the line up, also one that became a hold meanwhile.
func (r *room) leaveLine(ctx context.Context, resource string) error {
	st, _, err := r.call(ctx, &wirev1.Claim{Resource: resource, Op: wirev1.Claim_OP_LEAVE})
	if err == nil && st.GetState() == wirev1.ClaimState_STATE_GRANTED {
		err = r.release(ctx, resource, st.GetToken())
	}
	r.Lock()
	defer r.Unlock()
	if w := r.watches[resource]; w != nil { // LEAVE has ended that, too
		w.tied = false
		w.pump()
	}
	return err
}
