package presence

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Whatever is lost, doubled or overtaken, whoever dies, comes back or is cut off: joins and leaves
// of a member alternate, and once the network is whole again the consumer has the truth.
func TestEveryChangeIsToldOnce(t *testing.T) {
	for seed := range uint64(40) {
		w := newWorld(t, seed, "room/#", "room/1", "room/2", "room/3")
		w.loss = seed%3 > 0
		w.part = []int{1, 3, partSize}[seed/3%3]
		if seed%2 > 0 { // anything happens between two steps of a walk or a snapshot
			w.slow, w.look = 1+int(seed/2%3), 1
		}
		for i := range 3 {
			w.start(fmt.Sprint("e", i))
		}
		for range 150 {
			w.happen()
			w.pass(time.Duration(w.rnd.IntN(4)) * 20 * time.Millisecond)
			if w.rnd.IntN(20) == 0 {
				w.pass(time.Duration(w.rnd.IntN(5000)) * time.Millisecond)
			}
		}
		w.loss, w.blind, w.slow = false, false, 0
		for _, e := range w.edges {
			e.cut = false
		}
		w.pass(8 * time.Second)
		w.settled()
	}
}

// happen does one thing at random.
func (w *world) happen() {
	ids := slices.Sorted(maps.Keys(w.edges))
	e := w.edges[ids[w.rnd.IntN(len(ids))]]
	l := e.loops[w.rnd.IntN(2)]
	conns := slices.Sorted(maps.Keys(l.conns))
	topic := w.topics[w.rnd.IntN(len(w.topics))]
	switch op := w.rnd.IntN(60); {
	case op < 20 || len(conns) == 0:
		w.ids++
		w.subscribe(e, l, w.ids, topic)
	case op < 30:
		w.subscribe(e, l, conns[w.rnd.IntN(len(conns))], topic)
	case op < 42:
		w.unsubscribe(l, conns[w.rnd.IntN(len(conns))], topic)
	case op < 50:
		w.disconnect(l, conns[w.rnd.IntN(len(conns))])
	case op < 52: // it dies, and another begins
		w.log = append(w.log, "restart "+e.ID)
		w.start(e.ID)
	case op < 54:
		w.log = append(w.log, "cut "+e.ID)
		e.cut = !e.cut
	case op < 56:
		w.blind = !w.blind
	case op < 57:
		w.follower.AskAll()
	case op < 58: // changes between a loop and the reporter are lost
		for i, l := range e.loops {
			if i == 0 {
				l.told = nil
			}
		}
		e.reporter.Walk(func(string) bool { return true })
	default:
		w.loss = !w.loss
	}
}

// The end of one loop's walk says nothing of the members of another, whose walk may take longer.
func TestTheEndOfALoopsWalkLeavesOthersMembers(t *testing.T) {
	w := newWorld(t, 1, "room/1", "")
	e := w.start("a")
	for i := range uint64(40) { // a walk looks at one connection a turn
		w.subscribe(e, e.loops[1], 100+i, "")
	}
	w.subscribe(e, e.loops[0], 1, "")
	w.subscribe(e, e.loops[0], 2, "")
	w.pass(5 * time.Second)
	w.settled()
	for _, l := range e.loops { // what is missed is found by the next walk
		l.watched = map[string]uint64{}
	}
	w.disconnect(e.loops[0], 2)
	e.reporter.Walk(func(string) bool { return true })
	w.pass(5 * time.Second)
	w.settled()
	if n := len(w.folded[e.Source]); n != 41 {
		t.Fatalf("%d members", n)
	}
}

// A router that suspects itself keeps the members of edges that are silent; one that knows an edge
// to be gone tells of all their leaves, once.
func TestAnEdgeThatDiedTakesItsMembersWithIt(t *testing.T) {
	w := newWorld(t, 1, "room/1", "")
	a, b := w.start("a"), w.start("b")
	for i := range uint64(1500) {
		w.subscribe(a, a.loops[i%2], 1+i, "")
		w.subscribe(b, b.loops[i%2], 10_000+i, "")
	}
	w.pass(40 * time.Second)
	w.settled()
	if w.follower.MemberCount() != 3000 || w.follower.IncompleteSources() != 0 {
		t.Fatalf("%d members, waits for %d", w.follower.MemberCount(), w.follower.IncompleteSources())
	}
	a.cut, w.blind = true, true
	w.pass(20 * time.Second)
	if len(w.folded[a.Source]) != 1500 {
		t.Fatalf("%d members of an edge that nobody knows to be gone", len(w.folded[a.Source]))
	}
	w.blind = false
	w.pass(100 * time.Millisecond)
	if len(w.folded[a.Source]) != 0 || len(w.folded[b.Source]) != 1500 {
		t.Fatalf("%d members of the edge that is gone, %d of the other", len(w.folded[a.Source]), len(w.folded[b.Source]))
	}
	a.cut = false
	w.pass(40 * time.Second)
	w.settled()
}

