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
)

// Bounds of what routers may watch here. A subscription with wildcards is compared with every
// filter that is a topic.
const (
	presenceFilters = 1024
	presenceWatches = 16_384
	presenceMembers = 1_000_000
	changesWaiting  = 1 << 20
)

// members are those of filters that routers watch, as loops tell of them. The mesh's goroutine owns
// the reporter; the numbers may be read at any time.
type members struct {
	ops      *serial.Queue // the mesh's goroutine
	reporter *presence.Reporter

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
		MaxMembers: cmp.Or(cfg.PresenceMembers, presenceMembers), MaxFilters: presenceFilters, MaxWatches: presenceWatches,
	})
}

// tell takes in what a loop tells of members. Any goroutine may call it.
func (ms *members) tell(loop uint16, changes []presence.Change) {
	n := int64(len(changes))
	if ms.waiting.Add(n) <= changesWaiting {
		ms.ops.Do(func() {
			ms.waiting.Add(-n)
			ms.reporter.Changes(int(loop), changes)
		})
		return
	}
	ms.waiting.Add(-n)
	if !ms.missed.Swap(true) {
		ms.ops.Do(func() {
			ms.missed.Store(false)
			ms.walks.Add(1)
			ms.reporter.Walk(func(string) bool { return true })
		})
	}
}

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
		bad = bad || topic.CheckFilter(w.GetFilter()) != nil
	}
	if bad {
		m.stats.BadFrames.Add(1)
		return
	}
	m.ops.Do(func() { m.members.reporter.Lease(m.now, l) })
}

// reportMembers sends what there is to be told.
func (m *Mesh) reportMembers() {
	frames, commands := m.members.report(m.now)
	for _, c := range commands {
		m.Post(uint16(c.Loop), exchange.WatchMembers{Filter: c.Filter, Walk: c.Walk})
	}
	for _, f := range frames {
		m.publishTo(bus.RouterPresence(f.Router), f.Frame)
	}
}
