package upstream

import (
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/interest"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// joinsWaiting bounds the subscriptions that wait for an answer.
const joinsWaiting = 200_000

// joinsOfOneOwner is how many joins may wait for one owner, so that there is room for those of
// others.
const joinsOfOneOwner = joinsWaiting / 2

// laggingMost bounds the filters kept of joins that were answered late.
const laggingMost = 65_536

// passedOfStep is how many joins go on in one step: about 50 µs.
const passedOfStep = 32

// joins are those that are not answered yet: a join waits until its filter was announced, then
// until routers have applied that, then for heads where it needs these. The mesh's goroutine owns
// them, but for waiting.
type joins struct {
	waiting     atomic.Int64 // all
	unannounced walk.FIFO[unannounced]
	gate        interest.Gate
	passing     bool // joins go on in slices
	heads       headQuestions
	lagging     []lag // by version; their joins are answered
}

// unannounced is a join that waits until the table has announced so many changes, its own among
// them.
type unannounced struct {
	interest.Wait
	change uint64
}

// lag is a filter whose join was answered before every live router had applied the version that
// announced it: what such a router routed meanwhile did not come here.
type lag struct {
	version uint64
	filter  string
}

// count counts one more and reports whether it may wait. Any goroutine may call it.
func (j *joins) count() bool { return j.waiting.Add(1) <= joinsWaiting }

// nextAnnounced takes out the next join whose change was announced, or came to nothing; so many
// changes were.
func (j *joins) nextAnnounced(told uint64) (w interest.Wait, ok bool) {
	if j.unannounced.Len() == 0 || j.unannounced.Peek().change > told {
		return w, false
	}
	u, _ := j.unannounced.Pop()
	if j.unannounced.Len() == 0 {
		j.unannounced = walk.FIFO[unannounced]{} // a burst leaves no memory
	}
	return u.Wait, true
}

// answeredLate notes a filter whose join routers took too long for.
func (j *joins) answeredLate(version uint64, filter string) {
	j.lagging = append(j.lagging, lag{version, filter})
}

// caughtUp takes out most of the late filters whose version is at most applied, and says how many.
func (j *joins) caughtUp(applied uint64, most int, found func(filter string)) (n int) {
	for ; n < most && len(j.lagging) > 0 && j.lagging[0].version <= applied; n++ {
		found(j.lagging[0].filter)
		j.lagging = j.lagging[1:]
	}
	if len(j.lagging) > laggingMost { // the backstop finds the others
		j.lagging = j.lagging[len(j.lagging)-laggingMost:]
	}
	return n
}

// waitsForRouters reports whether a join, or a filter whose join is answered, waits for routers.
func (j *joins) waitsForRouters() bool { return j.gate.Len() > 0 || len(j.lagging) > 0 }

// Join says that a subscription of a loop wants filter.
func (m *Mesh) Join(conn exchange.Conn, sub uint32, filter string, heads bool, limit int) {
	w := interest.Wait{Conn: conn, Sub: sub, Filter: filter, Heads: heads, Limit: limit}
	admitted := m.joins.count()
	m.ops.Do(func() {
		// It is counted even where it is refused: its Leave comes.
		if m.table.Join(m.now, int(conn.Loop), filter) {
			m.feed.Add(int(conn.Loop), filter)
		}
		if !admitted {
			m.stats.RefusedJoins.Add(1)
			m.answer(w, nil, code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many subscriptions are being made"))
			return
		}
		m.admit(w)
	})
}

// Leave ends one Join.
func (m *Mesh) Leave(loop uint16, filter string) {
	m.ops.Do(func() {
		if m.table.Leave(m.now, int(loop), filter) {
			m.feed.Remove(int(loop), filter)
		}
	})
}

// admit passes a join on, or has it wait for routers.
func (m *Mesh) admit(w interest.Wait) {
	version := m.table.Announced(w.Filter)
	applied, live := m.routers.Applied()
	switch {
	case !m.cfg.Bus.Connected(), !live && !m.routers.unheard(m.now):
		m.stats.WithoutRouter.Add(1)
		m.pass(w)
	case version == 0:
		m.joins.unannounced.Push(unannounced{w, m.table.Changes()})
	case !m.routers.unheard(m.now) && applied >= version:
		m.pass(w)
	default:
		m.joins.gate.Add(m.now, version, w)
	}
}

// passJoins has the joins go on that wait for nothing any more: some at once, the others in slices.
func (m *Mesh) passJoins() {
	if !m.joins.passing && !m.passSome() {
		m.joins.passing = true
		m.work.Add(passing{m})
	}
}

// passing is joins that go on. Between two steps of it anything may happen: it asks again what was
// announced, and what routers have applied. Joins that must wait once more, because a router is new
// or NATS came back, wait for whatever calls passJoins next.
type passing struct{ m *Mesh }

// Step implements turns.Job.
func (j passing) Step() (done bool) {
	done = j.m.passSome()
	j.m.joins.passing = !done
	return done
}

// passSome passes on some joins, and reports whether those were all that may go on.
func (m *Mesh) passSome() (done bool) {
	room := passedOfStep
	for ; room > 0; room-- {
		w, ok := m.joins.nextAnnounced(m.table.Told())
		if !ok {
			break
		}
		m.announced(w)
	}
	room -= m.caughtUp(room)
	room -= m.openGate(room)
	room -= m.late(room)
	return room > 0
}

// announced has a join go on whose change was announced.
func (m *Mesh) announced(w interest.Wait) {
	if m.table.Announced(w.Filter) == 0 { // everyone left before it was announced, or since
		m.answer(w, nil, code.New(wirev1.Code_CODE_CANCELLED, "the subscription ended"))
		return
	}
	m.admit(w)
}

// openGate passes on most of the joins that every live router has applied, and says how many.
func (m *Mesh) openGate(most int) (n int) {
	if most == 0 || m.joins.gate.Len() == 0 {
		return 0
	}
	applied, live := m.routers.Applied()
	if m.routers.unheard(m.now) && m.cfg.Bus.Connected() {
		return 0
	}
	out := m.joins.gate.Applied(applied, most) // everything where no router is left
	if !live {
		m.stats.WithoutRouter.Add(uint64(len(out)))
	}
	for _, w := range out {
		m.pass(w)
	}
	return len(out)
}

// late passes on most of the joins that routers took too long for, and says how many.
func (m *Mesh) late(most int) (n int) {
	out := m.joins.gate.Late(m.now, most)
	for _, w := range out {
		version := m.table.Announced(w.Filter)
		m.stats.Laggards.Add(uint64(max(m.routers.Laggards(version), 1)))
		m.joins.answeredLate(version, w.Filter)
		m.pass(w)
	}
	return len(out)
}

// caughtUp has the topics of late filters compared, most of them, once every live router has
// applied their versions. It says how many.
func (m *Mesh) caughtUp(most int) (n int) {
	applied, _ := m.routers.Applied()
	return m.joins.caughtUp(applied, most, func(filter string) {
		if topic.IsFilter(filter) {
			m.checkAll("laggard")
		} else {
			m.checkSome("laggard", []string{filter})
		}
	})
}

// pass answers a join whose interest is known to routers, or has heads read for it first. The feed
// needs these too, once for a topic or filter.
func (m *Mesh) pass(w interest.Wait) {
	switch {
	case topic.IsFilter(w.Filter):
		if !m.cfg.DurableAny(w.Filter) || !w.Heads && m.feed.IsBased(w.Filter) {
			m.answer(w, nil, nil)
			return
		}
		m.joins.heads.filters.add(m.now, w)
	case !m.cfg.Durable(w.Filter), !w.Heads && m.feed.Known(w.Filter):
		m.answer(w, nil, nil)
	default:
		qs := m.joins.heads.of(m.ownerOf(w.Filter))
		if qs.n >= joinsOfOneOwner {
			m.stats.RefusedJoins.Add(1)
			m.answer(w, nil, code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many subscriptions wait for the store that owns the topic"))
			return
		}
		m.feed.Expect(w.Filter)
		qs.add(m.now, w)
	}
}

// ownerOf is the store that owns a topic's shard, as far as is known; "" where none does.
func (m *Mesh) ownerOf(name string) string { return m.cfg.Store.OwnerOf(topic.Shard(name)) }

func (m *Mesh) answer(w interest.Wait, heads []exchange.Head, err error) {
	m.joins.waiting.Add(-1)
	if err != nil {
		m.stats.FailedJoins.Add(1)
	}
	m.Post(w.Conn.Loop, exchange.Joined{Conn: w.Conn, Sub: w.Sub, Heads: heads, Exact: !topic.IsFilter(w.Filter), Err: err})
}
