// Package permissions is what an event loop knows of what users may do because a backend says so,
// which is asked where their rights do not allow it (package asker asks it). The request waits
// meanwhile: its connection is not read, and the request is given again once the answer has come.
// What lasts, a subscription or a claim, has a lease, which is asked about again before it runs
// out.
package permissions

import (
	"math/rand/v2"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Asker asks. Its methods never block.
type Asker interface {
	// Known is an answer from before that is still good; false: there is none.
	Known(q *identity.Question) (identity.Permission, bool)
	// Ask has a question answered by exchange.Permitted, unless it is refused. An answer from
	// before is good for it where it lasts longer than have.
	Ask(conn exchange.Conn, serial uint64, q *identity.Question, have time.Duration) *code.Error
	// Patience is after how long an answer does not come any more.
	Patience() time.Duration
}

// Delivery is what permissions need of the loop's connections.
type Delivery interface {
	// Park has a connection not be read, or read again.
	Park(c exchange.Conn, parked bool)
	// Client is the client id that a connection says; the rest is not looked at.
	Client(slot uint32) (clientID, user string, backend, is bool)
	// EndSubscription ends the one with an id, alone or in a group, and says so.
	EndSubscription(c exchange.Conn, id uint32, why wirev1.Code, reason string)
	// Claims reports whether a connection has a place at a resource, watches it, or asks for it.
	// With end that is ended, and the client told; true: some of it is left to be ended later.
	Claims(c exchange.Conn, resource string, end bool) bool
	// Keep charges a connection for so many bytes more that are kept for it.
	Keep(c exchange.Conn, bytes int)
}

// Who says whom a connection belongs to; see principals.Table.
type Who interface {
	Rights(slot uint32) (r identity.Rights, known bool)
	Issuer(slot uint32) string
}

// Config of a Desk.
type Config struct {
	Asker    Asker // nil: nobody is asked, and rights are all
	Delivery Delivery
	Who      Who
	Jobs     *walk.Jobs
	Cost     *walk.Cost
	Now      func() int64 // the loop's time, in nanoseconds
	// Origin is the address for which a connection counts, "" for none.
	Origin func(slot uint32) string
}

// Desk has what waits and what lasts of one loop's connections, and is used by that loop alone.
type Desk struct {
	cfg    Config
	now    int64         // of the request in hand
	at     exchange.Conn // likewise
	grants []grant       // what the request in hand was granted by answers
	parked map[uint32]*parked
	held   map[uint32]*held
	asked  map[uint64]*lease // whose question is under way, by its serial
	due    due
	ending bool // a job ends, or asks about, what is due
	serial uint64
	stats  Stats
}

// Stats are plain counters; Parked and Leases are gauges.
type Stats struct {
	Parked  int64  // connections whose request waits for an answer
	Leases  int64  // what lasts, and was granted by an answer
	Denied  uint64 // requests that were refused by a no
	Unknown uint64 // requests that were refused because there was no answer
	Ended   uint64 // subscriptions and claims that ended by a no
	RanOut  uint64 // those that ended because there was no answer in time
}

// parked is a request that waits, and what is known for it. A connection has one.
type parked struct {
	conn   exchange.Conn
	serial uint64 // of the question under way; 0: none
	due    timer
	says   []answer
	again  int64 // it is answered, and given again by then, mostly; 0: it was
}

type answer struct {
	grant grant
	says  identity.Permission
	until int64
	why   *code.Error
}

// grant is what a request was granted by an answer.
type grant struct {
	verb          identity.Verb
	filter, group string
	left          time.Duration
	until         int64
}

// New makes a desk.
func New(cfg Config) *Desk {
	return &Desk{cfg: cfg, parked: map[uint32]*parked{}, held: map[uint32]*held{}, asked: map[uint64]*lease{}}
}

// Stats so far.
func (d *Desk) Stats() Stats { return d.stats }

// For begins a request of a connection: what it is granted by answers is asked for with the
// returned one. nil: nobody is asked.
func (d *Desk) For(c exchange.Conn) request.Extra {
	d.grants = d.grants[:0]
	if d.cfg.Asker == nil {
		return nil
	}
	if p := d.parked[c.Slot]; p != nil {
		if p.again == 0 { // the request that it was of was refused for something else
			d.forget(p)
		}
		p.again = 0
	}
	d.at, d.now = c, d.cfg.Now()
	return d
}

// mostVerbs is how much one request asks for at most: to subscribe, and to be in a group.
const mostVerbs = 2

// errorsLast is for how long that there was no answer is one to the request that waited for it.
const errorsLast = time.Second

// Permit implements request.Extra.
func (d *Desk) Permit(verbs []identity.Verb, filter, group string) *code.Error {
	for _, verb := range verbs {
		g := grant{verb: verb, filter: filter, group: group}
		if verb != identity.Group {
			g.group = ""
		}
		a, known := d.known(&g)
		switch {
		case !known:
			return d.park(&g)
		case a.why != nil:
			d.stats.Unknown++
			d.over()
			return a.why
		case !a.says.Allowed:
			d.stats.Denied++
			d.over()
			return code.New(wirev1.Code_CODE_FORBIDDEN, "the permission hook does not allow it (rule permission-hook)"+a.says.Reason)
		}
		g.left, g.until = a.says.Left, d.now+int64(a.says.Left)
		if a.until != 0 {
			g.until = a.until
		}
		d.grants = append(d.grants, g)
	}
	d.over()
	return nil
}

// over forgets what was known for the request in hand.
func (d *Desk) over() {
	if p := d.parked[d.at.Slot]; p != nil && p.serial == 0 {
		p.says = nil
		d.forget(p)
	}
}

// known is an answer that has come for the request in hand, or one from before.
func (d *Desk) known(g *grant) (a answer, known bool) {
	if p := d.parked[d.at.Slot]; p != nil && p.conn == d.at {
		for _, a := range p.says {
			if a.grant.verb == g.verb && a.grant.filter == g.filter && a.grant.group == g.group && d.now <= a.until {
				return a, true
			}
		}
	}
	if until := d.claimed(g); until-d.now >= int64(least(g)) {
		return answer{says: identity.Permission{Allowed: true, Left: time.Duration(until - d.now)}, until: until}, true
	}
	d.cfg.Cost.Add(hashCost)
	a.says, known = d.cfg.Asker.Known(d.question(d.at, g))
	return a, known && (!a.says.Allowed || a.says.Left >= least(g))
}

// least is for how long a yes from before must be good yet: what lasts would end before anybody is
// asked again.
func least(g *grant) time.Duration {
	if g.verb == identity.Publish {
		return 0
	}
	return errorsLast
}

// hashCost is for how many items of a walk the look for a known answer counts.
const hashCost = 4

func (d *Desk) question(c exchange.Conn, g *grant) *identity.Question {
	rights, _ := d.cfg.Who.Rights(c.Slot)
	clientID, _, _, _ := d.cfg.Delivery.Client(c.Slot)
	return &identity.Question{User: rights.User, Client: clientID, Issuer: d.cfg.Who.Issuer(c.Slot), Address: d.cfg.Origin(c.Slot), Verb: g.verb, Filter: g.filter, Group: g.group}
}

// park has the request in hand wait for an answer.
func (d *Desk) park(g *grant) *code.Error {
	p := d.parked[d.at.Slot]
	if p == nil || p.conn != d.at {
		p = &parked{conn: d.at}
		p.due.fire = func() { d.answered(p, identity.Permission{}, noAnswer()) }
	}
	d.serial++
	if why := d.cfg.Asker.Ask(d.at, d.serial, copied(d.question(d.at, g)), least(g)); why != nil {
		d.stats.Unknown++
		return why
	}
	if p.serial = d.serial; len(p.says) >= mostVerbs { // of a request that was given up
		p.says = nil
	}
	p.says = append(p.says, answer{grant: grant{verb: g.verb, filter: clone(g.filter), group: clone(g.group)}, until: -1})
	d.parked[d.at.Slot] = p
	d.due.set(&p.due, d.now+int64(d.cfg.Asker.Patience()))
	d.stats.Parked++
	d.cfg.Delivery.Park(d.at, true)
	return request.Parked
}

// noAnswer refuses what is not known to be allowed. Not everybody comes back at once.
func noAnswer() *code.Error {
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second+time.Duration(rand.Int64N(int64(time.Second))), "the backend that says what clients may do does not answer")
}

