package book

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Whatever happens, a book answers, commits and tells what the model does; the database has all
// that it knows after each step; nobody is overtaken; tokens grow; positions and states come to
// those who are to know them in time; and Due is never late.
func TestWhateverHappens(t *testing.T) {
	t.Run("few", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { newWorld(t, []string{"r0", "r1", "r2"}, 7).live() })
	})
	t.Run("many", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { newWorld(t, []string{"r0"}, 45).live() })
	})
}

// world is a book beside a model, with the database and all who talk to it.
type world struct {
	t         *rapid.T
	b         *Book
	m         *model
	rules     policy.Claims
	resources []string
	owners    int
	rows      map[backend.ClaimKey]backend.ClaimPlace
	next      uint64
	lives     map[string]uint64 // nodes that are up
	saved     []mPlace          // at the last commit
	want      []string          // answers of this step
	ops       []Op
	// advanced: Advance has just done all that is due.
	advanced bool
	calls    []call
	told     *told
}

// call that prepares.
type call struct {
	Prepare
	turn *mTurn
}

func newWorld(t *rapid.T, resources []string, owners int) *world {
	w := &world{t: t, resources: resources, owners: owners, rows: map[backend.ClaimKey]backend.ClaimPlace{}, next: 1, lives: map[string]uint64{}, told: newTold()}
	w.rules = policy.Claims{
		Holders: rapid.IntRange(1, 3).Draw(t, "holders"), MaxWaiting: owners - 2, TTL: 3 * time.Second, MaxTTL: 20 * time.Second,
		Grace: 4 * time.Second, WaitTTL: 6 * time.Second, OfferTTL: 500 * time.Millisecond,
	}
	if rapid.Bool().Draw(t, "limits") {
		w.rules.MaxHold, w.rules.MaxWait = 5*time.Second, 9*time.Second
	}
	if rapid.Bool().Draw(t, "a long grace") {
		w.rules.Grace, w.rules.WaitTTL = w.rules.WaitTTL, w.rules.Grace
	}
	w.prepares(rapid.Bool().Draw(t, "prepare"))
	w.m = &model{rules: &w.rules, now: 1e15, turns: map[string][]*mTurn{}, nodes: map[mNode]*mLife{}, watches: map[mWatch]bool{}}
	w.m.forget()
	w.begin()
	return w
}

func (w *world) prepares(yes bool) {
	if w.rules.Prepare = nil; yes {
		w.rules.Prepare = &policy.Prepare{Group: "r"}
	}
}

// forget what belongs to a step.
func (m *model) forget() {
	m.pushed, m.ended, m.asked = map[mTie][]string{}, map[wirev1.Code]int{}, nil
}

// begin a new book with what was committed.
func (w *world) begin() {
	w.b = New(Config{Rules: func(string) *policy.Claims { r := w.rules; return &r }})
	clear(w.m.nodes)
	for name, life := range w.lives {
		w.b.NodeUp(w.m.now, name, life)
		w.m.up(mNode{name, life})
	}
	for n := range w.shards() {
		w.load(n)
	}
}

func (w *world) shards() map[int]bool {
	shards := map[int]bool{}
	for _, r := range w.resources {
		shards[topic.Shard(r)] = true
	}
	return shards
}

func (w *world) load(n int) {
	var rows []backend.ClaimPlace
	for _, row := range w.rows {
		if row.Shard == n {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b backend.ClaimPlace) int { return cmp.Compare(a.Seq, b.Seq) })
	w.b.Load(w.m.now, backend.ClaimShard{Shard: n, Next: w.next}, slices.Values(rows))
	w.next += backend.ClaimNumbers
	for _, r := range w.resources {
		if topic.Shard(r) != n {
			continue
		}
		delete(w.m.turns, r)
		w.told.forget(r)
		for at := range w.m.watches {
			if at.resource == r {
				delete(w.m.watches, at)
			}
		}
	}
	for _, p := range w.m.places {
		if topic.Shard(p.resource) == n {
			p.heard = w.m.now
			if p.offered != 0 {
				p.offered, p.again = max(p.offered, w.m.now+micro(w.rules.OfferTTL+DefaultNodeGone)), true
			}
			if p.node.name != "" {
				w.m.live(p.node)
			}
		}
	}
}

