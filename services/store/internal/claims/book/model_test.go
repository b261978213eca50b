package book

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// model does what a book does, by going through lists. Its holds learn their tokens from the book.
type model struct {
	rules  *policy.Claims
	now    uint64
	places []*mPlace
	turns  map[string][]*mTurn // of those prepared, by resource
	nodes  map[mNode]*mLife
	// watches are kept by the world.
	watches map[mWatch]bool
	count   uint64
	// pushed in this step, but for positions and what watchers are told.
	pushed map[mTie][]string
	ended  map[wirev1.Code]int
	asked  []*mTurn // calls to make
}

type mPlace struct {
	resource, owner string
	// in the order of all arrivals and grants; got 0: it waits
	came, got                                            uint64
	token, ttl                                           uint64
	priority                                             int
	joined, granted, expires, offered, gone, heard, conn uint64
	node                                                 mNode
	bound                                                bool
	// again: offered is later than the database has it, since the shard was loaded.
	again bool
}

type mTurn struct {
	p           *mPlace // nil: it left
	key         string
	token       uint64
	done, known bool
}

type mNode struct {
	name        string
	incarnation uint64
}

type mLife struct {
	up   bool
	gone uint64
}

type mTie struct {
	node            string
	conn            uint64
	resource, owner string
}

func micro(d time.Duration) uint64 { return uint64(d.Microseconds()) }

func (m *model) find(resource, owner string) *mPlace {
	for _, p := range m.places {
		if p.resource == resource && p.owner == owner {
			return p
		}
	}
	return nil
}

func (m *model) holds(resource string) (ps []*mPlace) {
	for _, p := range m.places {
		if p.resource == resource && p.got != 0 {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, func(a, b *mPlace) int { return cmp.Compare(a.got, b.got) })
	return ps
}

func (m *model) turn(p *mPlace) *mTurn {
	for _, t := range m.turns[p.resource] {
		if t.p == p {
			return t
		}
	}
	return nil
}

// line has those who wait, who are prepared before all others.
func (m *model) line(resource string) (ps []*mPlace) {
	for _, p := range m.places {
		if p.resource == resource && p.got == 0 && m.turn(p) == nil {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, func(a, b *mPlace) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.came, b.came))
	})
	return ps
}

func (m *model) waiting(resource string) (ps []*mPlace) {
	for _, t := range m.turns[resource] {
		if t.p != nil {
			ps = append(ps, t.p)
		}
	}
	return append(ps, m.line(resource)...)
}

func (m *model) end(p *mPlace) (at uint64, why wirev1.Code) {
	at = 1 << 63
	for _, e := range []struct {
		at  uint64
		why wirev1.Code
	}{{p.expires, wirev1.Code_CODE_EXPIRED}, {p.offered, wirev1.Code_CODE_ACK_TIMEOUT}} {
		if e.at != 0 && e.at < at {
			at, why = e.at, e.why
		}
	}
	idle := uint64(1 << 63)
	if p.gone != 0 {
		idle = p.gone + micro(m.rules.Grace)
	} else if p.got == 0 && p.node.name == "" {
		idle = p.heard + micro(m.rules.WaitTTL)
	}
	if idle < at {
		at, why = idle, wirev1.Code_CODE_IDLE_TIMEOUT
	}
	return at, why
}

func (m *model) over(p *mPlace) bool { at, _ := m.end(p); return at <= m.now }

func (m *model) push(p *mPlace, what string) {
	if p.node.name != "" {
		k := mTie{p.node.name, p.conn, p.resource, p.owner}
		m.pushed[k] = append(m.pushed[k], what)
	}
}

func (m *model) lose(p *mPlace, why wirev1.Code) {
	m.push(p, "LOST "+why.String())
	m.remove(p, why)
}

