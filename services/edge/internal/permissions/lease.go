package permissions

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// held is what a connection has because of answers.
type held struct {
	subs   map[leaseKey]*lease
	claims map[string]*lease // by resource
	asking int               // questions about them that are under way
	bytes  int               // that the connection is charged
}

// leaseKey names what a subscription has a lease for.
type leaseKey struct {
	id   uint32
	verb identity.Verb
}

// lease is for how long something may last because of an answer.
type lease struct {
	conn   exchange.Conn
	id     uint32 // of the subscription; 0: a claim
	grant  grant
	until  int64
	serial uint64 // of the question under way; 0: none
	lost   string // why it ends; "": it does not. A claim that is asked for still ends later
	due    timer
}

const (
	// leaseBytes is what a lease takes beside its names.
	leaseBytes = 384
	// mostAsking is how many leases of one connection are asked about at a time.
	mostAsking = 16
	// mostClaims is how many leases of claims a connection has before those are looked for whose
	// claim has ended: twice as many as it may have claims.
	mostClaims = 160
	// again is how soon a lease is looked at again that has to wait.
	again = 100 * time.Millisecond
	// grace is how long an answer that is under way may come late: less than the second in which
	// all ends that has none.
	grace = 800 * time.Millisecond
	// leaseSlice is how many leases are looked at in one go.
	leaseSlice = 32
)

func clone(s string) string { return strings.Clone(s) }

// copied is a question that others may keep.
func copied(q *identity.Question) *identity.Question {
	q.User, q.Client, q.Filter, q.Group = clone(q.User), clone(q.Client), clone(q.Filter), clone(q.Group)
	return q
}

func (l *lease) bytes() int {
	return leaseBytes + len(l.grant.filter) + len(l.grant.group)
}

// Kept is how many bytes a connection is charged for.
func (d *Desk) Kept(slot uint32) (bytes int) {
	if h := d.held[slot]; h != nil {
		bytes = h.bytes
	}
	return bytes
}

// Hold gives what the request in hand has begun its leases: a subscription with an id, or a claim,
// whose id is 0. What is granted by rights has none.
func (d *Desk) Hold(c exchange.Conn, id uint32) {
	for i := range d.grants {
		d.hold(c, id, &d.grants[i])
	}
	d.grants = d.grants[:0]
}

func (d *Desk) hold(c exchange.Conn, id uint32, g *grant) {
	if h := d.held[c.Slot]; h != nil && len(h.claims) >= mostClaims && g.verb == identity.Claim {
		d.prune(h)
	}
	h := d.held[c.Slot]
	if h == nil {
		h = &held{subs: map[leaseKey]*lease{}, claims: map[string]*lease{}}
		d.held[c.Slot] = h
	}
	l := h.subs[leaseKey{id, g.verb}]
	if g.verb == identity.Claim {
		l = h.claims[g.filter]
	}
	if l == nil {
		l = &lease{conn: c, id: id, grant: *g}
		l.grant.filter, l.grant.group = clone(g.filter), clone(g.group)
		l.due.fire = func() { d.look(l) }
		if g.verb == identity.Claim {
			h.claims[l.grant.filter] = l
		} else {
			h.subs[leaseKey{id, g.verb}] = l
		}
		d.stats.Leases++
		h.bytes += l.bytes()
		d.cfg.Delivery.Keep(c, l.bytes())
	}
	if l.lost != "" || g.until > l.until { // else it is asked about when it was to be
		l.lost = ""
		d.extend(l, g.until)
	}
}

// claimed is until when the connection in hand has a lease of what is claimed; 0: it has none.
func (d *Desk) claimed(g *grant) int64 {
	if h := d.held[d.at.Slot]; h != nil && g.verb == identity.Claim {
		if l := h.claims[g.filter]; l != nil && l.conn == d.at && l.lost == "" {
			return l.until
		}
	}
	return 0
}

// extend has a lease last until then, and be asked about before.
func (d *Desk) extend(l *lease, until int64) {
	l.until = until
	left := max(until-d.cfg.Now(), 0)
	// between half and four fifths of its time, so that those that began together are not asked
	// about together
	d.due.set(&l.due, until-left/5-rand.Int64N(left*3/10+1))
}

// prune drops leases of claims that have ended.
func (d *Desk) prune(h *held) {
	for _, l := range h.claims {
		if !d.cfg.Delivery.Claims(l.conn, l.grant.filter, false) {
			d.drop(l)
		}
	}
}

// Holds reports whether a subscription lasts because of answers: rights need not allow it.
func (d *Desk) Holds(c exchange.Conn, id uint32, verb identity.Verb) bool {
	h := d.held[c.Slot]
	if h == nil {
		return false
	}
	l := h.subs[leaseKey{id, verb}]
	return l != nil && l.conn == c && l.lost == ""
}

