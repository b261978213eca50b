package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ErrHeldByOther is what Join and Acquire return with WithoutWaiting where others hold the resource
// or wait for it.
var ErrHeldByOther = errors.New("pushmesh: the resource is held by another")

// Place is a place at a resource: in the line for it, or holding it. It outlives connections:
// whoever is back within the grace of the namespace's policy has the same place. It owns no
// goroutine, and is safe for concurrent use.
type Place struct {
	r        *room
	request  *wirev1.Claim // ACQUIRE
	position func(position int)

	answered ext.Latch // opened at the first answer to ACQUIRE, or at the end
	granted  ext.Latch // opened once it is held
	ended    ext.Latch // opened at the end

	// Guarded by the Subscriber's lock.
	asking   bool      // a request is unanswered
	last     *asking   // request
	tied     bool      // the edge of the present connection tells of it
	token    uint64    // 0: it waits
	line     int       // position
	deadline time.Time // held for sure until then
	renewAt  time.Time
	pausedTo time.Time         // nothing is asked before
	pause    reconnect.Backoff // after refusals, since the last answer
	timer    *time.Timer
	refusal  *pushmesh.Error // the last
	err      error
}

// Option of Join and Acquire.
type Option interface{ apply(c *Place) }

type option func(c *Place)

func (o option) apply(c *Place) { o(c) }

// WithTTL is how long the hold lasts without being renewed, which the Place does; by default as the
// policy says, which also bounds it.
func WithTTL(d time.Duration) Option {
	return option(func(c *Place) { c.request.TtlMs = ext.Milliseconds(d) })
}

// WithPriority of the line to wait in, 0 to 9: a higher one goes first. The policy says how high
// clients may go.
func WithPriority(p uint32) Option {
	return option(func(c *Place) { c.request.Priority = p })
}

// WithMaxWait leaves the line after so long.
func WithMaxWait(d time.Duration) Option {
	return option(func(c *Place) { c.request.WaitMs = ext.Milliseconds(d) })
}

// WithoutWaiting has ErrHeldByOther returned where there would be a line to wait in.
func WithoutWaiting() Option {
	return option(func(c *Place) { c.request.NoWait = true })
}

// OnPosition is told the place in the line, 1 is next, whenever it changes. Behind the first 16
// that is once a second at most. It must not block.
func OnPosition(f func(position int)) Option {
	return option(func(c *Place) { c.position = f })
}