// A change that is lost, with nothing behind it, is seen by the next beat: within RenewEvery.
func TestTheLastChangeMayBeLost(t *testing.T) {
	w := newWorld(t, 1, "room/1", "")
	e := w.start("a")
	w.pass(time.Second)
	w.subscribe(e, e.loops[0], 1, "")
	w.work(e)
	w.toUs = nil
	w.pass(RenewEvery + 2*askAgain)
	w.settled()
}

func TestNobodyIsReportedToForLonger(t *testing.T) {
	w := newWorld(t, 1, "room/1", "")
	e := w.start("a")
	for i := range uint64(100) {
		w.subscribe(e, e.loops[0], 1+i, "")
	}
	w.pass(5 * time.Second)
	if s := e.reporter.Stats(); s != (ReporterStats{Filters: 1, Watches: 1, Members: 100}) {
		t.Fatalf("%+v", s)
	}
	e.reporter.Advance(w.now.Add(LeaseFor))
	if s := e.reporter.Stats(); s != (ReporterStats{}) {
		t.Fatalf("%+v", s)
	}
	if _, commands := e.reporter.Take(); len(commands) != 2 || commands[0].Walk != 0 {
		t.Fatalf("%+v", commands)
	}
	w.pass(5 * time.Second) // and comes to it again
	e.reporter.Lease(w.now, &meshv1.PresenceLease{RouterId: "r", RouterIncarnation: 1, EdgeIncarnation: e.Incarnation, Ended: []uint64{1}})
	if s := e.reporter.Stats(); s != (ReporterStats{}) {
		t.Fatalf("%+v", s)
	}
	w.pass(5 * time.Second)
	w.settled()
}

func TestAnEdgeRefusesBeyondItsBounds(t *testing.T) {
	w := newWorld(t, 1, "room/1", "")
	w.most = 10
	e := w.start("a")
	for i := range uint64(11) {
		w.subscribe(e, e.loops[0], 1+i, "")
	}
	w.pass(time.Second)
	if got := w.follower.Failed(); got != wirev1.Code_CODE_MEMORY_BUDGET || e.reporter.Refused(got) == 0 {
		t.Fatalf("got %v", got)
	}
	if s := e.reporter.Stats(); s.Members > 10 {
		t.Fatalf("%+v", s)
	}
	lease := func(id uint64, filter string) {
		e.reporter.Lease(w.now, &meshv1.PresenceLease{
			RouterId: "r", EdgeIncarnation: e.Incarnation, Watches: []*meshv1.PresenceLease_Watch{{Id: id, Filter: filter, Ask: 1}},
		})
	}
	for i := range uint64(12) {
		lease(10+i, fmt.Sprint("f", i))
		lease(100+i, "f0")
	}
	if s := e.reporter.Stats(); s.Filters > 10 || s.Watches > 10 || e.reporter.Refused(wirev1.Code_CODE_OVERLOADED) == 0 {
		t.Fatalf("%+v", s)
	}
}

// What loops match with is bounded, however many filters there may be.
func TestAnEdgeRefusesAHostileMix(t *testing.T) {
	now := time.Unix(1, 0)
	r := NewReporter(ReporterConfig{ID: "e", Incarnation: 1, Loops: 1, MaxMembers: 10, MaxFilters: 10_000, MaxWatches: 10_000})
	for i := range uint64(1 << 12) {
		filter := ""
		for level := range 12 {
			filter += []string{"a/", "+/"}[i>>level&1]
		}
		r.Lease(now, &meshv1.PresenceLease{
			RouterId: "r", EdgeIncarnation: 1, Watches: []*meshv1.PresenceLease_Watch{{Id: i + 1, Filter: filter + "z", Ask: 1}},
		})
	}
	s := r.Stats()
	if refused := int(r.Refused(wirev1.Code_CODE_OVERLOADED)); s.Filters == 0 || s.Filters+refused != 1<<12 || s.Filters > topic.MaxMet || r.wild.Len() > s.Filters {
		t.Fatalf("%+v, %d were refused, %d are matched with", s, refused, r.wild.Len())
	}
	r.Advance(now.Add(time.Hour))
	if r.wild.Len() != 0 {
		t.Fatalf("%d filters are left", r.wild.Len())
	}
}