// Over drops the leases of a subscription that is over.
func (d *Desk) Over(slot, id uint32) {
	h := d.held[slot]
	if h == nil {
		return
	}
	for _, verb := range [...]identity.Verb{identity.Subscribe, identity.Group} {
		if l := h.subs[leaseKey{id, verb}]; l != nil {
			d.drop(l)
		}
	}
}

func (d *Desk) drop(l *lease) {
	h := d.held[l.conn.Slot]
	d.unask(h, l)
	d.due.clear(&l.due)
	if l.grant.verb == identity.Claim {
		delete(h.claims, l.grant.filter)
	} else {
		delete(h.subs, leaseKey{l.id, l.grant.verb})
	}
	d.stats.Leases--
	h.bytes -= l.bytes()
	d.cfg.Delivery.Keep(l.conn, -l.bytes())
	if len(h.subs)+len(h.claims) == 0 {
		delete(d.held, l.conn.Slot)
	}
}

// unask forgets the question about a lease.
func (d *Desk) unask(h *held, l *lease) {
	if l.serial != 0 {
		delete(d.asked, l.serial)
		l.serial = 0
		h.asking--
	}
}

// Tick looks at what is due; it is called ten times a second.
func (d *Desk) Tick() {
	if d.ending || !d.due.any(d.cfg.Now) {
		return
	}
	d.ending = true
	d.cfg.Jobs.Push(looking{d})
}

// looking looks at what is due.
type looking struct{ d *Desk }

// Step implements walk.Job.
func (j looking) Step() (done bool) {
	d := j.d
	for range leaseSlice {
		t := d.due.next(d.cfg.Now())
		if t == nil {
			d.ending = false
			return true
		}
		t.fire()
	}
	return false
}

// look asks about a lease, or ends what has it.
func (d *Desk) look(l *lease) {
	now, h := d.cfg.Now(), d.held[l.conn.Slot]
	d.cfg.Cost.Add(1)
	switch {
	case l.lost != "":
		d.end(l, wirev1.Code_CODE_FORBIDDEN, l.lost)
		return
	case d.granted(l):
		d.drop(l)
		return
	case l.grant.verb == identity.Claim && !d.cfg.Delivery.Claims(l.conn, l.grant.filter, false):
		d.drop(l)
		return
	case now >= l.until && (l.serial == 0 || now >= l.until+int64(grace)):
		d.stats.RanOut++
		d.end(l, wirev1.Code_CODE_UNAVAILABLE, "what the permission hook has said has run out, and it does not answer")
		return
	}
	if l.serial != 0 { // it was answered by nothing
		d.unask(h, l)
	}
	if h.asking >= mostAsking || now >= l.until {
		d.later(l, now)
		return
	}
	d.serial++
	if d.cfg.Asker.Ask(l.conn, d.serial, copied(d.question(l.conn, &l.grant)), time.Duration(l.until-now)) != nil {
		d.later(l, now)
		return
	}
	l.serial = d.serial
	d.asked[l.serial] = l
	h.asking++
	d.due.set(&l.due, min(l.until+int64(grace), now+int64(d.cfg.Asker.Patience())))
}

// later asks about a lease again, a few times before it runs out.
func (d *Desk) later(l *lease, now int64) {
	d.due.set(&l.due, min(l.until, now+max((l.until-now)/4, int64(again))))
}

// granted reports whether rights allow by now what has the lease.
func (d *Desk) granted(l *lease) bool {
	rights, known := d.cfg.Who.Rights(l.conn.Slot)
	filter := l.grant.filter
	if l.grant.verb == identity.Group {
		filter = l.grant.group + "/" + filter
	}
	d.cfg.Cost.Add(rights.Weight())
	_, allowed := rights.AllowsValid(l.grant.verb, filter)
	return known && allowed
}

// renewed takes the answer to a question about a lease.
func (d *Desk) renewed(l *lease, says identity.Permission, why *code.Error) {
	now, h := d.cfg.Now(), d.held[l.conn.Slot]
	d.unask(h, l)
	switch {
	case why != nil:
		d.later(l, now)
	case says.Allowed:
		d.extend(l, now+int64(max(says.Left, errorsLast)))
	default:
		d.stats.Ended++
		l.lost = "the permission hook does not allow it any more (rule permission-hook)" + says.Reason
		d.end(l, wirev1.Code_CODE_FORBIDDEN, l.lost)
	}
}

// end ends what has a lease. A claim is ended until it is gone: it may be asked for at this time,
// and the store may be away.
func (d *Desk) end(l *lease, why wirev1.Code, reason string) {
	if l.grant.verb != identity.Claim {
		d.drop(l)
		d.cfg.Delivery.EndSubscription(l.conn, l.id, why, reason)
		return
	}
	if l.lost = reason; !d.cfg.Delivery.Claims(l.conn, l.grant.filter, true) {
		d.drop(l)
		return
	}
	d.due.set(&l.due, d.cfg.Now()+int64(10*again))
}
