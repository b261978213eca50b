package pushmesh

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// minRenewal is the shortest pause between renewals of a hold: one that may last no longer is
// renewed in vain.
const minRenewal = 50 * time.Millisecond

// What follows is called with Subscriber.mu held.

func (c *Claim) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *Claim) held(now time.Time) bool { return !c.over() && now.Before(c.deadline) }

// pump asks what is to be asked now, and sets the timer for what is later: one request at a time.
// With a token that is RENEW, which takes an offer up, lasts over reconnects and never joins a
// line; without one, ACQUIRE on each connection.
func (c *Claim) pump(now time.Time) {
	if c.over() {
		return
	}
	if !c.deadline.IsZero() && !now.Before(c.deadline) {
		c.end(&Error{Code: wirev1.Code_CODE_UNAVAILABLE, Message: "the hold could not be renewed in time", Unknown: true})
		return
	}
	due := c.pausedTo
	if c.token != 0 && c.tied && c.renewAt.After(due) {
		due = c.renewAt
	}
	switch {
	case c.asking || c.s.link == nil || c.token == 0 && c.tied:
		due = c.deadline
	case !now.Before(due):
		c.asking, due = true, c.deadline
		m := c.request
		if c.token != 0 {
			m = &wirev1.Claim{Resource: c.Resource(), Op: wirev1.Claim_OP_RENEW, Token: c.token, TtlMs: c.request.GetTtlMs()}
		}
		c.s.ask(&claimAsk{m: m, done: func(sent time.Time, st *wirev1.ClaimState, err *Error) { c.answer(m.GetOp(), sent, st, err) }})
	case !c.deadline.IsZero() && c.deadline.Before(due):
		due = c.deadline
	}
	c.wake(now, due)
}

// wake has pump called at a time; zero: not by the clock.
func (c *Claim) wake(now, at time.Time) {
	if c.timer != nil {
		c.timer.Stop()
	}
	if at.IsZero() || c.over() {
		return
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(at.Sub(now), func() {
			c.s.mu.Lock()
			defer c.s.unlock()
			c.pump(time.Now())
		})
		return
	}
	c.timer.Reset(at.Sub(now))
}

// answer takes what came of a request that was sent at a time.
func (c *Claim) answer(op wirev1.Claim_Op, sent time.Time, st *wirev1.ClaimState, err *Error) {
	c.asking = false
	if c.over() {
		return
	}
	now := time.Now()
	switch {
	case err != nil && (err.Unknown || err.Retryable()):
		c.tied, c.refusal = false, err
		c.pausedTo = now.Add(max(err.RetryAfter, c.s.cfg.MinBackoff))
		if err.Unknown {
			c.pausedTo = time.Time{} // another connection is the pause
		}
	case err != nil:
		c.end(err)
	case st.GetState() == wirev1.ClaimState_STATE_GRANTED:
		c.tied, c.pausedTo = true, time.Time{}
		c.hold(sent, st)
	case op == wirev1.Claim_OP_ACQUIRE && st.GetState() == wirev1.ClaimState_STATE_QUEUED:
		c.tied, c.pausedTo = true, time.Time{}
		c.queued(st)
	case c.request.GetNoWait():
		c.end(ErrHeldByOther)
	default:
		c.end(&Error{Code: wirev1.Code_CODE_NOT_HELD, Message: "the place is gone"})
	}
	if err == nil {
		c.hasAnswer()
	}
	c.pump(now)
}

// hold notes that the resource is held for as long as the answer said, counted from before it was
// asked.
func (c *Claim) hold(sent time.Time, st *wirev1.ClaimState) {
	left := time.Duration(st.GetExpiresInMs()) * time.Millisecond
	c.token, c.line = st.GetToken(), 0
	c.deadline = sent.Add(left)
	c.renewAt = sent.Add(max(left/3, minRenewal))
	select {
	case <-c.granted:
	default:
		close(c.granted)
	}
}

func (c *Claim) queued(st *wirev1.ClaimState) {
	if at := int(st.GetPosition()); at != c.line {
		c.line = at
		if f := c.position; f != nil {
			c.s.later(func() { f(at) })
		}
	}
}

// told takes a state that was not asked for.
func (c *Claim) told(st *wirev1.ClaimState) {
	if c.over() || !c.tied {
		return // of a place before this one
	}
	switch st.GetState() {
	case wirev1.ClaimState_STATE_QUEUED:
		if c.token == 0 {
			c.queued(st)
		}
	case wirev1.ClaimState_STATE_GRANTED:
		switch c.token {
		case st.GetToken():
		case 0: // how long ago it was granted is not known: it is held once RENEW was answered
			c.token, c.renewAt = st.GetToken(), time.Time{}
			c.pump(time.Now())
		default:
			c.end(&Error{Code: wirev1.Code_CODE_NOT_HELD, Message: "another process of this client has the place now"})
		}
	case wirev1.ClaimState_STATE_LOST, wirev1.ClaimState_STATE_RELEASED:
		if c.token != 0 && st.GetToken() != 0 && st.GetToken() != c.token {
			return
		}
		why := &Error{Code: st.GetCode(), Message: "the place was lost"}
		if st.GetState() == wirev1.ClaimState_STATE_RELEASED {
			why = &Error{Code: wirev1.Code_CODE_NOT_HELD, Message: "the place was given up elsewhere"}
		}
		c.end(why)
	case wirev1.ClaimState_STATE_FREE, wirev1.ClaimState_STATE_HELD_BY_OTHER: // for who watches
	}
}

// end is the end; it may come often.
func (c *Claim) end(err error) {
	if c.over() {
		return
	}
	c.err = err
	c.deadline = time.Time{}
	close(c.ended)
	c.hasAnswer()
	if c.timer != nil {
		c.timer.Stop()
	}
	delete(c.s.claims, c.Resource())
	if c.s.unwatched[c.Resource()] && c.s.link != nil {
		c.s.ask(&claimAsk{m: &wirev1.Claim{Resource: c.Resource(), Op: wirev1.Claim_OP_LEAVE}, done: unheard})
	}
	delete(c.s.unwatched, c.Resource())
}

func (c *Claim) hasAnswer() {
	select {
	case <-c.answered:
	default:
		close(c.answered)
	}
}
