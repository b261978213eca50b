package loop

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims/handover"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// gameMesh is the mesh of a game: with the edge's own parts for claims and groups, where it has
// them.
type gameMesh struct {
	*upstreamtest.Mesh
	g *game
}

// Publish implements exchange.Mesh.
func (m gameMesh) Publish(conn exchange.Conn, _ string, id uint32, item *meshv1.ClientPublish_Item) {
	msgs := m.Append(item.GetTopic(), string(item.GetPayload()))
	m.g.note(msgs...)
	m.Live(msgs...)
	m.g.post(exchange.Published{Conn: conn, ID: id, Result: &meshv1.ClientPublishReply_Result{Seq: msgs[0].Seq, Epoch: msgs[0].Epoch}})
}

// Claim implements exchange.Claims.
func (m gameMesh) Claim(conn exchange.Conn, id uint32, op *meshv1.ClaimOp) {
	if m.g.desk == nil {
		m.Mesh.Claim(conn, id, op)
		return
	}
	m.g.desk.Claim(conn, id, op)
}

// EndClaims implements exchange.Claims.
func (m gameMesh) EndClaims(connectionID uint64) {
	if m.g.desk == nil {
		m.Mesh.EndClaims(connectionID)
		return
	}
	m.g.desk.EndClaims(connectionID)
}

// JoinGroup implements exchange.Groups, as do those that follow.
func (m gameMesh) JoinGroup(conn exchange.Conn, sub uint32, j *exchange.GroupJoin) {
	if m.g.band == nil {
		m.Mesh.JoinGroup(conn, sub, j)
		return
	}
	m.g.band.joined(conn, sub, j)
	m.g.band.groups.JoinGroup(conn, sub, j)
}

// PauseGroup has a member get nothing more.
func (m gameMesh) PauseGroup(conn exchange.Conn, sub uint32) {
	if m.g.band != nil {
		m.g.band.groups.PauseGroup(conn, sub)
	}
}

// ResumeGroup has it get messages again.
func (m gameMesh) ResumeGroup(conn exchange.Conn, sub uint32) {
	if m.g.band != nil {
		m.g.band.groups.ResumeGroup(conn, sub)
	}
}

// LeaveGroup ends a member.
func (m gameMesh) LeaveGroup(conn exchange.Conn, sub uint32) {
	if m.g.band == nil {
		m.Mesh.LeaveGroup(conn, sub)
		return
	}
	m.g.band.left(conn, sub)
	m.g.band.groups.LeaveGroup(conn, sub)
}

// SettleGroup ends what members have.
func (m gameMesh) SettleGroup(all []exchange.GroupSettled) {
	if m.g.band != nil {
		m.g.band.settled(all)
		m.g.band.groups.SettleGroup(all)
	}
}

// book is what stores know of resources: who holds each, and who waits for it. A hold ends with its
// time, a place with its connection.
type book struct {
	g *game

	mu     sync.Mutex
	token  uint64
	of     map[string]*seat
	tokens map[uint64]string // to whom each was granted
}

type seat struct {
	places   []*place        // the first one holds it
	watching map[uint64]bool // by connection
	until    time.Time
}

type place struct {
	owner string
	conn  uint64
	token uint64
	ttl   time.Duration
}

func (g *game) useClaims() {
	g.book = &book{g: g, of: map[string]*seat{}, tokens: map[uint64]string{}}
	g.desk = handover.New(func(_ uint16, e exchange.Event) { g.l.Post(e) })
	g.desk.Use(g.book)
	if err := g.desk.Start(g.Context()); err != nil {
		g.Fatal(err)
	}
}

// claim draws a request.
func (p *player) claim(id uint32) *wirev1.Claim {
	in := &p.g.in
	how := in.byte()
	m := &wirev1.Claim{
		Id: id, Op: wirev1.Claim_Op(how % 8), Resource: one(in, "seat/0", "seat/1", "seat/2", "seat//", "room/0"), Priority: uint32(how>>3) % 5, NoWait: bit(how, 6),
		TtlMs: one(in, uint32(0), 1000, 5000, 60_000, 1<<31),
	}
	if st := p.told[m.GetResource()]; m.GetOp() == wirev1.Claim_OP_RENEW || m.GetOp() == wirev1.Claim_OP_RELEASE {
		if m.Token = st.GetToken(); bit(how, 7) {
			m.Token++
		}
	}
	if in.byte() == 0xff {
		m.WaitMs, m.Successor = 100, "p2"
	}
	return m
}

