package presence

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// world is some edges with their loops, a follower, and the frames between them.
type world struct {
	t        *testing.T
	rnd      *rand.Rand
	now      time.Time
	filter   string
	topics   []string
	most     int
	part     int  // members of a report
	slow     int  // steps that a reporter does between two looks at everything else; 0: all
	look     int  // members that one of them looks at
	loss     bool // frames are lost, doubled and overtaken
	edges    map[string]*edge
	lives    uint64
	ids      uint64
	asks     uint64
	follower *Follower
	known    map[Source]bool
	blind    bool // the follower's router suspects itself, and keeps whom it knows
	toEdges  []leaseFrame
	toUs     []*meshv1.PresenceFrame
	folded   map[Source]map[key]bool
	departed map[key]bool    // members that have left, once at least
	away     map[Source]bool // edges that died, or that the follower had reason to take for dead
	log      []string
}

type leaseFrame struct {
	to   string
	data []byte
}

// edge is one life of an edge.
type edge struct {
	Source
	reporter *Reporter
	loops    []*loop
	cut      bool // nothing comes from it, and nothing gets there
}

// loop is what an event loop does, told in its order.
type loop struct {
	conns    map[uint64]map[string]bool
	watched  map[string]uint64
	walks    []*walk
	commands []Command
	told     []Change // that the reporter has not seen
}

type walk struct {
	filter string
	id     uint64
	left   []uint64
}

func newWorld(t *testing.T, seed uint64, filter string, topics ...string) *world {
	w := &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1000, 0), filter: filter, topics: topics, most: 1 << 20, part: partSize, look: membersOfStep, edges: map[string]*edge{},
		known: map[Source]bool{}, folded: map[Source]map[key]bool{}, departed: map[key]bool{}, away: map[Source]bool{},
	}
	w.follower = NewFollower(1, Topics{Filter: filter}, w.most, &w.asks)
	return w
}

func (w *world) start(id string) *edge {
	w.lives++
	if before := w.edges[id]; before != nil {
		w.away[before.Source] = true
	}
	e := &edge{Source: Source{id, w.lives}}
	e.reporter = NewReporter(ReporterConfig{ID: id, Incarnation: w.lives, Loops: 2, MaxMembers: w.most, MaxFilters: 10, MaxWatches: 10})
	e.reporter.part, e.reporter.look = w.part, w.look
	for range 2 {
		e.loops = append(e.loops, &loop{conns: map[uint64]map[string]bool{}, watched: map[string]uint64{}})
	}
	w.edges[id] = e
	return e
}

// subscribe and unsubscribe change the truth, and tell where it is watched.
func (w *world) subscribe(e *edge, l *loop, conn uint64, topic string) {
	if l.conns[conn] == nil {
		l.conns[conn] = map[string]bool{}
	}
	l.conns[conn][topic] = true
	for f, id := range l.watched {
		l.told = append(l.told, Change{Kind: Joined, Filter: f, Walk: id, Member: w.member(conn, topic)})
	}
}

func (w *world) unsubscribe(l *loop, conn uint64, topic string) {
	delete(l.conns[conn], topic)
	w.departed[key{conn, topic}] = true
	for f, id := range l.watched {
		l.told = append(l.told, Change{Kind: Left, Filter: f, Walk: id, Member: w.member(conn, topic)})
	}
}

func (w *world) disconnect(l *loop, conn uint64) {
	for topic := range l.conns[conn] {
		w.departed[key{conn, topic}] = true
	}
	delete(l.conns, conn)
	if len(l.watched) > 0 {
		l.told = append(l.told, Change{Kind: Ended, Member: &Member{ConnectionId: conn}})
	}
}

func (w *world) member(conn uint64, topic string) *Member {
	return &Member{ConnectionId: conn, Topic: topic, ClientId: fmt.Sprint("c", conn)}
}

// turn is a turn of a loop: a command, and a step of each walk.
func (w *world) turn(l *loop) {
	if len(l.commands) > 0 {
		c := l.commands[0]
		l.commands = l.commands[1:]
		l.walks = slices.DeleteFunc(l.walks, func(x *walk) bool { return x.filter == c.Filter })
		if c.Walk == 0 {
			delete(l.watched, c.Filter)
		} else {
			l.watched[c.Filter] = c.Walk
			x := &walk{filter: c.Filter, id: c.Walk}
			for conn := range l.conns {
				x.left = append(x.left, conn)
			}
			l.walks = append(l.walks, x)
		}
	}
	for _, x := range slices.Clone(l.walks) {
		if len(x.left) == 0 {
			l.told = append(l.told, Change{Kind: Walked, Filter: x.filter, Walk: x.id})
			l.walks = slices.DeleteFunc(l.walks, func(o *walk) bool { return o == x })
			continue
		}
		conn := x.left[0]
		x.left = x.left[1:]
		for topic := range l.conns[conn] {
			l.told = append(l.told, Change{Kind: Joined, Filter: x.filter, Walk: x.id, Member: w.member(conn, topic)})
		}
	}
}

