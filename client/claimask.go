package pushmesh

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// claimWindow is how many Claims may be unanswered: an edge takes 16.
const claimWindow = 16

// claimAsk is a Claim that is to be answered.
type claimAsk struct {
	m *wirev1.Claim
	// done is called with Subscriber.mu held: when it was sent, and what came of it.
	done func(sent time.Time, st *wirev1.ClaimState, err *Error)
	sent time.Time
	dead bool // nobody waits for it: if it was not sent, it is not
}

// unheard is the done of a Claim whose answer nobody waits for.
func unheard(time.Time, *wirev1.ClaimState, *Error) {}

// ask has a Claim sent as soon as there is a connection with room for it. Called with s.mu held, as
// are the next ones.
func (s *Subscriber) ask(a *claimAsk) {
	s.claimQueue = append(s.claimQueue, a)
	s.sendClaims()
	s.changed.Broadcast() // the reader reads on for the answer
}

// sendClaims sends what waits, in order. What is in the buffer leaves on another goroutine: the one
// that reads must not wait for an edge that waits for it.
func (s *Subscriber) sendClaims() {
	l, some := s.link, false
	for l != nil && len(s.claimQueue) > 0 && len(s.claimAsks) < claimWindow {
		a := s.claimQueue[0]
		s.claimQueue = s.claimQueue[1:]
		if a.dead {
			continue
		}
		m := proto.CloneOf(a.m)
		m.Id = s.nextID()
		a.sent = time.Now()
		if bad := l.Put(wirev1.FrameType_FRAME_TYPE_CLAIM, m); bad != nil {
			a.done(a.sent, nil, unsent(bad))
			continue
		}
		s.claimAsks[m.GetId()] = a
		some = true
	}
	if some {
		// a failed write closes the connection; the reader reports it
		go func() { _ = l.Flush() }()
	}
}

// claimAnswered is false where no Claim has the id.
func (s *Subscriber) claimAnswered(id uint32, st *wirev1.ClaimState, err *Error) bool {
	a := s.claimAsks[id]
	if a == nil {
		return false
	}
	delete(s.claimAsks, id)
	a.done(a.sent, st, err)
	s.sendClaims()
	return true
}

// claimsConnected has everything asked again on a new connection.
func (s *Subscriber) claimsConnected() {
	now := time.Now()
	for _, c := range s.claims {
		c.tied = false
		c.pump(now)
	}
	for _, w := range s.watches {
		w.tied = false
		w.pump()
	}
	s.sendClaims()
}

// claimsBroken answers what the connection took with it.
func (s *Subscriber) claimsBroken() {
	for id := range s.claimAsks {
		s.claimAnswered(id, nil, &Error{Code: wirev1.Code_CODE_UNAVAILABLE, Message: "the connection broke before the answer", Unknown: true})
	}
	clear(s.unwatched)
}

// endClaims is for a subscriber that ends.
func (s *Subscriber) endClaims(err error) {
	for _, c := range s.claims {
		c.end(err)
	}
	for _, w := range s.watches {
		w.end(err)
	}
	for _, a := range s.claimQueue {
		a.done(time.Time{}, nil, &Error{Code: wirev1.Code_CODE_UNAVAILABLE, Message: "the subscriber ended", Unknown: true})
	}
	s.claimQueue = nil
}

// claimState takes an answer or a push.
func (r *reader) claimState(body []byte) error {
	st := &wirev1.ClaimState{}
	if proto.Unmarshal(body, st) != nil {
		return errBadMessage
	}
	s := r.s
	s.mu.Lock()
	defer s.unlock()
	s.claimAnswered(st.GetId(), st, nil)
	if c := s.claims[st.GetResource()]; c != nil {
		c.told(st) // answers to others' requests tell of it, too
	}
	if w := s.watches[st.GetResource()]; w != nil {
		w.told(st)
	}
	return nil
}

// call asks, and asks again as long as that can help and ctx lasts. again says that an earlier one
// may have been done.
func (s *Subscriber) call(ctx context.Context, m *wirev1.Claim) (st *wirev1.ClaimState, again bool, err error) {
	for {
		type answer struct {
			st  *wirev1.ClaimState
			err *Error
		}
		got := make(chan answer, 1)
		a := &claimAsk{m: m, done: func(_ time.Time, st *wirev1.ClaimState, err *Error) { got <- answer{st, err} }}
		s.mu.Lock()
		if s.closing || s.err != nil {
			defer s.unlock()
			return nil, again, s.endError()
		}
		s.ask(a)
		s.unlock()
		var x answer
		select {
		case x = <-got:
		case <-ctx.Done():
			s.mu.Lock()
			a.dead = true
			s.unlock()
			return nil, again, waited(ctx, "no answer to a Claim", s.faultOf())
		}
		if x.err == nil {
			return x.st, again, nil
		}
		if !x.err.Retryable() {
			return nil, again, x.err
		}
		again = again || x.err.Unknown || x.err.Code == wirev1.Code_CODE_UNAVAILABLE
		reconnect.Pause(ctx, max(x.err.RetryAfter, s.cfg.MinBackoff))
		if ctx.Err() != nil {
			return nil, again, x.err
		}
	}
}

// release ends the hold of a token.
func (s *Subscriber) release(ctx context.Context, resource string, token uint64, opts ...ReleaseOption) error {
	m := &wirev1.Claim{Resource: resource, Op: wirev1.Claim_OP_RELEASE, Token: token}
	for _, o := range opts {
		o(m)
	}
	st, again, err := s.call(ctx, m)
	if err == nil && st.GetState() != wirev1.ClaimState_STATE_RELEASED && !again {
		err = &Error{Code: wirev1.Code_CODE_NOT_HELD, Message: "it was not held any more"}
	}
	return err
}

// leaveLine gives a place in the line up, also one that became a hold meanwhile.
func (s *Subscriber) leaveLine(ctx context.Context, resource string) error {
	st, _, err := s.call(ctx, &wirev1.Claim{Resource: resource, Op: wirev1.Claim_OP_LEAVE})
	if err == nil && st.GetState() == wirev1.ClaimState_STATE_GRANTED {
		err = s.release(ctx, resource, st.GetToken())
	}
	s.mu.Lock()
	defer s.unlock()
	if w := s.watches[resource]; w != nil { // LEAVE has ended that, too
		w.tied = false
		w.pump()
	}
	return err
}