func (m *model) remove(p *mPlace, why wirev1.Code) {
	if t := m.turn(p); t != nil {
		t.p = nil
		if t.done {
			m.turns[p.resource] = slices.DeleteFunc(m.turns[p.resource], func(o *mTurn) bool { return o == t })
		}
	}
	m.places = slices.DeleteFunc(m.places, func(o *mPlace) bool { return o == p })
	m.ended[why]++
}

// settle is what comes before any operation.
func (m *model) settle(resource, owner string) *mPlace {
	for _, p := range m.holds(resource) {
		if m.over(p) {
			_, why := m.end(p)
			m.lose(p, why)
		}
	}
	if p := m.find(resource, owner); p != nil && m.over(p) {
		_, why := m.end(p)
		m.lose(p, why)
	}
	m.fill(resource)
	return m.find(resource, owner)
}

func (m *model) room(resource string) int {
	return m.rules.Holders - len(m.holds(resource)) - len(m.turns[resource])
}

func (m *model) fill(resource string) {
	for ts := m.turns[resource]; len(ts) > 0 && ts[0].done; ts = m.turns[resource] {
		p := ts[0].p
		if m.over(p) {
			_, why := m.end(p)
			m.lose(p, why)
			continue
		}
		m.turns[resource] = ts[1:]
		m.offer(p)
	}
	for m.room(resource) > 0 && len(m.line(resource)) > 0 {
		p := m.line(resource)[0]
		switch {
		case m.over(p):
			_, why := m.end(p)
			m.lose(p, why)
		case m.rules.Prepare != nil:
			m.prepare(p)
		case len(m.turns[resource]) > 0:
			return
		default:
			m.offer(p)
		}
	}
}

func (m *model) prepare(p *mPlace) {
	t := &mTurn{p: p, key: p.resource + " " + p.owner}
	m.turns[p.resource] = append(m.turns[p.resource], t)
	m.asked = append(m.asked, t)
}

func (m *model) offer(p *mPlace) {
	m.grant(p)
	p.offered = m.now + micro(m.rules.WaitTTL)
	if l := m.nodes[p.node]; l != nil && l.up {
		p.offered = m.now + micro(m.rules.OfferTTL)
	}
	m.push(p, "GRANTED")
}

func (m *model) grant(p *mPlace) {
	m.count++
	p.got, p.granted = m.count, m.now
	p.expires = m.holdEnd(p, 0)
}

func (m *model) holdEnd(p *mPlace, ttl uint64) uint64 {
	ttl = min(cmp.Or(ttl, p.ttl, micro(m.rules.TTL)), micro(m.rules.MaxTTL))
	if m.rules.MaxHold != 0 {
		return min(m.now+ttl, p.granted+micro(m.rules.MaxHold))
	}
	return m.now + ttl
}

// prepared is the end of a call.
func (m *model) prepared(t *mTurn, resource string, ok bool) {
	if !slices.Contains(m.turns[resource], t) {
		return
	}
	for _, p := range m.holds(resource) {
		if m.over(p) {
			_, why := m.end(p)
			m.lose(p, why)
		}
	}
	if ok && t.p != nil {
		t.done = true
	} else {
		if t.p != nil {
			m.lose(t.p, wirev1.Code_CODE_UNAVAILABLE)
		}
		m.turns[resource] = slices.DeleteFunc(m.turns[resource], func(o *mTurn) bool { return o == t })
	}
	m.fill(resource)
}

// advance is all that is due.
func (m *model) advance() {
	for id, l := range m.nodes {
		if !l.up && l.gone <= m.now {
			for _, p := range m.places {
				if p.node == id {
					m.untie(p)
				}
			}
			delete(m.nodes, id)
		}
	}
	for again := true; again; {
		again = false
		for _, p := range slices.Clone(m.places) {
			if m.find(p.resource, p.owner) == p && m.over(p) {
				_, why := m.end(p)
				m.lose(p, why)
				m.fill(p.resource)
				again = true
			}
		}
	}
}

func (m *model) untie(p *mPlace) {
	p.heard = m.now
	if p.bound {
		p.gone = m.now
	}
	p.node, p.conn, p.bound = mNode{}, 0, false
}