// Join asks for a resource and waits for the first answer: it is held, or waits in the line from
// then on; see Wait. ctx bounds the wait for the answer alone. The owner of the place is the
// client: two Subscribers with one ClientID have one place, of which the last to ask is told.
func Join(ctx context.Context, s *pushmesh.Subscriber, resource string, opts ...Option) (*Place, error) {
	r := roomOf(s)
	done, err := r.Waits(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c := &Place{
		r: r, request: &wirev1.Claim{Resource: resource}, answered: make(ext.Latch), granted: make(ext.Latch), ended: make(ext.Latch), pause: r.backoff(),
	}
	for i, o := range opts {
		if o == nil {
			return nil, &pushmesh.ConfigError{Field: "Option", Problem: fmt.Sprintf("%d of the claim of %.40q is nil", i+1, resource)}
		}
		o.apply(c)
	}
	r.Lock()
	switch err := r.Over(); {
	case err != nil:
		defer r.Unlock()
		return nil, err
	case r.claims[resource] != nil:
		defer r.Unlock()
		return nil, &pushmesh.Error{Code: pushmesh.CodeAlreadyExists, Message: "this Subscriber has a claim on the resource already"}
	}
	r.claims[resource] = c
	c.pump(time.Now())
	r.Unlock()
	select {
	case <-c.answered:
	case <-ctx.Done():
		c.giveUp()
		return nil, c.late(r.Waited(ctx, "not claimed"))
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// late is err with the refusal that was to be waited for.
func (c *Place) late(err error) error {
	c.r.Lock()
	defer c.r.Unlock()
	if c.refusal != nil {
		return fmt.Errorf("%w, after %w", err, c.refusal)
	}
	return err
}

// Acquire is Join and Wait: it returns once the resource is held. Where that fails, or ctx ends,
// it leaves the line.
func Acquire(ctx context.Context, s *pushmesh.Subscriber, resource string, opts ...Option) (*Place, error) {
	c, err := Join(ctx, s, resource, opts...)
	if err != nil {
		return nil, err
	}
	if err := c.Wait(ctx); err != nil {
		c.giveUp()
		return nil, err
	}
	return c, nil
}

// Wait waits until the resource is held. It fails where the place in the line was lost; ctx bounds
// the wait alone, and the place stays.
func (c *Place) Wait(ctx context.Context) error {
	if !c.granted.IsOpen() && !c.ended.IsOpen() {
		done, err := c.r.Waits(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	select {
	case <-c.granted:
	case <-c.ended:
		if err := c.Err(); err != nil {
			return err
		}
		return pushmesh.ErrClosed
	case <-ctx.Done():
		return c.r.Waited(ctx, "not granted")
	}
	return nil
}

// Resource claimed.
func (c *Place) Resource() string { return c.request.GetResource() }

// Held reports whether the resource is held now, for sure as far as this process's clock can tell.
// What must not be touched by a former holder checks the Token.
func (c *Place) Held() bool {
	c.r.Lock()
	defer c.r.Unlock()
	return c.held(time.Now())
}

// Deadline is until when the resource is held for sure; it moves on with every renewal. Zero while
// it is not held.
func (c *Place) Deadline() time.Time {
	c.r.Lock()
	defer c.r.Unlock()
	return c.deadline
}

// Token is the fencing token of the hold: greater than that of every hold of the resource before. 0
// while it waits.
func (c *Place) Token() uint64 {
	c.r.Lock()
	defer c.r.Unlock()
	if c.deadline.IsZero() {
		return 0 // an offer is no hold
	}
	return c.token
}

// Position in the line, 1 is next; 0 once it is held.
func (c *Place) Position() int {
	c.r.Lock()
	defer c.r.Unlock()
	return c.line
}

// Lost is closed once the place is over: the hold expired, was not renewed in time so that this
// process can't be sure of it any more, or the place in the line was lost. It is closed by Release
// and Leave, too.
func (c *Place) Lost() <-chan struct{} { return c.ended }

// Err says why the place is over; nil while it is not, and after Release and Leave.
func (c *Place) Err() error {
	c.r.Lock()
	defer c.r.Unlock()
	return c.err
}

// ReleaseOption of Place.Release.
type ReleaseOption interface{ applyRelease(m *wirev1.Claim) }

type releaseOption func(m *wirev1.Claim)

func (o releaseOption) applyRelease(m *wirev1.Claim) { o(m) }

// WithSuccessor names who has the resource next, before everybody who waits: "client:" and a
// ClientID, or a backend's owner as it is.
func WithSuccessor(owner string) ReleaseOption {
	return releaseOption(func(m *wirev1.Claim) { m.Successor = owner })
}

// Release ends the hold, which counts as lost from the call on, and waits until the mesh has
// confirmed it. NOT_HELD: it was lost before. Where ctx ends first, it ends with its TTL at the
// latest. A claim that waits leaves the line.
func (c *Place) Release(ctx context.Context, opts ...ReleaseOption) error {
	done, err := c.r.Waits(ctx)
	if err != nil {
		return err
	}
	defer done()
	token, over := c.abandon()
	if over || token == 0 {
		return c.leave(ctx, over)
	}
	return c.r.release(ctx, c.Resource(), token, opts...)
}

// Leave gives the place up, whichever it is, and waits until the mesh has confirmed it.
func (c *Place) Leave(ctx context.Context) error {
	done, err := c.r.Waits(ctx)
	if err != nil {
		return err
	}
	defer done()
	token, over := c.abandon()
	if token != 0 && !over {
		return c.r.release(ctx, c.Resource(), token)
	}
	return c.leave(ctx, over)
}

// abandon ends the claim here; over says that it had ended.
func (c *Place) abandon() (token uint64, over bool) {
	c.r.Lock()
	defer c.r.Unlock()
	over = c.over()
	c.end(nil)
	return c.token, over
}

func (c *Place) leave(ctx context.Context, over bool) error {
	if over {
		return c.Err()
	}
	return c.r.leaveLine(ctx, c.Resource())
}

// giveUp leaves without waiting for it. Where there is no connection nothing is asked: the place
// ends with the grace. A watch of the resource goes on.
func (c *Place) giveUp() {
	if _, over := c.abandon(); over {
		return
	}
	c.r.Lock()
	defer c.r.Unlock()
	if c.r.Link() != nil {
		c.r.ask(&asking{m: &wirev1.Claim{Resource: c.Resource(), Op: wirev1.Claim_OP_LEAVE}, done: func(_ time.Time, st *wirev1.ClaimState, _ *pushmesh.Error) {
			if st.GetState() == wirev1.ClaimState_STATE_GRANTED {
				c.r.ask(&asking{m: &wirev1.Claim{Resource: c.Resource(), Op: wirev1.Claim_OP_RELEASE, Token: st.GetToken()}, done: unheard})
			}
			if w := c.r.watches[c.Resource()]; w != nil && st != nil { // LEAVE has ended that, too
				w.tied = false
				w.pump()
			}
		}})
	}
}

// minRenewal is the shortest pause between renewals of a hold: one that may last no longer is
// renewed in vain.
const minRenewal = 50 * time.Millisecond

// What follows is called with the Subscriber's lock held.

func (c *Place) over() bool { return c.ended.IsOpen() }

func (c *Place) held(now time.Time) bool { return !c.over() && now.Before(c.deadline) }

// pump asks what is to be asked now, and sets the timer for what is later: one request at a time.
// With a token that is RENEW, which takes an offer up, lasts over reconnects and never joins a
// line; without one, ACQUIRE on each connection.
func (c *Place) pump(now time.Time) {
	if c.over() {
		return
	}
	if !c.deadline.IsZero() && !now.Before(c.deadline) {
		c.end(&pushmesh.Error{Code: pushmesh.CodeUnavailable, Message: "the hold could not be renewed in time", Unknown: true})
		return
	}
	due := c.pausedTo
	if c.token != 0 && c.tied && c.renewAt.After(due) {
		due = c.renewAt
	}
	switch {
	case c.asking || c.r.Link() == nil || c.token == 0 && c.tied:
		due = c.deadline
	case !now.Before(due):
		c.asking, due = true, c.deadline
		m := c.request
		if c.token != 0 {
			m = &wirev1.Claim{Resource: c.Resource(), Op: wirev1.Claim_OP_RENEW, Token: c.token, TtlMs: c.request.GetTtlMs()}
		}
		c.last = &asking{m: m, done: func(sent time.Time, st *wirev1.ClaimState, err *pushmesh.Error) { c.answer(m.GetOp(), sent, st, err) }}
		c.r.ask(c.last)
	case !c.deadline.IsZero() && c.deadline.Before(due):
		due = c.deadline
	}
	c.wake(now, due)
}

// wake has pump called at a time; zero: not by the clock.
func (c *Place) wake(now, at time.Time) {
	if c.timer != nil {
		c.timer.Stop()
	}
	if at.IsZero() || c.over() {
		return
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(at.Sub(now), func() {
			c.r.Lock()
			defer c.r.Unlock()
			c.pump(time.Now())
		})
		return
	}
	c.timer.Reset(at.Sub(now))
}

// answer takes what came of a request that was sent at a time.
func (c *Place) answer(op wirev1.Claim_Op, sent time.Time, st *wirev1.ClaimState, err *pushmesh.Error) {
	c.asking = false
	if c.over() {
		return
	}
	now := time.Now()
	switch {
	case err != nil && (err.Unknown || err.Retryable()):
		c.tied, c.refusal = false, err
		c.pausedTo = time.Time{}
		if !err.Unknown { // otherwise another connection is the pause
			c.pausedTo = now.Add(c.pauseAfter(err, now))
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
		c.end(&pushmesh.Error{Code: pushmesh.CodeNotHeld, Message: "the place is gone"})
	}
	if err == nil {
		c.pause.Reset()
		c.answered.Open()
	}
	c.pump(now)
}

// pauseAfter is how long to wait after a refusal for now: of what is held a third of what is left
// at most, so that it is asked again in time, but never less than the mesh asked for.
func (c *Place) pauseAfter(err *pushmesh.Error, now time.Time) time.Duration {
	d := c.pause.Next(err.RetryAfter)
	if left := c.deadline.Sub(now); !c.deadline.IsZero() && d > left/3 {
		low, _ := c.r.Backoff()
		return max(err.RetryAfter, left/3, low)
	}
	return d
}

// hold notes that the resource is held for as long as the answer said, counted from before it was
// asked.
func (c *Place) hold(sent time.Time, st *wirev1.ClaimState) {
	left := time.Duration(st.GetExpiresInMs()) * time.Millisecond
	c.token, c.line = st.GetToken(), 0
	c.deadline = sent.Add(left)
	c.renewAt = sent.Add(max(left/3, minRenewal))
	c.granted.Open()
}

func (c *Place) queued(st *wirev1.ClaimState) {
	if at := int(st.GetPosition()); at != c.line {
		c.line = at
		if f := c.position; f != nil {
			c.r.Later(func() { f(at) })
		}
	}
}

// told takes a state that was not asked for.
func (c *Place) told(st *wirev1.ClaimState) {
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
			c.end(&pushmesh.Error{Code: pushmesh.CodeNotHeld, Message: "another process of this client has the place now"})
		}
	case wirev1.ClaimState_STATE_LOST, wirev1.ClaimState_STATE_RELEASED:
		if c.token != 0 && st.GetToken() != 0 && st.GetToken() != c.token {
			return
		}
		why := &pushmesh.Error{Code: pushmesh.Code(st.GetCode()), Message: "the place was lost"}
		if st.GetState() == wirev1.ClaimState_STATE_RELEASED {
			why = &pushmesh.Error{Code: pushmesh.CodeNotHeld, Message: "the place was given up elsewhere"}
		}
		c.end(why)
	case wirev1.ClaimState_STATE_FREE, wirev1.ClaimState_STATE_HELD_BY_OTHER: // for who watches
	}
}

// end is the end; it may come often.
func (c *Place) end(err error) {
	if c.over() {
		return
	}
	c.err = err
	c.deadline = time.Time{}
	c.ended.Open()
	c.answered.Open()
	if c.last != nil {
		c.last.dead = true
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	delete(c.r.claims, c.Resource())
	if c.r.unwatched[c.Resource()] && c.r.Link() != nil {
		c.r.ask(&asking{m: &wirev1.Claim{Resource: c.Resource(), Op: wirev1.Claim_OP_LEAVE}, done: unheard})
	}
	delete(c.r.unwatched, c.Resource())
}