// live one life.
func (w *world) live() {
	for range rapid.IntRange(10, 150).Draw(w.t, "steps") {
		switch act := rapid.IntRange(0, 99).Draw(w.t, "act"); {
		case act < 66:
			w.op()
		case act < 74:
			w.pass(time.Duration(rapid.IntRange(0, 2000).Draw(w.t, "ms")) * time.Millisecond)
			w.advance()
		case act < 77: // nobody calls Advance in time
			w.pass(time.Duration(rapid.IntRange(0, 7000).Draw(w.t, "ms")) * time.Millisecond)
		case act < 79: // just when something happens
			if at, any := w.b.Due(); any {
				w.pass(time.Duration(max(at, w.m.now)-w.m.now) * time.Microsecond)
				w.advance()
			}
		case act < 86:
			w.node()
		case act < 93:
			w.prepared()
		case act < 94:
			w.policy()
		case act < 96: // given away, and taken again
			w.take()
			n := topic.Shard(w.resource())
			w.b.Drop(n)
			w.load(n)
			w.refill()
		case act < 97: // the commit failed
			w.crash()
		default:
			w.advance()
		}
		if rapid.IntRange(0, 3).Draw(w.t, "take") > 0 {
			w.take()
		}
	}
	w.take()
	w.advance()
	w.take()
}

func (w *world) resource() string { return rapid.SampledFrom(w.resources).Draw(w.t, "resource") }

func (w *world) owner() string {
	return fmt.Sprint("o", rapid.IntRange(1, w.owners).Draw(w.t, "owner"))
}

func (w *world) pass(d time.Duration) {
	w.take() // what is told in a step is told at one time
	w.m.now += micro(d)
	w.advanced = false
	w.log("%v pass", d)
}

func (w *world) log(format string, args ...any) { w.t.Logf(format, args...) }

// advance, some at a time.
func (w *world) advance() {
	for range 100_000 {
		if !w.b.Advance(w.m.now, rapid.SampledFrom([]int{1, 3, 1000}).Draw(w.t, "most")) {
			w.m.advance()
			w.advanced = true
			w.told.gone(w)
			w.told.snap(w)
			return
		}
	}
	w.t.Fatal("Advance never ends")
}

// refill is what Load and Refresh leave to Advance.
func (w *world) refill() {
	w.advance()
	for _, r := range w.resources {
		w.m.fill(r)
	}
	w.told.snap(w)
}

// op of anybody, from anywhere.
func (w *world) op() {
	kinds := []meshv1.ClaimOp_Kind{
		acquire, acquire, acquire, acquire, acquire, renew, renew, release, release, release, release, check_, check_, leave, watch_, unwatch, untie, untie,
	}
	op := Op{ClaimOp: &meshv1.ClaimOp{Kind: rapid.SampledFrom(kinds).Draw(w.t, "kind"), Resource: w.resource(), Owner: w.owner()}}
	op.Node = rapid.SampledFrom([]string{"edge:1", "edge:2", "router:1"}).Draw(w.t, "node")
	op.Incarnation = max(w.lives[op.Node], 1)
	if op.GetKind() == renew || op.GetKind() == release { // mostly somebody's who holds
		if holds := w.m.holds(op.GetResource()); len(holds) > 0 && rapid.IntRange(0, 4).Draw(w.t, "holder") > 0 {
			op.Owner = rapid.SampledFrom(holds).Draw(w.t, "of").owner
		}
		op.Token = w.token(op.GetResource(), op.GetOwner())
	}
	if op.GetKind() == untie || rapid.IntRange(0, 2).Draw(w.t, "tied") > 0 {
		op.Conn, op.Bound = uint64(rapid.IntRange(1, 3).Draw(w.t, "conn")), op.Node[0] == 'e'
	}
	if p := w.m.find(op.GetResource(), op.GetOwner()); op.GetKind() == untie && p != nil && p.node.name != "" && rapid.Bool().Draw(w.t, "that") {
		op.Node, op.Incarnation, op.Conn = p.node.name, p.node.incarnation, p.conn
	}
	op.TtlMs = rapid.SampledFrom([]uint32{0, 0, 1000, 15_000}).Draw(w.t, "ttl")
	op.WaitMs = rapid.SampledFrom([]uint32{0, 0, 2500}).Draw(w.t, "wait")
	op.Priority = rapid.SampledFrom([]uint32{0, 0, 0, 5, 9}).Draw(w.t, "priority")
	op.NoWait = rapid.IntRange(0, 9).Draw(w.t, "no wait") == 0
	if op.GetKind() == release && rapid.IntRange(0, 2).Draw(w.t, "hand over") == 0 {
		if op.Successor = w.owner(); op.Successor == op.Owner {
			op.Successor = ""
		}
	}
	w.b.Apply(w.m.now, op)
	w.want = append(w.want, w.m.do(&op))
	w.log("%v %v", op.ClaimOp, w.want[len(w.want)-1])
	w.ops = append(w.ops, op)
	switch at := (mWatch{op.GetResource(), mNode{op.Node, op.Incarnation}}); op.GetKind() {
	case watch_:
		w.m.watches[at] = true
	case unwatch:
		delete(w.m.watches, at)
		at.node.incarnation = 0
		w.told.unwatched[at] = true
	}
	w.advanced = false
}

