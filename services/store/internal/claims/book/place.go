package book

import (
	"math"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// successor is the priority of one who was named to have a resource next and can't have it at once:
// before all who came by themselves, and durable like theirs.
const successor = policy.MaxPriority + 1

// place of an owner at a resource. Times are Unix microseconds, durations microseconds, and 0 is
// none, as in a backend.ClaimPlace.
type place struct {
	r     *resource
	owner string
	seq   uint64
	// token of its hold; 0: it waits, in the line or among the prepared.
	token uint64
	// ttl as asked for; 0: the policy's.
	ttl                                           uint64
	joined, granted, expires, offered, gone, conn uint64
	node                                          *node // of its tie; nil: none
	// from its owner, where it waits without a tie
	heard uint64
	// of the line, of the timers, of the node's ties
	slot, timerAt, tieAt                   int32
	notified                               uint32 // position its connection was notified of last
	priority                               uint8
	bound, preparing, dirty, stored, ended bool
	counted                                bool // among its user's
}

// Slot is the line's.
func (p *place) Slot() *int32 { return &p.slot }

func (p *place) timer() *int32 { return &p.timerAt }

func (p *place) holds() bool { return p.token != 0 }

func (p *place) key() backend.ClaimKey { return backend.ClaimKey{Shard: p.r.shard.n, Seq: p.seq} }

func (p *place) row() backend.ClaimPlace {
	row := backend.ClaimPlace{
		ClaimKey: p.key(), Resource: p.r.name, Owner: p.owner, Priority: p.priority, Token: p.token, TTL: p.ttl,
		JoinedAt: p.joined, GrantedAt: p.granted, ExpiresAt: p.expires, OfferedUntil: p.offered, GoneAt: p.gone,
	}
	if p.node != nil {
		row.Node, row.Incarnation, row.Conn, row.Bound = p.node.name, p.node.incarnation, p.conn, p.bound
	}
	return row
}

// end is when a place ends by itself, and why. It depends on the policy of the moment, and is later
// when its owner is heard of: the timer of a place may be early, never late.
func (p *place) end() (at uint64, why wirev1.Code) {
	at = math.MaxUint64
	sooner := func(t uint64, c wirev1.Code) {
		if t < at {
			at, why = t, c
		}
	}
	if p.expires != 0 {
		sooner(p.expires, wirev1.Code_CODE_EXPIRED)
	}
	if p.offered != 0 {
		sooner(p.offered, wirev1.Code_CODE_ACK_TIMEOUT)
	}
	switch {
	case p.gone != 0:
		sooner(later(p.gone, p.r.rules.Grace), wirev1.Code_CODE_IDLE_TIMEOUT)
	case !p.holds() && p.node == nil:
		sooner(later(p.heard, p.r.rules.WaitTTL), wirev1.Code_CODE_IDLE_TIMEOUT)
	}
	return at, why
}

// holdEnd is when a hold ends that lasts for its own TTL, or for another that is not 0, from now
// on.
func (p *place) holdEnd(now, ttl uint64) uint64 {
	c := p.r.rules
	if ttl == 0 {
		ttl = p.ttl
	}
	if ttl == 0 {
		ttl = uint64(c.TTL.Microseconds())
	}
	end := now + min(ttl, uint64(c.MaxTTL.Microseconds()))
	if c.MaxHold > 0 {
		end = min(end, later(p.granted, c.MaxHold))
	}
	return end
}

func later(t uint64, d time.Duration) uint64 { return t + uint64(d.Microseconds()) }