// Do implements handover.Client.
func (b *book) Do(_ context.Context, op *meshv1.ClaimOp, done func(*meshv1.ClaimResult)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := op.GetResource()
	r := b.of[name]
	if r == nil {
		r = &seat{watching: map[uint64]bool{}}
		b.of[name] = r
	}
	at := slices.IndexFunc(r.places, func(p *place) bool { return p.owner == op.GetOwner() })
	answer := &meshv1.ClaimResult{Ref: op.GetRef()}
	ended := false
	switch op.GetKind() {
	case meshv1.ClaimOp_KIND_ACQUIRE:
		if at < 0 && (len(r.places) == 0 || !op.GetNoWait()) {
			at = len(r.places)
			r.places = append(r.places, &place{owner: op.GetOwner(), conn: op.GetConn(), ttl: time.Duration(max(op.GetTtlMs(), 1000)) * time.Millisecond})
			if at == 0 {
				b.grant(r)
			}
		}
	case meshv1.ClaimOp_KIND_RENEW:
		if at != 0 || r.places[0].token != op.GetToken() {
			answer.Code = wirev1.Code_CODE_NOT_HELD
		} else {
			r.until = time.Now().Add(r.places[0].ttl)
		}
	case meshv1.ClaimOp_KIND_RELEASE:
		ended = at == 0 && r.places[0].token == op.GetToken()
		if !ended {
			answer.Code = wirev1.Code_CODE_NOT_HELD
		}
	case meshv1.ClaimOp_KIND_LEAVE:
		ended = at > 0
	case meshv1.ClaimOp_KIND_WATCH:
		r.watching[op.GetConn()] = true
	}
	answer.State = b.state(name, r, at)
	if ended {
		answer.State = &wirev1.ClaimState{Resource: name, State: wirev1.ClaimState_STATE_RELEASED}
	}
	done(answer)
	if ended {
		b.remove(name, r, at)
	}
}

// End implements handover.Client.
func (b *book) End(conn uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, r := range b.of {
		delete(r.watching, conn)
		for at := len(r.places) - 1; at >= 0; at-- {
			if r.places[at].conn == conn {
				b.remove(name, r, at)
			}
		}
	}
}

func (b *book) grant(r *seat) {
	b.token++
	r.places[0].token, r.until = b.token, time.Now().Add(r.places[0].ttl)
	b.tokens[b.token] = r.places[0].owner
}

// remove ends a place, and tells everyone whom that concerns.
func (b *book) remove(name string, r *seat, at int) {
	r.places = slices.Delete(r.places, at, at+1)
	if at == 0 && len(r.places) > 0 {
		b.grant(r)
	}
	for i, p := range r.places {
		b.g.desk.Notify(p.conn, p.owner, b.state(name, r, i))
	}
	for _, conn := range slices.Sorted(maps.Keys(r.watching)) {
		if !slices.ContainsFunc(r.places, func(p *place) bool { return p.conn == conn }) {
			b.g.desk.Notify(conn, "", b.state(name, r, -1))
		}
	}
}

// expire ends the holds whose time is over.
func (b *book) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(b.of)) {
		if r := b.of[name]; len(r.places) > 0 && !time.Now().Before(r.until) {
			p := r.places[0]
			b.g.desk.Notify(p.conn, p.owner, &wirev1.ClaimState{Resource: name, State: wirev1.ClaimState_STATE_LOST, Token: p.token, Code: wirev1.Code_CODE_EXPIRED})
			b.remove(name, r, 0)
		}
	}
}

func (b *book) state(name string, r *seat, at int) *wirev1.ClaimState {
	st := &wirev1.ClaimState{Resource: name, State: wirev1.ClaimState_STATE_QUEUED, Position: uint32(max(at, 0))}
	switch {
	case at == 0:
		st.State, st.Token = wirev1.ClaimState_STATE_GRANTED, r.places[0].token
	case at < 0 && len(r.places) == 0:
		st.State = wirev1.ClaimState_STATE_FREE
	case at < 0:
		st.State, st.Holder = wirev1.ClaimState_STATE_HELD_BY_OTHER, r.places[0].owner
	}
	return st
}

