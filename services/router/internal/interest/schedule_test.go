package interest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// model is an edge as it ought to be: it answers wishes for snapshots, digests every second, and
// its words go through a bad network.
type model struct {
	id          string
	incarnation uint64
	version     uint64
	filters     map[string]uint64 // with the version that announced each
	sending     *sending
}

// sending is a snapshot of which parts are still to be sent, while the edge goes on changing.
type sending struct {
	version uint64
	part    int
}

// world is a table, its edges, and what is on its way to the table.
type world struct {
	t     *rapid.T
	table Table
	now   time.Time
	edges map[string]*model
	wire  []proto.Message
	bad   bool // the network loses, doubles and reorders
	life  uint64
	// newest is the latest life of each edge that the table heard. straggled: then it heard the
	// first words of an earlier one, which it can only take for a new process, until that is
	// silent.
	newest    map[string]uint64
	straggled bool
}

func (w *world) say(m proto.Message) {
	if !w.bad {
		w.wire = append(w.wire, m)
		return
	}
	switch rapid.SampledFrom([]string{"ok", "ok", "ok", "lost", "doubled", "early"}).Draw(w.t, "network") {
	case "lost":
	case "doubled":
		w.wire = append(w.wire, m, m)
	case "early":
		at := rapid.IntRange(0, len(w.wire)).Draw(w.t, "at")
		w.wire = slices.Insert(w.wire, at, m)
	default:
		w.wire = append(w.wire, m)
	}
}

// arrive hands up to n messages to the table and lets edges answer its wishes.
func (w *world) arrive(n int) {
	for ; n > 0 && len(w.wire) > 0; n-- {
		m := w.wire[0]
		w.wire = w.wire[1:]
		switch m := m.(type) {
		case *meshv1.EdgeAnnounce:
			w.heard(m.GetEdgeId(), m.GetEdgeIncarnation())
			w.table.Announce(w.now, m)
		case *meshv1.EdgeDigest:
			w.heard(m.GetEdgeId(), m.GetEdgeIncarnation())
			w.table.Digest(w.now, m)
		case *meshv1.EdgeSnapshot:
			w.heard(m.GetEdgeId(), m.GetEdgeIncarnation())
			w.table.Snapshot(w.now, m)
		}
		w.answer()
	}
}

func (w *world) heard(id string, life uint64) {
	w.straggled = w.straggled || life < w.newest[id]
	w.newest[id] = max(w.newest[id], life)
}

func (w *world) answer() {
	for _, ev := range w.table.Take(nil) {
		e := w.edges[ev.Peer.ID]
		if ev.Want && e != nil && e.incarnation == ev.Peer.Incarnation {
			w.snapshot(e)
		}
	}
}

func (w *world) snapshot(e *model) {
	e.sending = &sending{version: e.version}
	w.part(e)
	for !w.bad && e.sending != nil {
		w.part(e)
	}
}

// part sends the next part of a snapshot, as edges do: of what is announced now, what was when the
// snapshot began.
func (w *world) part(e *model) {
	const parts = 3
	if e.sending == nil {
		return
	}
	s := &meshv1.EdgeSnapshot{EdgeId: e.id, EdgeIncarnation: e.incarnation, Version: e.sending.version, Part: uint32(e.sending.part), Parts: parts}
	for i, f := range pool {
		if v, ok := e.filters[f]; ok && v <= e.sending.version && i%parts == e.sending.part {
			s.Filters = append(s.Filters, f)
		}
	}
	if e.sending.part++; e.sending.part == parts {
		e.sending = nil
	}
	w.say(s)
}

func (w *world) digest(e *model) {
	d := &meshv1.EdgeDigest{EdgeId: e.id, EdgeIncarnation: e.incarnation, Version: e.version, Count: uint64(len(e.filters))}
	for f := range e.filters {
		d.Hash += xxhash.Sum64String(f)
	}
	w.say(d)
}

var pool = []string{"a", "a/b", "a/b/c", "b", "+", "a/+", "a/#", "#", "+/b", "$x/y", "$x/+"}

