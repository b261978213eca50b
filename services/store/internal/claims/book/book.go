// Package book decides who holds and who waits for resources (ADR 0046): a state machine without
// I/O, clock or goroutine. Operations, ends of calls, nodes that come and go and the time go in;
// answers, changes of the database, pushes and calls to make come out with Take. What the database
// has after a step is all that a book needs to go on from there (Load).
//
// A resource has places: owners that hold it, owners for whom it is prepared, and the line.
// Whatever happens at a resource, what ended until then ends first, and what got free goes to who
// is next, in the same step.
package book

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Defaults of a Config.
const (
	DefaultPlaces   = 1_000_000
	DefaultNodeGone = 5 * time.Second
)

// Config of a Book.
type Config struct {
	// Rules of a resource at this moment; never nil.
	Rules func(resource string) *policy.Claims
	// Places, and watches of a resource by a node, that there may be: DefaultPlaces of each. More
	// are OVERLOADED.
	Places, Watches int
	// UserPlaces is how many places clients of one user may have; 0: no limit. More are
	// RATE_LIMITED.
	UserPlaces int
	// NodeGone is how long a node may be without a stream, DefaultNodeGone.
	NodeGone time.Duration
}

// Book has the claims of the shards that were loaded. It has one user at a time. Times (now) are
// Unix microseconds of the database's clock and never go back.
type Book struct {
	cfg    Config
	now    uint64
	shards map[int]*shard
	nodes  map[string][]*node
	// places, of which so many hold, and watches that there are.
	places, holders, watches int
	users                    users
	step                     *Step
	dirty                    []*place
	touched                  []*resource
	refresh                  []*resource
	wakes                    timers[*place]
	notices                  timers[*resource]
	leaves                   timers[*node]
}

// New is a book without shards.
func New(cfg Config) *Book {
	cfg.Places = cmp.Or(cfg.Places, DefaultPlaces)
	cfg.Watches = cmp.Or(cfg.Watches, DefaultPlaces)
	cfg.NodeGone = cmp.Or(cfg.NodeGone, DefaultNodeGone)
	return &Book{cfg: cfg, shards: map[int]*shard{}, nodes: map[string][]*node{}, users: users{}, step: &Step{}}
}

// Load begins a shard with the places that the database has, in the order of Seq. Who waits was
// heard of now, nodes without a stream have NodeGone from now on to come, grants have that and
// OfferTTL to be taken up, and what was being prepared is prepared anew. What is free or has ended
// is for Advance.
func (b *Book) Load(now uint64, taken backend.ClaimShard, places iter.Seq[backend.ClaimPlace]) {
	b.Drop(taken.Shard)
	b.now = now
	s := &shard{
		n: taken.Shard, next: taken.Next, most: taken.Next + backend.ClaimNumbers,
		resources: map[string]*resource{}, places: map[placeID]*place{}, calls: map[uint64]*resource{},
	}
	b.shards[s.n] = s
	for row := range places {
		b.load(s, &row)
	}
	for _, r := range s.resources {
		slices.SortFunc(r.holds, func(x, y *place) int { return cmp.Compare(x.token, y.token) })
		b.refresh = append(b.refresh, r)
	}
}

func (b *Book) load(s *shard, row *backend.ClaimPlace) {
	r := b.resource(s, row.Resource)
	p := &place{
		r: r, owner: row.Owner, seq: row.Seq, token: row.Token, ttl: row.TTL, priority: row.Priority, joined: row.JoinedAt, granted: row.GrantedAt,
		expires: row.ExpiresAt, offered: row.OfferedUntil, gone: row.GoneAt, heard: b.now, stored: true,
	}
	s.places[placeID{r, p.owner}] = p
	b.places++
	if p.offered != 0 { // whether the owner was notified is not known: it has to be, from here
		p.offered = max(p.offered, later(b.now, r.rules.OfferTTL+b.cfg.NodeGone))
	}
	if p.holds() {
		r.holds = append(r.holds, p)
		b.holders++
	} else {
		r.join(p)
	}
	if row.Node != "" {
		b.bind(p, b.node(row.Node, row.Incarnation), row.Conn, row.Bound)
	}
	b.users.note(p)
	b.arm(p)
}

// Drop forgets a shard: nothing that Take has not returned so far is reported of it.
func (b *Book) Drop(n int) {
	s := b.shards[n]
	if s == nil {
		return
	}
	delete(b.shards, n)
	for _, p := range s.places {
		p.ended = true
		b.cut(p)
		b.users.note(p)
		b.wakes.drop(p)
		b.places--
		if p.holds() {
			b.holders--
		}
	}
	for _, r := range s.resources {
		b.unwatchAll(r)
		b.notices.drop(r)
		r.gone = true
	}
	of := func(p *place) bool { return p.r.shard == s }
	b.dirty = slices.DeleteFunc(b.dirty, of)
	b.step.Prepare = slices.DeleteFunc(b.step.Prepare, func(a Prepare) bool { return a.Key.Shard == n })
}

// Low are the shards that have less than so many numbers left: they are to be taken and loaded
// again.
func (b *Book) Low(numbers uint64) (shards []int) {
	for n, s := range b.shards {
		if s.most-s.next < numbers {
			shards = append(shards, n)
		}
	}
	slices.Sort(shards)
	return shards
}

// Stats of a book.
type Stats struct {
	// Places are Holders (those who have not taken a grant up are among them) and Waiting.
	Shards, Resources, Places, Holders, Waiting, Watches int
}

// Stats are those of now.
func (b *Book) Stats() Stats {
	st := Stats{Shards: len(b.shards), Places: b.places, Holders: b.holders, Waiting: b.places - b.holders, Watches: b.watches}
	for _, s := range b.shards {
		st.Resources += len(s.resources)
	}
	return st
}

// resource makes one that is not there.
func (b *Book) resource(s *shard, name string) *resource {
	r := s.resources[name]
	if r == nil {
		r = &resource{name: name, shard: s, rules: b.cfg.Rules(name)}
		s.resources[name] = r
	}
	return r
}

// moved has a resource looked at when the step is taken.
func (b *Book) moved(r *resource) {
	if !r.moved {
		r.moved = true
		b.touched = append(b.touched, r)
	}
}

// tidy forgets a resource that is not used any more.
func (b *Book) tidy(r *resource) {
	if r.unused() && !r.gone {
		r.gone = true
		b.notices.drop(r)
		delete(r.shard.resources, r.name)
	}
}