// agree compares what players were told last with who holds what: everyone who reads has heard
// everything once the loop is quiet.
func (b *book) agree() {
	b.g.quiet()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.g.all {
		if p == nil || p.gone || p.slow || p.ended {
			continue
		}
		for name, st := range p.told {
			if st.GetState() != wirev1.ClaimState_STATE_GRANTED {
				continue
			}
			if owner := b.tokens[st.GetToken()]; owner != "client:"+p.name(0) && owner != p.name(0) {
				b.g.Fatalf("%s was told that it holds %s with token %d, which is of %q", p.name(0), name, st.GetToken(), owner)
			}
			if r := b.of[name]; len(r.places) == 0 || r.places[0].token != st.GetToken() {
				b.g.Fatalf("%s was not told that it has lost %s and token %d", p.name(0), name, st.GetToken())
			}
		}
	}
}

func (b *book) empty() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, r := range b.of {
		if len(r.places)+len(r.watching) > 0 {
			b.g.Errorf("%s has %d places and is watched by %d", name, len(r.places), len(r.watching))
		}
	}
}

// band is the edge's own groups, and who has which of their messages.
type band struct {
	g      *game
	groups *groups.Groups

	mu      sync.Mutex
	leases  map[string]*gameLease
	joins   map[string]int
	members map[gameMember]string // their groups, with filters
	has     map[assigned]gameMember
	done    map[assigned]bool // ACKed
}

// gameLease is a group as the store has it.
type gameLease struct {
	generation uint64
	held       bool
	cursors    map[string]*meshv1.SessionCursor
	filters    map[string]bool
}

type gameMember struct {
	conn exchange.Conn
	sub  uint32
}

// assigned names a message of a group.
type assigned struct {
	group, topic string
	seq          uint64
}

// dispatchers is the number of the loop that groups are to the mesh.
const dispatchers = 1

func (g *game) useGroups() {
	b := &band{g: g, leases: map[string]*gameLease{}, joins: map[string]int{}, members: map[gameMember]string{}, has: map[assigned]gameMember{}, done: map[assigned]bool{}}
	b.groups = groups.New(groups.Config{
		Edge: "edge", Incarnation: 1, Loop: dispatchers, Store: b, Mesh: b, Durable: func(name string) bool { return gamePolicies(name).Durable },
		Request:     func(context.Context, string, []byte) ([]byte, error) { panic("there is one edge") },
		MaxAttempts: func(string) uint32 { return 5 }, Log: slog.New(slog.DiscardHandler),
	})
	if err := b.groups.Start(g.Context()); err != nil {
		g.Fatal(err)
	}
	g.band = b
}

// AttachSession implements groups.Store.
func (b *band) AttachSession(_ context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if req.GetPeek() {
		return &meshv1.AttachSessionResponse{}, nil
	}
	l := b.leases[req.GetName()]
	resp := &meshv1.AttachSessionResponse{Resumed: l != nil}
	if l == nil {
		l = &gameLease{cursors: map[string]*meshv1.SessionCursor{}, filters: map[string]bool{}}
		b.leases[req.GetName()] = l
	}
	l.generation++
	l.held, resp.Generation = true, l.generation
	for _, c := range l.cursors {
		resp.Cursors = append(resp.Cursors, c)
	}
	for filter := range l.filters {
		resp.Filters = append(resp.Filters, filter)
	}
	return resp, nil
}

// RenewLeases implements groups.Store.
func (b *band) RenewLeases(_ context.Context, req *meshv1.RenewLeasesRequest) *meshv1.RenewLeasesResponse {
	return &meshv1.RenewLeasesResponse{Codes: make([]wirev1.Code, len(req.GetLeases()))}
}

// HasMembers implements groups.Mesh: no router asks who is there.
func (b *band) HasMembers(string, bool) {}

// Hold implements groups.Mesh, as do those that follow.
func (b *band) Hold(exchange.Conn, string, string, uint64) {}