func (w *world) change(e *model) {
	e.version++
	a := &meshv1.EdgeAnnounce{EdgeId: e.id, EdgeIncarnation: e.incarnation, Version: e.version}
	for _, f := range rapid.SliceOfNDistinct(rapid.SampledFrom(pool), 1, 3, rapid.ID[string]).Draw(w.t, "filters") {
		if _, ok := e.filters[f]; ok {
			delete(e.filters, f)
			a.Remove = append(a.Remove, f)
		} else {
			e.filters[f] = e.version
			a.Add = append(a.Add, f)
		}
	}
	w.say(a)
}

func (w *world) restart(id string) {
	w.life++
	w.edges[id] = &model{id: id, incarnation: w.life, filters: map[string]uint64{}}
}

// settle lets two digest periods pass on a good network.
func (w *world) settle() {
	w.bad = false
	for tick := range 20 {
		w.now = w.now.Add(100 * time.Millisecond)
		w.table.Tick(w.now, true)
		w.answer()
		if tick%10 == 0 {
			for _, e := range w.edges {
				w.digest(e)
			}
		}
		for _, e := range w.edges {
			for e.sending != nil { // what the end of the bad network met half sent
				w.part(e)
			}
		}
		w.arrive(len(w.wire) + 1000)
	}
}

// verifyLookups compares with what the edges that live want; those that died unseen may still be
// there.
func (w *world) verifyLookups() {
	for _, topic := range []string{"a", "a/b", "a/b/c", "b", "c", "c/b", "$x/y"} {
		var want Table
		for _, e := range w.edges {
			want.Announce(w.now, &meshv1.EdgeAnnounce{
				EdgeId: e.id, EdgeIncarnation: e.incarnation, Version: 1, Add: slices.Collect(maps.Keys(e.filters)),
			})
		}
		got := slices.DeleteFunc(names(&w.table, topic), func(name string) bool {
			return !slices.ContainsFunc(slices.Collect(maps.Values(w.edges)), func(e *model) bool { return name == fmt.Sprint(Edge{e.id, e.incarnation}) })
		})
		if want := names(&want, topic); !slices.Equal(got, want) {
			w.t.Fatalf("%s goes to %v, want %v", topic, got, want)
		}
	}
}

func (w *world) verify() {
	w.verifyLookups()
	entries := 0
	for _, e := range w.edges {
		entries += len(e.filters)
	}
	if s := w.table.Stats(); s.Entries != entries || s.Edges != len(w.edges) {
		w.t.Fatalf("%+v, want %d entries of %d edges", s, entries, len(w.edges))
	}
	if err := w.table.Ready(w.now); err != nil {
		w.t.Fatalf("not ready: %v", err)
	}
}

func names(t *Table, topic string) []string {
	var list []string
	for _, e := range t.Lookup(nil, topic) {
		list = append(list, fmt.Sprint(e.Edge))
	}
	slices.Sort(list)
	return list
}

// Whatever the network did before, and whichever edges were killed in the middle of what, the table
// is right two digest periods after it is good again; and after SilentAfter besides, where the
// words of a dead process came after those of the next.
func TestConvergesWithinTwoDigestPeriods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: zero, edges: map[string]*model{}, newest: map[string]uint64{}, bad: true}
		w.table.Tick(w.now, true)
		ids := []string{"e1", "e2", "e3", "e4", "e5", "e6"}
		for _, id := range ids {
			w.restart(id)
		}
		dead := false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.SampledFrom(ids).Draw(t, "edge")
			e := w.edges[id]
			if e == nil { // it died, and comes back now and then
				if rapid.Bool().Draw(t, "back") {
					w.restart(id)
				}
				continue
			}
			switch rapid.SampledFrom([]string{"change", "change", "change", "digest", "arrive", "arrive", "part", "part", "tick", "restart", "die"}).Draw(t, "step") {
			case "change":
				w.change(e)
			case "digest":
				w.digest(e)
			case "arrive":
				w.arrive(rapid.IntRange(1, 5).Draw(t, "n"))
			case "tick":
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 700).Draw(t, "ms")) * time.Millisecond)
				w.table.Tick(w.now, true)
				w.answer()
			case "restart":
				w.restart(e.id)
			case "die":
				delete(w.edges, e.id)
				dead = true
			case "part":
				w.part(e)
			}
		}
		w.settle()
		for past := w.now; w.straggled && w.now.Sub(past) < SilentAfter; {
			w.settle()
		}
		w.verifyLookups()
		for range 7 { // until even a third of the edges would be taken for dead
			if dead {
				w.settle()
			}
		}
		w.verify()
	})
}