// Answered takes an answer, and reports whether somebody waits for it.
func (d *Desk) Answered(e exchange.Permitted) bool {
	if p := d.parked[e.Conn.Slot]; p != nil && p.conn == e.Conn && p.serial == e.Serial && e.Serial != 0 {
		d.answered(p, e.Says, e.Why)
		return true
	}
	l := d.asked[e.Serial]
	if l == nil || l.conn != e.Conn {
		return false
	}
	d.renewed(l, e.Says, e.Why)
	return true
}

// answered has the request be given again that waits.
func (d *Desk) answered(p *parked, says identity.Permission, why *code.Error) {
	now := d.cfg.Now()
	d.due.clear(&p.due)
	a := &p.says[len(p.says)-1]
	a.says, a.why, a.until = says, why, now+int64(max(says.Left, errorsLast))
	a.grant.left = says.Left
	for i := range p.says { // one that came first is good for the request still
		p.says[i].until = max(p.says[i].until, now+int64(errorsLast))
	}
	p.serial, p.again = 0, now+int64(errorsLast)
	d.stats.Parked--
	d.cfg.Delivery.Park(p.conn, false)
}

// Waits reports whether a connection has sent what is not read because a request of its waits: its
// ACKs may be behind that.
func (d *Desk) Waits(slot uint32) bool {
	p := d.parked[slot]
	return p != nil && (p.serial != 0 || d.cfg.Now() < p.again)
}

// forget lets go of a request that waits for nothing any more.
func (d *Desk) forget(p *parked) {
	d.due.clear(&p.due)
	if p.serial != 0 {
		d.stats.Parked--
	}
	delete(d.parked, p.conn.Slot)
}

// Gone lets go of what a connection has that is over; its subscriptions are over before (Over).
func (d *Desk) Gone(slot uint32) {
	if p := d.parked[slot]; p != nil {
		d.forget(p)
	}
	h := d.held[slot]
	if h == nil {
		return
	}
	for _, l := range h.claims {
		d.drop(l)
	}
}