// tie to where an operation comes from.
func (m *model) tie(p *mPlace, op *Op) {
	p.heard = m.now
	if op.GetConn() == 0 {
		p.gone = 0
		return
	}
	p.node, p.conn, p.bound, p.gone = mNode{op.Node, op.Incarnation}, op.GetConn(), op.GetBound(), 0
	m.live(p.node)
}

// live makes a node known.
func (m *model) live(id mNode) {
	if m.nodes[id] != nil {
		return
	}
	gone := m.now + micro(DefaultNodeGone)
	for other, l := range m.nodes {
		if other.name == id.name && l.up && other.incarnation != id.incarnation {
			gone = m.now
		}
	}
	m.nodes[id] = &mLife{gone: gone}
}

func (m *model) up(id mNode) {
	m.live(id)
	for other, l := range m.nodes {
		if other.name == id.name && other.incarnation != id.incarnation {
			l.up, l.gone = false, m.now
		}
	}
	m.nodes[id].up = true
}

func (m *model) down(name string) {
	for id, l := range m.nodes {
		if id.name == name && l.up {
			l.up, l.gone = false, m.now+micro(DefaultNodeGone)
		}
	}
}

// do is an operation: how its answer reads.
func (m *model) do(op *Op) string {
	r, owner := op.GetResource(), op.GetOwner()
	p := m.settle(r, owner)
	right := p != nil && p.got != 0 && p.token == op.GetToken()
	switch op.GetKind() {
	case meshv1.ClaimOp_KIND_ACQUIRE:
		if p == nil {
			return m.join(op)
		}
		m.tie(p, op)
		p.offered = 0
	case meshv1.ClaimOp_KIND_RENEW:
		if !right {
			if p != nil {
				m.tie(p, op)
			}
			return "CODE_NOT_HELD"
		}
		end := m.holdEnd(p, uint64(op.GetTtlMs())*1000)
		if end <= m.now {
			m.lose(p, wirev1.Code_CODE_EXPIRED)
			m.fill(r)
			return "CODE_NOT_HELD"
		}
		p.expires, p.offered = end, 0
		m.tie(p, op)
	case meshv1.ClaimOp_KIND_RELEASE:
		return m.release(p, right, op)
	case meshv1.ClaimOp_KIND_LEAVE:
		if p != nil && (p.got == 0 || p.offered != 0) {
			m.give(p, op)
			m.fill(r)
			return "RELEASED CODE_OK"
		}
		if p != nil {
			m.tie(p, op)
		}
	case meshv1.ClaimOp_KIND_CHECK, meshv1.ClaimOp_KIND_WATCH:
		if op.GetKind() == meshv1.ClaimOp_KIND_WATCH {
			m.live(mNode{op.Node, op.Incarnation})
		}
		if p != nil {
			m.tie(p, op)
			p.offered = 0
		}
	case meshv1.ClaimOp_KIND_UNTIE:
		if p != nil && p.node == (mNode{op.Node, op.Incarnation}) && p.conn == op.GetConn() {
			m.untie(p)
		}
	case meshv1.ClaimOp_KIND_UNWATCH:
		return m.state(r, "", wirev1.Code_CODE_OK)
	}
	return m.state(r, owner, wirev1.Code_CODE_OK)
}

func (m *model) join(op *Op) string {
	r := op.GetResource()
	full := m.room(r) <= 0
	if full && op.GetNoWait() {
		return m.state(r, op.GetOwner(), wirev1.Code_CODE_OK)
	}
	if full && len(m.waiting(r)) >= m.rules.MaxWaiting {
		return "CODE_OVERLOADED"
	}
	p := m.arrive(r, op.GetOwner(), int(op.GetPriority()))
	p.ttl = uint64(op.GetTtlMs()) * 1000
	wait := uint64(op.GetWaitMs()) * 1000
	if most := micro(m.rules.MaxWait); wait == 0 || most != 0 && most < wait {
		wait = most
	}
	if wait != 0 {
		p.expires = m.now + wait
	}
	m.tie(p, op)
	if free := m.room(r) > 0 && len(m.line(r)) == 1; free && m.rules.Prepare != nil {
		m.prepare(p)
	} else if free && len(m.turns[r]) == 0 {
		m.grant(p)
	}
	return m.state(r, op.GetOwner(), wirev1.Code_CODE_OK)
}