// Post hands an event to the loop. A message goes to a member when nobody else has it, and never
// after it was ACKed.
func (b *band) Post(_ uint16, e exchange.Event) {
	if a, ok := e.(exchange.Assigned); ok {
		b.assigned(gameMember{a.Conn, a.Sub}, a.Messages)
	}
	b.g.l.Post(e)
}

func (b *band) assigned(to gameMember, msgs []*exchange.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	group := b.members[to]
	for _, m := range msgs {
		k := assigned{group, m.Topic, m.Seq}
		if has, some := b.has[k]; some && has != to && group != "" {
			b.g.Errorf("%v goes to %v, and %v has it", k, to, has)
		}
		if b.done[k] {
			b.g.Errorf("%v goes to %v, and was ACKed", k, to)
		}
		if group != "" && m.Seq > 0 {
			b.has[k] = to
		}
	}
}

func (b *band) joined(conn exchange.Conn, sub uint32, j *exchange.GroupJoin) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.members[gameMember{conn, sub}] = j.Group + "/" + j.Filter
}

// left ends what a member has.
func (b *band) left(conn exchange.Conn, sub uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := gameMember{conn, sub}
	delete(b.members, m)
	maps.DeleteFunc(b.has, func(_ assigned, has gameMember) bool { return has == m })
}

func (b *band) settled(all []exchange.GroupSettled) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range all {
		m := gameMember{s.Conn, s.Sub}
		k := assigned{b.members[m], s.Message.Topic, s.Message.Seq}
		if b.has[k] == m {
			delete(b.has, k)
			b.done[k] = s.How == meshv1.GroupSettle_HOW_ACKED
		}
	}
}

// Join is answered with the heads that there are.
func (b *band) Join(conn exchange.Conn, sub uint32, filter string, _ bool, _ int) {
	b.mu.Lock()
	b.joins[filter]++
	b.mu.Unlock()
	e := exchange.Joined{Conn: conn, Sub: sub}
	b.g.mu.Lock()
	for name, msgs := range b.g.topics {
		if topic.Match(filter, name) {
			e.Heads = append(e.Heads, exchange.Head{Topic: name, Epoch: upstreamtest.BaseEpoch, Head: uint64(len(msgs)), Oldest: 1})
		}
	}
	b.g.mu.Unlock()
	b.groups.Post(e)
}

// Leave ends a Join.
func (b *band) Leave(_ uint16, filter string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joins[filter]--
}

// Read reads a range of a log.
func (b *band) Read(_ uint16, name string, _, from, _ uint64, _ int) {
	b.g.mu.Lock()
	msgs := b.g.topics[name]
	r := exchange.Range{Topic: name, From: from, Epoch: upstreamtest.BaseEpoch, Head: uint64(len(msgs)), Oldest: 1}
	r.Messages = slices.Clone(msgs[min(int(from)-1, len(msgs)):])
	b.g.mu.Unlock()
	b.groups.Post(r)
}

// Save writes cursors of a generation that is not stale.
func (b *band) Save(conn exchange.Conn, ref uint32, w *meshv1.SessionWrite, _ bool) {
	b.mu.Lock()
	l := b.leases[w.GetName()]
	stale := l == nil || l.generation != w.GetGeneration()
	if !stale {
		for _, c := range w.GetCursors() {
			l.cursors[c.GetTopic()] = c
		}
		for _, filter := range w.GetAddFilters() {
			l.filters[filter] = true
		}
		l.held = l.held && !w.GetDetach()
	}
	b.mu.Unlock()
	if stale {
		b.groups.Post(exchange.Detached{Conn: conn})
	}
	if ref > 0 {
		b.groups.Post(exchange.Saved{Conn: conn, Ref: ref})
	}
}

func (b *band) empty() {
	if m, d := b.groups.Stats.Members.Load(), b.groups.Stats.Dispatchers.Load(); m+d != 0 {
		b.g.Errorf("%d members and %d dispatchers are left", m, d)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for filter, n := range b.joins {
		if n != 0 {
			b.g.Errorf("%d joins of %q are left", n, filter)
		}
	}
	for name, l := range b.leases {
		if l.held {
			b.g.Errorf("the lease of %q is not given back", name)
		}
	}
}