// Who walks over many members says so with every lease: a follower can tell it from one that says
// nothing.
func TestASourceThatIsAboutToSendIsNotQuiet(t *testing.T) {
	const patience = 2 * time.Second
	now, asks := time.Unix(1000, 0), uint64(0)
	f := NewFollower(1, Topics{Filter: "room/1"}, 10, &asks)
	all := map[Source]bool{{"a", 1}: true, {"b", 1}: true}
	f.Sources(now, all, all)
	ask := map[Source]uint64{}
	f.Leases(now, func(s Source, l *meshv1.PresenceLease_Watch) { ask[s] = l.GetAsk() })
	report := func(id string, kind meshv1.PresenceReport_Kind, serial uint64) {
		s := Source{id, 1}
		f.Report(now, s, &meshv1.PresenceReport{Kind: kind, Ask: ask[s], Serial: serial, N: serial})
	}
	report("a", meshv1.PresenceReport_KIND_LAST, 1)
	if f.EdgesSilent(now.Add(patience-1), patience) || !f.EdgesSilent(now.Add(patience), patience) {
		t.Error("one that says nothing is not quiet for as long as that")
	}
	for range 5 {
		now = now.Add(patience / 2)
		report("b", meshv1.PresenceReport_KIND_BEAT, 0)
	}
	if f.EdgesSilent(now, patience) || f.IncompleteSources() != 1 {
		t.Error("one that beats is quiet")
	}
	report("b", meshv1.PresenceReport_KIND_LAST, 1)
	if !f.EdgesSilent(now, patience) || f.IncompleteSources() != 0 {
		t.Error("one waits for who has sent everything")
	}
}

func TestAFollowerFailsBeyondItsBound(t *testing.T) {
	w := newWorld(t, 1, "room/1", "")
	w.follower = NewFollower(1, Topics{Filter: "room/1"}, 10, &w.asks)
	a, b := w.start("a"), w.start("b")
	for i := range uint64(6) {
		w.subscribe(a, a.loops[0], 1+i, "")
	}
	w.pass(time.Second)
	w.follower.AskAll()
	w.pass(time.Second)
	if got := w.follower.Failed(); got != wirev1.Code_CODE_OK {
		t.Fatalf("got %v for 6 members", got)
	}
	for i := range uint64(6) {
		w.subscribe(b, b.loops[0], 100+i, "")
	}
	w.pass(time.Second)
	if got := w.follower.Failed(); got != wirev1.Code_CODE_MEMORY_BUDGET {
		t.Fatalf("got %v for 12 members", got)
	}
}

// An edge that nobody subscribes at any more is not asked for ever.
func TestASourceThatIsNotWantedIsLetGo(t *testing.T) {
	w := newWorld(t, 1, "room/1", "")
	e := w.start("a")
	w.subscribe(e, e.loops[0], 1, "")
	w.pass(time.Second)
	all, none := map[Source]bool{e.Source: true}, map[Source]bool{}
	if ended := w.follower.Sources(w.now.Add(time.Hour), all, none); len(ended) != 0 {
		t.Fatalf("let go with members: %v", ended)
	}
	w.disconnect(e.loops[0], 1)
	w.pass(time.Second)
	if ended := w.follower.Sources(w.now.Add(LeaseFor), all, none); len(ended) != 1 || len(w.follower.FollowedSources()) != 0 {
		t.Fatalf("still followed: %v", w.follower.FollowedSources())
	}
}

// A large snapshot goes no further ahead than the follower can take, and arrives whole.
func TestASnapshotWaitsForItsFollower(t *testing.T) {
	w := newWorld(t, 1, "room/1", "")
	e := w.start("a")
	const members = 40 * partSize
	for i := range uint64(members) {
		w.subscribe(e, e.loops[0], 1+i, "")
	}
	w.tick()
	w.deliver()
	for i := range 2 * members {
		w.work(e)
		reports := 0
		for _, f := range w.toUs {
			reports += len(f.GetReports())
		}
		if reports > snapshotAhead+3 {
			t.Fatalf("%d reports unasked, at %d", reports, i)
		}
		if reports >= snapshotAhead {
			break
		}
	}
	w.pass(5 * time.Second)
	w.settled()
	if w.follower.MemberCount() != members {
		t.Fatalf("%d members", w.follower.MemberCount())
	}
}

