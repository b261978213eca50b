package book

import (
	"fmt"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// errNumbers: the shard is to be taken again (Book.Low).
var errNumbers = code.New(wirev1.Code_CODE_UNAVAILABLE, "the shard's numbers are used up")

// acquire is ACQUIRE. Who has a place has it; a newcomer is granted what is free where nobody
// waits, or joins its priority's line.
func (b *Book) acquire(s *shard, r *resource, p *place, op *Op, now uint64) (*wirev1.ClaimState, error) {
	if p != nil {
		b.takeUp(p, op, now)
		return b.state(r, p, op, now), nil
	}
	rules := b.cfg.Rules(op.GetResource())
	if err := checkMaxTTL(op, rules); err != nil {
		return nil, err
	}
	if s.short() {
		return nil, errNumbers
	}
	// Since fill was here nobody waits where there is room.
	full := r != nil && r.room() <= 0
	switch {
	case full && op.GetNoWait():
		return b.resourceState(r, op.GetResource(), now), nil
	case b.places >= b.cfg.Places:
		return nil, code.Retry(wirev1.Code_CODE_OVERLOADED, rules.WaitTTL/3, "too many places")
	case full && r.waiting() >= rules.MaxWaiting:
		return nil, code.Retry(wirev1.Code_CODE_OVERLOADED, again(r, now), "the line is full")
	case op.GetBound() && b.users.full(op.GetOwner(), b.cfg.UserPlaces):
		return nil, code.Retry(wirev1.Code_CODE_RATE_LIMITED, rules.WaitTTL/3, fmt.Sprintf("the user's clients have %d places at resources of this store, and more are too many (--user-claims)", b.cfg.UserPlaces))
	}
	p = b.newcomer(b.resource(s, op.GetResource()), op, now)
	return b.state(p.r, p, op, now), nil
}

func (b *Book) newcomer(r *resource, op *Op, now uint64) *place {
	p := &place{
		r: r, owner: op.GetOwner(), seq: r.shard.number(), ttl: uint64(milliseconds(op.GetTtlMs()).Microseconds()),
		priority: uint8(op.GetPriority()), joined: now, heard: now,
	}
	if wait := waits(op, r.rules); wait != 0 {
		p.expires = now + wait
	}
	b.admit(p)
	b.enter(p, now)
	if op.GetConn() != 0 && op.Node != "" {
		b.tie(p, op)
	}
	b.arm(p)
	return p
}

// admit puts a place into the book; where it stands is the caller's.
func (b *Book) admit(p *place) {
	p.r.shard.places[placeID{p.r, p.owner}] = p
	b.places++
	b.changed(p)
	b.moved(p.r)
}

// enter grants to a newcomer what is free: it is taken up, since the answer reports it. With a call
// to make before, it waits for that. Otherwise it joins the line.
func (b *Book) enter(p *place, now uint64) {
	r := p.r
	switch {
	case r.room() <= 0 || r.inLine() > 0 || r.rules.Prepare == nil && len(r.prepared) > 0:
		r.join(p)
	case r.rules.Prepare != nil:
		b.prepare(p)
	default:
		b.grant(p, r.shard.number(), now)
	}
}

// waits is how long an operation's owner may wait, in µs; 0: no limit.
func waits(op *Op, c *policy.Claims) uint64 {
	asked, most := milliseconds(op.GetWaitMs()), c.MaxWait
	if asked == 0 || most != 0 && most < asked {
		asked = most
	}
	return uint64(asked.Microseconds())
}