// work lets an edge do what it has to.
func (w *world) work(e *edge) {
	for i, l := range e.loops {
		w.turn(l)
		e.reporter.Changes(i, l.told)
		l.told = nil
	}
	for n := 0; e.reporter.Working() && (w.slow == 0 || n < w.slow); n++ {
		e.reporter.Step()
	}
	e.reporter.Advance(w.now)
	frames, commands := e.reporter.Take()
	for _, c := range commands {
		e.loops[c.Loop].commands = append(e.loops[c.Loop].commands, c)
	}
	for _, f := range frames {
		if f.Router != "r" {
			w.t.Fatalf("a frame for %q", f.Router)
		}
		if !e.cut {
			w.toUs = append(w.toUs, f.Frame)
		}
	}
}

// tick lets the follower do what it has to.
func (w *world) tick() {
	for _, e := range w.edges {
		w.away[e.Source] = w.away[e.Source] || e.cut
	}
	if !w.blind {
		clear(w.known)
		for _, e := range w.edges {
			if !e.cut {
				w.known[e.Source] = true
			}
		}
	}
	for _, gone := range w.follower.Sources(w.now, w.known, w.known) {
		w.t.Fatalf("%v is not followed any more", gone)
	}
	w.follower.Leases(w.now, func(s Source, l *meshv1.PresenceLease_Watch) {
		data, err := proto.Marshal(&meshv1.PresenceLease{RouterId: "r", RouterIncarnation: 1, EdgeIncarnation: s.Incarnation, Watches: []*meshv1.PresenceLease_Watch{l}})
		if err != nil {
			w.t.Fatal(err)
		}
		w.toEdges = append(w.toEdges, leaseFrame{s.ID, data})
	})
	w.fold()
}

// deliver passes frames on, with what the network does to them.
func (w *world) deliver() {
	toEdges := mangle(w, w.toEdges)
	w.toEdges = nil
	for _, f := range toEdges {
		l := &meshv1.PresenceLease{}
		if err := proto.Unmarshal(f.data, l); err != nil {
			w.t.Fatal(err)
		}
		if e := w.edges[f.to]; e != nil && !e.cut {
			e.reporter.Lease(w.now, l)
		}
	}
	toUs := mangle(w, w.toUs)
	w.toUs = nil
	for _, f := range toUs {
		data, err := proto.Marshal(f)
		if err != nil {
			w.t.Fatal(err)
		}
		f = &meshv1.PresenceFrame{}
		if err := proto.Unmarshal(data, f); err != nil {
			w.t.Fatal(err)
		}
		for _, r := range f.GetReports() {
			w.follower.Report(w.now, Source{f.GetEdgeId(), f.GetEdgeIncarnation()}, r)
		}
		w.fold()
	}
}

func mangle[F any](w *world, in []F) (out []F) {
	if !w.loss {
		return in
	}
	for _, f := range in {
		switch w.rnd.IntN(12) {
		case 0: // lost
		case 1:
			out = append(out, f, f)
		case 2:
			out = slices.Insert(out, w.rnd.IntN(len(out)+1), f)
		default:
			out = append(out, f)
		}
	}
	return out
}

// fold does what a consumer does, and checks that joins and leaves of a member alternate, and that
// nobody is told to have left who did not.
func (w *world) fold() {
	for _, e := range w.follower.TakeEvents() {
		set := w.folded[e.Source]
		if set == nil {
			set = map[key]bool{}
			w.folded[e.Source] = set
		}
		if k := keyOf(e.Member); set[k] != e.Left {
			w.t.Fatalf("%v %v: left %v, twice\n%v", e.Source, k, e.Left, w.log)
		} else if e.Left && !w.departed[k] && !w.away[e.Source] {
			w.t.Fatalf("%v %v is told to have left, and never did\n%v", e.Source, k, w.log)
		} else if set[k] = !e.Left; e.Left {
			delete(set, k)
		}
	}
	n := 0
	for range w.follower.Members {
		n++
	}
	if n != w.follower.MemberCount() {
		w.t.Fatalf("%d members, %d held", n, w.follower.MemberCount())
	}
}

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(20 * time.Millisecond) {
		w.tick()
		for _, e := range w.edges {
			w.work(e)
		}
		w.deliver()
	}
}

// settled says that what the consumer has is the truth.
func (w *world) settled() {
	w.t.Helper()
	want := map[Source]map[key]bool{}
	for _, e := range w.edges {
		for _, l := range e.loops {
			for conn, topics := range l.conns {
				for topic := range topics {
					if want[e.Source] == nil {
						want[e.Source] = map[key]bool{}
					}
					want[e.Source][key{conn, topic}] = true
				}
			}
		}
	}
	for s, set := range w.folded {
		for k := range set {
			if !want[s][k] {
				w.t.Fatalf("a ghost: %v %v\n%v", s, k, w.log)
			}
		}
	}
	for s, set := range want {
		for k := range set {
			if !w.folded[s][k] {
				w.t.Fatalf("missing: %v %v\n%v", s, k, w.log)
			}
		}
	}
}