// Who leaves, or leaves and comes back, while the snapshot that has them is on its way is no ghost,
// and is not missing.
func TestASnapshotOnItsWayIsOvertaken(t *testing.T) {
	w := newWorld(t, 1, "room/1", "")
	w.part = 1
	e := w.start("a")
	const members = 5 * snapshotAhead
	for i := range uint64(members) {
		w.subscribe(e, e.loops[0], 1+i, "")
	}
	w.tick()
	w.deliver()
	for range 2 * members {
		w.work(e)
	}
	if n := w.follower.sources[e.Source].n; n != 0 || e.reporter.watches[watchKey{"r", 1, 1}].n != snapshotAhead {
		t.Fatal("the snapshot is not on its way")
	}
	for i := range uint64(members) {
		switch i % 3 {
		case 0:
			w.disconnect(e.loops[0], 1+i)
		case 1:
			w.unsubscribe(e.loops[0], 1+i, "")
			w.subscribe(e, e.loops[0], 1+i, "")
		}
	}
	asked := w.follower.AsksSent()
	w.pass(5 * time.Second)
	w.settled()
	if w.follower.AsksSent() != asked {
		t.Fatal("it took another snapshot")
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(uint64(1), uint64(1), uint64(1), int32(2), uint64(5), false)
	f.Add(uint64(1), uint64(9), uint64(3), int32(0), uint64(0), true)
	f.Add(uint64(1), uint64(1), uint64(2), int32(2), uint64(1), true) // a leave that never was
	f.Fuzz(func(t *testing.T, ask, serial, n uint64, kind int32, conn uint64, left bool) {
		w := newWorld(t, 1, "room/1", "")
		e := w.start("a")
		w.subscribe(e, e.loops[0], 1, "")
		// what is said in its name is not true: members may be told to have left
		w.away[e.Source] = true
		w.pass(200 * time.Millisecond)
		w.follower.Report(w.now, e.Source, &meshv1.PresenceReport{
			Kind: meshv1.PresenceReport_Kind(kind), Ask: ask, Serial: serial, N: n, Changes: []*meshv1.PresenceChange{{Left: left, Member: &Member{ConnectionId: conn}}, {}},
		})
		w.fold()
		e.reporter.Lease(w.now, &meshv1.PresenceLease{RouterId: "r", RouterIncarnation: 1, EdgeIncarnation: e.Incarnation, Watches: []*meshv1.PresenceLease_Watch{
			{Id: 1, Filter: "room/1", Ask: ask, Serial: serial, N: n}, {},
		}})
		w.pass(200 * time.Millisecond)
	})
}

// Whatever members say of themselves, what is reported of them fits a message: as a snapshot, and
// as changes.
func TestReportsFitMessages(t *testing.T) {
	const most = 512 << 10 // half of what NATS takes
	now := time.Unix(1000, 0)
	r := NewReporter(ReporterConfig{ID: "e", Incarnation: 7, Loops: 1, MaxMembers: 5000, MaxWatches: 1, MaxNamed: 1})
	asks, source := uint64(0), map[Source]bool{{ID: "e", Incarnation: 7}: true}
	f := NewFollower(1, Topics{Filter: "room/1", Named: true}, 5000, &asks)
	f.Sources(now, source, source)
	exchange := func() {
		f.Leases(now, func(_ Source, l *meshv1.PresenceLease_Watch) {
			r.Lease(now, &meshv1.PresenceLease{RouterId: "r", EdgeIncarnation: 7, Watches: []*meshv1.PresenceLease_Watch{l}})
		})
		for r.Working() {
			r.Step()
		}
		r.Advance(now)
		frames, _ := r.Take()
		for _, out := range frames {
			if n := proto.Size(out.Frame); n > most {
				t.Fatalf("a frame of %d bytes", n)
			}
			for _, one := range out.Frame.GetReports() {
				f.Report(now, Source{ID: "e", Incarnation: 7}, one)
			}
		}
		now = now.Add(RenewEvery)
	}
	const members = 3000
	walk := uint64(0)
	say := func(at uint64) (changes []Change) {
		for id := range uint64(members) {
			changes = append(changes, Change{Filter: "room/1", Named: true, Walk: walk, Member: &Member{
				ConnectionId: id + 1, ClientId: strings.Repeat("c", 64), User: strings.Repeat("u", 190), State: make([]byte, 1<<10), StateAt: at,
			}})
		}
		return changes
	}
	told := func(at uint64) {
		t.Helper()
		for range 5 {
			exchange()
		}
		n := 0
		for _, m := range f.Members {
			if m.GetStateAt() == at {
				n++
			}
		}
		if n != members || f.AsksSent() != 1 {
			t.Fatalf("%d members are told of, after %d asks", n, f.AsksSent())
		}
	}
	exchange()
	walk = r.filters[Topics{Filter: "room/1", Named: true}].walk
	r.Changes(0, append(say(1), Change{Kind: Walked, Filter: "room/1", Named: true, Walk: walk}))
	told(1)
	r.Changes(0, say(2))
	told(2)
}
