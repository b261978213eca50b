package upstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Bounds of what routers may watch here. A subscription with wildcards is compared with every
// filter that is a topic.
const (
	presenceFilters = 1024
	presenceWatches = 16_384
	presenceMembers = 1_000_000
	changesWaiting  = 1 << 20
	membersOfPage   = 1000
)

// telling is what loops tell of members. Its numbers are of the mesh's goroutine, but for waiting.
type telling struct {
	waiting             atomic.Int64
	missed              atomic.Bool
	walks               atomic.Uint64
	filters, members    atomic.Int64
	overloaded, tooMany atomic.Uint64
}

func (m *Mesh) newReporter(loops int) *presence.Reporter {
	return presence.NewReporter(presence.ReporterConfig{
		ID: m.cfg.ID, Incarnation: m.cfg.Incarnation, Loops: loops,
		MaxMembers: cmp.Or(m.cfg.PresenceMembers, presenceMembers), MaxFilters: presenceFilters, MaxWatches: presenceWatches,
	})
}

// TellMembers takes in what a loop tells of members.
func (m *Mesh) TellMembers(loop uint16, changes []presence.Change) {
	t, n := &m.telling, int64(len(changes))
	if t.waiting.Add(n) <= changesWaiting {
		m.ops.Do(func() {
			t.waiting.Add(-n)
			m.presence.Changes(int(loop), changes)
		})
		return
	}
	t.waiting.Add(-n)
	if !t.missed.Swap(true) {
		m.ops.Do(func() {
			t.missed.Store(false)
			t.walks.Add(1)
			m.presence.Walk(func(string) bool { return true })
		})
	}
}

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
	m.ops.Do(func() { m.presence.Lease(m.now, l) })
}

// reportMembers sends what there is to be told.
func (m *Mesh) reportMembers() {
	m.presence.Advance(m.now)
	frames, commands := m.presence.Take()
	for _, c := range commands {
		m.Post(uint16(c.Loop), exchange.WatchMembers{Filter: c.Filter, Walk: c.Walk})
	}
	for _, f := range frames {
		m.publishTo(bus.RouterPresence(f.Router), f.Frame)
	}
	if len(frames)+len(commands) > 0 {
		s, t := m.presence.Stats(), &m.telling
		t.filters.Store(int64(s.Filters))
		t.members.Store(int64(s.Members))
		t.overloaded.Store(m.presence.Refused(wirev1.Code_CODE_OVERLOADED))
		t.tooMany.Store(m.presence.Refused(wirev1.Code_CODE_MEMORY_BUDGET))
	}
}

// listMembers asks every loop. It answers nothing but the whole: who is missing from a page would
// be passed over for good.
func (m *Mesh) listMembers(ctx context.Context, l *meshv1.ListMembers) (*meshv1.MemberPage, error) {
	if err := topic.Check(l.GetTopic()); err != nil {
		return nil, err
	}
	limit := min(int(l.GetLimit()), membersOfPage)
	page := &meshv1.MemberPage{}
	loops := len(m.loops) - 1 // the last one is the groups'
	t := &tally{left: loops, done: make(chan struct{})}
	for i := range loops {
		m.Post(uint16(i), exchange.ListMembers{Topic: l.GetTopic(), After: l.GetAfter(), Limit: limit, Reply: func(all []*presence.Member, more bool) {
			t.add(func() {
				page.Members = append(page.Members, all...)
				page.More = page.More || more
			})
		}})
	}
	t.wait(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left > 0 {
		return nil, fmt.Errorf("%d loops did not answer", t.left)
	}
	slices.SortFunc(page.Members, func(a, b *presence.Member) int { return cmp.Compare(a.GetConnectionId(), b.GetConnectionId()) })
	if len(page.Members) > limit {
		page.Members, page.More = page.Members[:limit], true
	}
	return page, nil
}
