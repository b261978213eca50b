package upstream

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Bounds of what routers may watch here. A subscription with wildcards is compared with every
// filter that is a topic.
const (
	presenceFilters = 1024
	presenceNamed   = 65_536 // topics whose members clients want to know
	presenceWatches = 16_384
	presenceMembers = 1_000_000
	changesWaiting  = 1 << 20
)

// members are those of filters that routers watch, as loops tell of them. The mesh's goroutine owns
// the reporter; the numbers may be read at any time.
type members struct {
	ops      *serial.Queue // the mesh's goroutine
	reporter *presence.Reporter
	told     walk.FIFO[told] // not taken in yet
	working  bool            // reporting is among the work
	turn     bool            // the reporter's, if it has something to do

	waiting             atomic.Int64 // changes
	missed              atomic.Bool
	walks               atomic.Uint64
	filters, members    atomic.Int64
	overloaded, tooMany atomic.Uint64
}

// serve sets how many loops have members.
func (ms *members) serve(cfg *Config, loops int) {
	ms.reporter = presence.NewReporter(presence.ReporterConfig{
		ID: cfg.ID, Incarnation: cfg.Incarnation, Loops: loops,
		MaxMembers: cmp.Or(cfg.PresenceMembers, presenceMembers), MaxFilters: presenceFilters, MaxWatches: presenceWatches, MaxNamed: presenceNamed,
	})
}

// changesOfStep is how many changes one step takes in; one that ends a connection is looked for in
// every filter.
const changesOfStep = 32

// told are changes that a loop told of.
type told struct {
	loop    int // walkAgain: what loops told since could not be kept
	changes []presence.Change
}

// walkAgain has loops walk over all members.
const walkAgain = -1

// tell takes in what a loop tells of members. What there is no room for is made good for by one
// walk, which begins once there is room: behind all that waits already. Any goroutine may call it.
func (ms *members) tell(loop uint16, changes []presence.Change) {
	n := int64(len(changes))
	if ms.waiting.Add(n) <= changesWaiting {
		ms.ops.Do(func() { ms.told.Push(told{int(loop), changes}) })
		return
	}
	ms.waiting.Add(-n)
	if !ms.missed.Swap(true) {
		ms.ops.Do(func() { ms.told.Push(told{loop: walkAgain}) })
	}
}

// step takes in some changes, in the order in which they were told, or goes on with what takes
// long, in turns; it reports whether there is more.
func (ms *members) step() (more bool) {
	if ms.turn = !ms.turn; ms.told.Len() == 0 || ms.turn && ms.reporter.Working() {
		ms.reporter.Step()
		return ms.works()
	}
	t, n, cost := ms.told.Peek(), 0, 0
	if t.loop == walkAgain {
		ms.told.Pop()
		ms.missed.Store(false)
		ms.walks.Add(1)
		ms.reporter.Walk(func(string) bool { return true })
		return ms.works()
	}
	for ; n < len(t.changes) && cost < changesOfStep; n++ {
		if cost++; t.changes[n].Kind == presence.Ended {
			n := ms.reporter.Stats()
			cost += (n.Filters - n.Named) / 8
		}
	}
	ms.reporter.Changes(t.loop, t.changes[:n])
	ms.waiting.Add(int64(-n))
	if t.changes = t.changes[n:]; len(t.changes) == 0 {
		ms.told.Pop()
	}
	return ms.works()
}

// works reports whether there is something for step to do.
func (ms *members) works() bool { return ms.told.Len() > 0 || ms.reporter.Working() }

// report returns what is to be told: to routers, and to loops.
func (ms *members) report(now time.Time) ([]presence.Outgoing, []presence.Command) {
	ms.reporter.Advance(now)
	frames, commands := ms.reporter.Take()
	if len(frames)+len(commands) > 0 {
		n := ms.reporter.Stats()
		ms.filters.Store(int64(n.Filters))
		ms.members.Store(int64(n.Members))
		ms.overloaded.Store(ms.reporter.Refused(wirev1.Code_CODE_OVERLOADED))
		ms.tooMany.Store(ms.reporter.Refused(wirev1.Code_CODE_MEMORY_BUDGET))
	}
	return frames, commands
}

// TellMembers takes in what a loop tells of members.
func (m *Mesh) TellMembers(loop uint16, changes []presence.Change) { m.members.tell(loop, changes) }

// lease takes in what a router wants to be told.
func (m *Mesh) lease(l *meshv1.PresenceLease) {
	bad := bus.CheckID(l.GetRouterId()) != nil
	for _, w := range l.GetWatches() {
		bad = bad || topic.CheckFilter(w.GetFilter()) != nil || w.GetNamed() && topic.IsFilter(w.GetFilter())
	}
	if bad {
		m.stats.BadFrames.Add(1)
		return
	}
	m.ops.Do(func() { m.members.reporter.Lease(m.now, l) })
}

// reporting is what takes long of the members.
type reporting struct{ m *Mesh }

// Step implements turns.Job. What comes out is sent once the slice is over: many changes in a
// frame.
func (j reporting) Step() (done bool) {
	j.m.members.working = j.m.members.step()
	return !j.m.members.working
}

// reportMembers sends what there is to be told, and has go on what takes long.
func (m *Mesh) reportMembers() {
	if m.members.works() && !m.members.working {
		m.members.working = true
		m.work.Add(reporting{m})
	}
	frames, commands := m.members.report(m.now)
	for _, c := range commands {
		m.Post(uint16(c.Loop), exchange.WatchMembers{Filter: c.Filter, Named: c.Named, Walk: c.Walk})
	}
	for _, f := range frames {
		m.publishTo(bus.RouterPresence(f.Router), f.Frame)
	}
}
