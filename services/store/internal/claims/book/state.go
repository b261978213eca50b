package book

import (
	"math"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// soonest is the least time after which one is asked to try again.
const soonest = 100 * time.Millisecond

// placeState is the state of a place, as its owner sees it: GRANTED or QUEUED.
func (b *Book) placeState(p *place, now uint64) *wirev1.ClaimState {
	if p.holds() {
		return b.granted(p, now)
	}
	return b.queued(p, p.r.position(p), now)
}

func (b *Book) granted(p *place, now uint64) *wirev1.ClaimState {
	return &wirev1.ClaimState{
		Resource: p.r.name, State: wirev1.ClaimState_STATE_GRANTED, Token: p.token, ExpiresAt: p.expires, ExpiresInMs: left(p.expires, now),
		Holder: p.owner, Holding: uint32(len(p.r.holds)), Waiting: uint32(p.r.waiting()),
	}
}

// queued has the end of the wait in its expires_at, 0 where it has none.
func (b *Book) queued(p *place, position int, now uint64) *wirev1.ClaimState {
	r := p.r
	st := &wirev1.ClaimState{
		Resource: r.name, State: wirev1.ClaimState_STATE_QUEUED, Position: uint32(position), ExpiresAt: p.expires, ExpiresInMs: left(p.expires, now),
		Holding: uint32(len(r.holds)), Waiting: uint32(r.waiting()),
	}
	if len(r.holds) > 0 {
		st.Holder = r.holds[0].owner
	}
	if p.node == nil {
		st.PollAfterMs = ms(r.rules.WaitTTL / 3)
	}
	return st
}

// resourceState is what those without a place there see of a resource; r may be nil.
// FREE: nobody holds it, or is just about to.
func (b *Book) resourceState(r *resource, name string, now uint64) *wirev1.ClaimState {
	st := &wirev1.ClaimState{Resource: name, State: wirev1.ClaimState_STATE_FREE}
	if r == nil {
		return st
	}
	pub := r.public()
	st.State, st.Holder, st.Holding, st.Waiting = pub.state, pub.holder, uint32(pub.holding), uint32(pub.waiting)
	if r.taken() {
		st.ExpiresAt = r.firstEnd()
		st.ExpiresInMs = left(st.ExpiresAt, now)
		st.PollAfterMs = ms(again(r, now))
	}
	return st
}

// again is when it may help to try again: when the first hold ends by itself, in a third of
// wait_ttl at the latest.
func again(r *resource, now uint64) time.Duration {
	most := r.rules.WaitTTL / 3
	end := r.firstEnd()
	if end == 0 {
		return most
	}
	return min(max(time.Duration(end-min(end, now))*time.Microsecond, soonest), most)
}

// left until a time, in ms; 0 where there is none.
func left(until, now uint64) uint32 {
	return uint32(min((until-min(until, now))/1000, math.MaxUint32))
}

func ms(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), math.MaxUint32)) }