// token that an owner has, or none that anybody has.
func (w *world) token(resource, owner string) uint64 {
	if p := w.m.find(resource, owner); p != nil && p.token != 0 && rapid.IntRange(0, 9).Draw(w.t, "right") > 0 {
		return p.token
	}
	return 1 << 62
}

func (w *world) node() {
	w.advanced = false
	name := rapid.SampledFrom([]string{"edge:1", "edge:2", "router:1"}).Draw(w.t, "node")
	if w.lives[name] != 0 && rapid.Bool().Draw(w.t, "down") {
		w.log("%s down", name)
		w.b.NodeDown(w.m.now, name)
		w.m.down(name)
		if rapid.Bool().Draw(w.t, "dies") {
			delete(w.lives, name)
		}
		return
	}
	if w.lives[name] == 0 || rapid.IntRange(0, 3).Draw(w.t, "new life") == 0 {
		w.m.count++
		w.lives[name] = w.m.count
	}
	w.log("%s up %d", name, w.lives[name])
	w.b.NodeUp(w.m.now, name, w.lives[name])
	w.m.up(mNode{name, w.lives[name]})
}

// prepared ends a call, which may be one of long ago.
func (w *world) prepared() {
	if len(w.calls) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.calls)-1).Draw(w.t, "call")
	c, ok := w.calls[i], rapid.IntRange(0, 3).Draw(w.t, "ok") > 0
	if rapid.IntRange(0, 9).Draw(w.t, "again") > 0 {
		w.calls = slices.Delete(w.calls, i, i+1)
	}
	w.log("prepared %s %s %v", c.Resource, c.Owner, ok)
	w.b.Prepared(w.m.now, c.Key, c.Token, ok)
	w.advanced = false
	if c.turn.known {
		w.m.prepared(c.turn, c.Resource, ok)
		c.turn.known = false
	}
}

func (w *world) policy() {
	w.take()
	switch rapid.IntRange(0, 2).Draw(w.t, "change") {
	case 0:
		w.rules.Holders = rapid.IntRange(1, 4).Draw(w.t, "holders")
	case 1:
		w.prepares(w.rules.Prepare == nil)
	default:
		w.rules.Grace = time.Duration(rapid.IntRange(1, 9).Draw(w.t, "grace")) * time.Second
		w.rules.WaitTTL = time.Duration(rapid.IntRange(1, 9).Draw(w.t, "wait ttl")) * time.Second
	}
	w.log("policy %+v", w.rules)
	w.b.Refresh(w.m.now)
	w.refill()
}

// crash begins anew from the last commit.
func (w *world) crash() {
	w.log("crash")
	w.b.Take()
	w.want, w.ops = nil, nil
	clear(w.told.on)
	w.m.forget()
	clear(w.m.turns)
	w.m.places = nil
	for _, p := range w.saved {
		w.m.places = append(w.m.places, &p)
	}
	w.begin()
	w.refill()
}
