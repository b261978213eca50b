package claims

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// MaxQueued is how many bytes of the edge's own frames may be queued for a connection before states
// of its claims wait, of which the last alone counts then.
const MaxQueued = 16 << 10

// answer answers a request with what is so, and notes what the connection is told from now on.
func (d *Desk) answer(k *Held, a request, st *wirev1.ClaimState) {
	has := st.GetState() == wirev1.ClaimState_STATE_GRANTED || st.GetState() == wirev1.ClaimState_STATE_QUEUED
	one := k.find(a.resource)
	if one == nil && (has || a.op == wirev1.Claim_OP_WATCH) {
		k.of = append(k.of, resource{name: a.resource, id: a.id})
		d.stats.Held++
		one = &k.of[len(k.of)-1]
	}
	if one != nil {
		d.push(k, one) // what was so before is told before
		one.noteToken(st)
		switch a.op {
		case wirev1.Claim_OP_ACQUIRE, wirev1.Claim_OP_CHECK:
			one.id, one.place = a.id, has
		case wirev1.Claim_OP_WATCH:
			one.id, one.place, one.watched = a.id, has, true
		case wirev1.Claim_OP_LEAVE:
			one.place, one.watched = has, false
		case wirev1.Claim_OP_RELEASE:
			// of a token that was not that of the hold it changes nothing, whatever it tells
			one.place = one.place && st.GetState() != wirev1.ClaimState_STATE_RELEASED
		case wirev1.Claim_OP_RENEW:
			one.place = has
		}
	}
	d.delivery.ClaimState(k.conn, stateWith(a.id, st))
	d.drop(k, one)
}

// Told tells of a change, and reports whether the connection is to be told of it. Where the client
// does not take what is queued, only the last state of a resource waits for it, but for the end of
// a place.
func (d *Desk) Told(k *Held, st *wirev1.ClaimState) bool {
	one := k.find(st.GetResource())
	if one == nil {
		return false
	}
	ended := false
	switch st.GetState() {
	case wirev1.ClaimState_STATE_GRANTED, wirev1.ClaimState_STATE_QUEUED:
		one.place = true
	case wirev1.ClaimState_STATE_LOST, wirev1.ClaimState_STATE_RELEASED:
		one.place, ended = false, true
	case wirev1.ClaimState_STATE_FREE, wirev1.ClaimState_STATE_HELD_BY_OTHER:
		if !one.watched {
			return false
		}
	}
	if one.unsent == nil {
		k.unsent++
	}
	if one.noteToken(st); one.taken && ended {
		st = stateWith(one.id, st)
		st.Code = wirev1.Code_CODE_FORBIDDEN
	}
	one.unsent = st
	// A place ends once for each that was asked for, and nothing is asked for by who takes no
	// answers.
	if ended || d.delivery.ControlBytes(k.conn) <= MaxQueued {
		d.push(k, one)
	}
	d.drop(k, one)
	d.weigh(k)
	return true
}

// noteToken notes that of a hold.
func (one *resource) noteToken(st *wirev1.ClaimState) {
	switch st.GetState() {
	case wirev1.ClaimState_STATE_GRANTED:
		one.token = st.GetToken()
	case wirev1.ClaimState_STATE_QUEUED:
		one.token = 0
	}
}

// Unsent is how many states wait until the client takes what is queued.
func (k *Held) Unsent() int {
	if k == nil {
		return 0
	}
	return k.unsent
}

// Flush tells what waits, once the client takes what is queued.
func (d *Desk) Flush(k *Held) {
	for i := 0; i < len(k.of) && k.unsent > 0 && d.delivery.ControlBytes(k.conn) <= MaxQueued; i++ {
		d.push(k, &k.of[i])
	}
	d.weigh(k)
}

// push tells what of one resource waits.
func (d *Desk) push(k *Held, one *resource) {
	if st := one.unsent; st != nil {
		one.unsent = nil
		k.unsent--
		d.stats.Pushes++
		d.delivery.ClaimState(k.conn, stateWith(one.id, st))
	}
}

// drop forgets a resource that the connection has no place at and does not watch. one may be nil.
func (d *Desk) drop(k *Held, one *resource) {
	if one == nil || one.place || one.watched {
		return
	}
	if one.unsent != nil {
		k.unsent--
	}
	d.stats.Held--
	i := slices.IndexFunc(k.of, func(o resource) bool { return o.name == one.name })
	k.of = slices.Delete(k.of, i, i+1)
}

// stateWith is the state under an id: st itself is shared.
func stateWith(id uint32, st *wirev1.ClaimState) *wirev1.ClaimState {
	return &wirev1.ClaimState{
		Id: id, Resource: st.GetResource(), State: st.GetState(), Token: st.GetToken(), Position: st.GetPosition(), ExpiresAt: st.GetExpiresAt(), Holder: st.GetHolder(),
		PollAfterMs: st.GetPollAfterMs(), ExpiresInMs: st.GetExpiresInMs(), Code: st.GetCode(), Holding: st.GetHolding(), Waiting: st.GetWaiting(),
	}
}
