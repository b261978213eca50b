package upstream

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// heldBeat is work without end that notes how long the goroutine did not come to it.
type heldBeat struct {
	last    time.Time
	longest time.Duration
	stop    atomic.Bool
	over    chan time.Duration
}

// Step implements turns.Job.
func (h *heldBeat) Step() (done bool) {
	now := time.Now()
	if !h.last.IsZero() {
		h.longest = max(h.longest, now.Sub(h.last))
	}
	h.last = now
	if done = h.stop.Load(); done {
		h.over <- h.longest
	}
	return done
}

// How long the mesh's goroutine is held, at the longest, while 100,000 topics are wanted: by their
// joins and what becomes of these, by a comparison of all heads, by a router that asks for
// everything, by NATS coming back, and by all leaving.
func BenchmarkManyTopics(b *testing.B) {
	const topics = 100_000
	w := newWorld(b)
	m, loops := w.edge("e1", 1)
	l := loops[0]
	answered := make(chan struct{}, topics)
	l.forget = true
	l.onPost = func(e exchange.Event) {
		if _, ok := e.(exchange.Joined); ok {
			answered <- struct{}{}
		}
	}
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprintf("room/%d/of-someone", i)
	}
	idle := func() bool {
		done := true
		m.do(b.Context(), func() {
			_, due := m.table.Due()
			done = !due && m.work.Stats().Waiting.Load() <= 1 && !m.check.splitting && !m.check.wanted()
			for _, lane := range m.check.lanes {
				done = done && !lane.running
			}
		})
		return done
	}
	longest := map[string]time.Duration{}
	during := func(what string, f func()) {
		beat := &heldBeat{over: make(chan time.Duration)}
		m.ops.Do(func() { m.work.Add(beat) })
		f()
		for !idle() {
			<-time.After(time.Millisecond)
		}
		beat.stop.Store(true)
		longest[what] = max(longest[what], <-beat.over)
	}
	for b.Loop() {
		during("join", func() {
			for i, name := range names {
				m.Join(conn(0, 1), uint32(i), name, true, 0)
			}
			for range names {
				<-answered
			}
		})
		during("check", func() { m.ops.Do(func() { m.checkAll("gap") }) })
		during("snapshot", func() {
			sent := m.stats.Snapshots.Load()
			for m.stats.Snapshots.Load() == sent {
				m.ops.Do(func() { m.snapshot("r1") })
				<-time.After(snapshotEvery)
			}
		})
		during("reconnect", func() { m.ops.Do(m.gap) })
		during("leave", func() {
			for _, name := range names {
				m.Leave(0, name)
			}
		})
	}
	for what, d := range longest {
		b.ReportMetric(float64(d.Microseconds())/1000, "ms-longest-"+what)
	}
	b.ReportMetric(float64(m.work.Stats().Longest.Load())/1e6, "ms-longest-slice")
}
