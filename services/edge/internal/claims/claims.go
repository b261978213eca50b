// Package claims is what an event loop knows of the claims of its connections: the resources that
// each is told of, its requests that are not answered, and what it is to be told next. The stores
// decide who holds a resource; package handover carries requests to them.
package claims

import (
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Delivery is what claims need of the loop's connections.
type Delivery interface {
	// ControlBytes is how many bytes of the edge's own frames are queued for a connection.
	ControlBytes(c exchange.Conn) int
	// ClaimState queues what a connection is told of a resource.
	ClaimState(c exchange.Conn, st *wirev1.ClaimState)
	// RefuseRequest answers a request with an Error.
	RefuseRequest(c exchange.Conn, ref uint32, why *code.Error)
	// Keep charges a connection for so many bytes more that are kept for it.
	Keep(c exchange.Conn, bytes int)
}

// Desk takes the claims of a loop's connections. It is used by that loop alone.
type Desk struct {
	delivery Delivery
	mesh     exchange.Claims
	stats    Stats
}

// New makes a desk.
func New(d Delivery, mesh exchange.Claims) *Desk { return &Desk{delivery: d, mesh: mesh} }

const (
	// MaxHeld is how many resources a connection may have a place at or watch, those that it asks
	// for now among them.
	MaxHeld = 64
	// MaxAsked is how many of its requests may be unanswered.
	MaxAsked = 16
	// askedRetry and heldRetry are when to try again what is beyond these.
	askedRetry = 100 * time.Millisecond
	heldRetry  = time.Second
)

// Held is what one connection claims. One that has claimed has it until it ends: an answer that did
// not come may have tied a place to it. Methods take a nil one for a connection that never claimed.
type Held struct {
	conn  exchange.Conn
	id    uint64
	of    []resource
	asked []request
	// unsent of the resources have a state that waits until the client takes what is queued.
	unsent int
	// kept is what the connection is charged, in bytes; ended: it is not charged any more.
	kept  int
	ended bool
}

// resource is one at which the connection's owner has a place, or that it watches, or both.
type resource struct {
	name    string
	id      uint32 // of the request that pushes are told under
	token   uint64 // of the hold; 0: the place is none, or is waited for
	place   bool
	watched bool
	taken   bool               // it is taken back
	unsent  *wirev1.ClaimState // nil: what is known was told
}

type request struct {
	id       uint32
	op       wirev1.Claim_Op
	resource string
	names    int // bytes of all names in it
}

// find is nil where the connection is told nothing of a resource. It is good until one is added or
// removed.
func (k *Held) find(name string) *resource {
	if k == nil {
		return nil
	}
	for i := range k.of {
		if k.of[i].name == name {
			return &k.of[i]
		}
	}
	return nil
}

// Asks reports whether an id is of a request that is not answered.
func (k *Held) Asks(id uint32) bool { return k != nil && k.asking(id) >= 0 }

func (k *Held) asking(id uint32) int {
	return slices.IndexFunc(k.asked, func(a request) bool { return a.id == id })
}

// Waits reports whether any request is unanswered.
func (k *Held) Waits() bool { return k != nil && len(k.asked) > 0 }

// Full is a refusal where the connection has as many requests or resources as it may.
func (k *Held) Full(m *wirev1.Claim) *code.Error {
	if k == nil {
		return nil
	}
	if len(k.asked) >= MaxAsked {
		return code.Retry(wirev1.Code_CODE_RATE_LIMITED, askedRetry, "the connection has too many unanswered claims")
	}
	ends := m.GetOp() == wirev1.Claim_OP_RELEASE || m.GetOp() == wirev1.Claim_OP_LEAVE
	if !ends && len(k.of)+len(k.asked) >= MaxHeld && k.find(m.GetResource()) == nil {
		return code.Retry(wirev1.Code_CODE_RATE_LIMITED, heldRetry, "the connection is at its limit of claimed resources")
	}
	return nil
}

// Ask hands a request on to the stores that was found good. id names the connection to them; k is
// what it claims, nil the first time. It returns what the connection claims from now on.
func (d *Desk) Ask(k *Held, conn exchange.Conn, id uint64, owner string, m *wirev1.Claim) *Held {
	if k == nil {
		k = &Held{conn: conn, id: id}
	}
	k.asked = append(k.asked, request{m.GetId(), m.GetOp(), m.GetResource(), len(m.GetResource()) + len(m.GetSuccessor()) + len(owner)})
	d.weigh(k)
	d.mesh.Claim(conn, m.GetId(), &meshv1.ClaimOp{
		Kind: meshv1.ClaimOp_Kind(m.GetOp()), Resource: m.GetResource(), Owner: owner, Token: m.GetToken(), TtlMs: m.GetTtlMs(), Priority: m.GetPriority(),
		Successor: m.GetSuccessor(), WaitMs: m.GetWaitMs(), NoWait: m.GetNoWait(), Conn: id, Bound: true,
	})
	return k
}

// What is kept beside names, in bytes: for a connection that has claimed, for a request until it is
// answered, here and on its way to the stores, for a resource, and for a state that waits.
const (
	heldBytes     = 256
	askedBytes    = 768
	resourceBytes = 128
	stateBytes    = 320
)

// Adds is about how many bytes more a request has the edge keep; 0: none, for long.
func Adds(m *wirev1.Claim) int {
	if m.GetOp() != wirev1.Claim_OP_ACQUIRE && m.GetOp() != wirev1.Claim_OP_WATCH {
		return 0
	}
	return askedBytes + resourceBytes + 2*len(m.GetResource())
}

// Kept is how many bytes the connection is charged.
func (k *Held) Kept() int {
	if k == nil {
		return 0
	}
	return k.kept
}

// bytes is how many it should be.
func (k *Held) bytes() int {
	n := heldBytes
	for i := range k.of {
		one := &k.of[i]
		if n += resourceBytes + len(one.name); one.unsent != nil {
			n += stateBytes + len(one.unsent.GetResource()) + len(one.unsent.GetHolder())
		}
	}
	for i := range k.asked {
		n += askedBytes + k.asked[i].names
	}
	return n
}

// weigh charges the connection for what has come, and gives back what has gone.
func (d *Desk) weigh(k *Held) {
	n := 0
	if !k.ended {
		n = k.bytes()
	}
	d.delivery.Keep(k.conn, n-k.kept)
	k.kept = n
}

// End is for a connection that closes.
func (d *Desk) End(k *Held) {
	if k != nil {
		k.ended = true
		d.weigh(k)
		d.mesh.EndClaims(k.id)
		d.stats.Held -= int64(len(k.of))
	}
}

// Concerns reports whether the connection has a place at a resource, watches it, or asks for it.
func (k *Held) Concerns(name string) bool { return k.find(name) != nil || k.asksFor(name) }

func (k *Held) asksFor(name string) bool {
	return k != nil && slices.ContainsFunc(k.asked, func(a request) bool { return a.resource == name })
}

// TakeBack gives up what the connection has at a resource, for owner, whose client may not have it
// any more and is told so. It reports whether something is left for now: then it is called again
// after a while.
func (d *Desk) TakeBack(k *Held, name, owner string) (left bool) {
	one := k.find(name)
	if one == nil {
		return k.asksFor(name)
	}
	if !one.place {
		d.push(k, one)
		d.delivery.ClaimState(k.conn, &wirev1.ClaimState{Id: one.id, Resource: name, State: wirev1.ClaimState_STATE_LOST, Code: wirev1.Code_CODE_FORBIDDEN})
		one.watched = false
		d.drop(k, one)
		d.weigh(k)
		return k.asksFor(name)
	}
	one.watched, one.taken = false, true
	op := &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_LEAVE, Resource: name, Owner: owner}
	if one.token != 0 {
		op.Kind, op.Token = meshv1.ClaimOp_KIND_RELEASE, one.token
	}
	d.mesh.Claim(k.conn, 0, op) // of no connection, so that this one is told
	return true
}