func (m *model) arrive(resource, owner string, priority int) *mPlace {
	m.count++
	p := &mPlace{resource: resource, owner: owner, came: m.count, priority: priority, joined: m.now, heard: m.now}
	m.places = append(m.places, p)
	return p
}

func (m *model) release(p *mPlace, right bool, op *Op) string {
	r := op.GetResource()
	if !right {
		if p != nil {
			m.tie(p, op)
		}
		return m.state(r, "", wirev1.Code_CODE_NOT_HELD)
	}
	if name := op.GetSuccessor(); name != "" {
		next := m.find(r, name)
		if next != nil && m.over(next) {
			_, why := m.end(next)
			m.lose(next, why)
			next = nil
		}
		switch {
		case next == nil:
			m.arrive(r, name, 10)
		case next.got != 0:
			return "CODE_INVALID_ARGUMENT"
		case m.turn(next) == nil:
			m.count++
			next.came, next.priority = m.count, 10
		}
	}
	m.give(p, op)
	m.fill(r)
	return "RELEASED CODE_OK"
}

func (m *model) give(p *mPlace, op *Op) {
	if p.node != (mNode{op.Node, op.Incarnation}) || p.conn != op.GetConn() {
		m.push(p, "RELEASED")
	}
	m.remove(p, wirev1.Code_CODE_OK)
}

// state as an answer reads that has it.
func (m *model) state(resource, owner string, c wirev1.Code) string {
	holds, waiting := m.holds(resource), m.waiting(resource)
	s := fmt.Sprintf(" %v %d+%d", c, len(holds), len(waiting))
	holder := ""
	if len(holds) > 0 {
		holder = holds[0].owner
	}
	p := m.find(resource, owner)
	switch {
	case p != nil && p.got != 0:
		return fmt.Sprintf("GRANTED until %d %q", p.expires, owner) + s
	case p != nil:
		return fmt.Sprintf("QUEUED at %d until %d %q", slices.Index(waiting, p)+1, p.expires, holder) + s
	case len(holds)+len(m.turns[resource]) == 0:
		return `FREE ""` + s
	}
	until := uint64(0)
	for _, p := range holds {
		if until == 0 || p.expires < until {
			until = p.expires
		}
	}
	return fmt.Sprintf("HELD until %d %q", until, holder) + s
}

// read is how an answer reads.
func read(a Answer) string {
	if a.Code != wirev1.Code_CODE_OK {
		return a.Code.String()
	}
	st := a.State
	s := fmt.Sprintf(" %v %d+%d", st.GetCode(), st.GetHolding(), st.GetWaiting())
	switch st.GetState() {
	case wirev1.ClaimState_STATE_GRANTED:
		return fmt.Sprintf("GRANTED until %d %q", st.GetExpiresAt(), st.GetHolder()) + s
	case wirev1.ClaimState_STATE_QUEUED:
		return fmt.Sprintf("QUEUED at %d until %d %q", st.GetPosition(), st.GetExpiresAt(), st.GetHolder()) + s
	case wirev1.ClaimState_STATE_RELEASED:
		return "RELEASED " + st.GetCode().String()
	case wirev1.ClaimState_STATE_FREE:
		return fmt.Sprintf("FREE %q", st.GetHolder()) + s
	case wirev1.ClaimState_STATE_HELD_BY_OTHER:
		return fmt.Sprintf("HELD until %d %q", st.GetExpiresAt(), st.GetHolder()) + s
	}
	return st.String()
}