// Lose takes back the places in lines and the watches that are denied to owner from now on. What it
// holds stays.
func (d *Desk) Lose(k *Held, owner string, denied func(resource string) bool) {
	if k == nil {
		return
	}
	for i := len(k.of) - 1; i >= 0; i-- {
		switch one := &k.of[i]; {
		case !denied(one.name):
		case one.token != 0:
			one.watched = false
		default:
			d.TakeBack(k, one.name, owner)
		}
	}
}

// Answered answers a request, and reports whether there is one.
func (d *Desk) Answered(k *Held, e exchange.Claimed) bool {
	if !k.Asks(e.ID) {
		return false
	}
	i, r := k.asking(e.ID), e.Result
	a := k.asked[i]
	k.asked = slices.Delete(k.asked, i, i+1)
	if r.GetCode() == wirev1.Code_CODE_OK {
		d.stats.Count(a.op, r.GetState().GetCode())
		d.answer(k, a, r.GetState())
	} else {
		d.stats.Count(a.op, r.GetCode())
		after := time.Duration(r.GetRetryAfterMs()) * time.Millisecond
		d.delivery.RefuseRequest(k.conn, a.id, &code.Error{Code: r.GetCode(), Message: r.GetError(), RetryAfter: after})
	}
	d.weigh(k)
	return true
}
