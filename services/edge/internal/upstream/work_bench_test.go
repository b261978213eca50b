package upstream

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// populous is a store in which very many topics match any filter.
type populous struct {
	Store
	heads []*meshv1.Head
}

func (c *populous) Heads(ctx context.Context, topics, filters []string, limit uint32) ([]*meshv1.Head, error) {
	if len(filters) == 0 {
		return c.Store.Heads(ctx, topics, filters, limit)
	}
	return c.heads, nil
}

// probe asks for the mesh's goroutine again and again, and notes how long it waits.
func probe(m *Mesh, stop <-chan struct{}) (waits []time.Duration) {
	for {
		began, done := time.Now(), make(chan struct{})
		m.ops.Do(func() { close(done) })
		<-done
		waits = append(waits, time.Since(began))
		select {
		case <-stop:
			return waits
		case <-time.After(time.Millisecond):
		}
	}
}

// What others wait for the mesh's goroutine while a client joins 256 filters, each of which matches
// 95,000 topics, and is answered that these are too many; then the same filters without heads.
func BenchmarkWildcardsOfManyTopics(b *testing.B) {
	const topics, levels = 95_000, 8
	w := newWorld(b)
	many := &populous{heads: make([]*meshv1.Head, topics)}
	for i := range many.heads {
		many.heads[i] = &meshv1.Head{Topic: fmt.Sprintf("room/b/c/d/e/f/g/h/%d", i), Epoch: 1000, Head: 5, Oldest: 1}
	}
	m, loops := w.edge("e1", 1, func(c *Config) { many.Store, c.Store = c.Store, many })
	l := loops[0]
	answered := make(chan struct{}, 1<<levels)
	l.forget = true
	l.onPost = func(e exchange.Event) {
		if _, ok := e.(exchange.Joined); ok {
			answered <- struct{}{}
		}
	}
	var filters []string
	for n := range 1 << levels {
		f := "room"
		for i, level := range []string{"b", "c", "d", "e", "f", "g", "h"} {
			if n&(1<<i) != 0 {
				level = "+"
			}
			f += "/" + level
		}
		filters = append(filters, f+[]string{"/+", "/#"}[n>>7])
	}
	var waits []time.Duration
	var allocated, peak uint64
	b.ResetTimer()
	for range b.N {
		stop, over := make(chan struct{}), sync.WaitGroup{}
		var before, now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		over.Go(func() { waits = append(waits, probe(m, stop)...) })
		for _, heads := range []bool{true, false} {
			for i, f := range filters {
				m.Join(conn(0, 1), uint32(i), f, heads, 1000)
			}
			for range filters {
				<-answered
			}
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc-min(before.HeapAlloc, now.HeapAlloc))
		}
		close(stop)
		over.Wait()
		runtime.ReadMemStats(&now)
		allocated += now.TotalAlloc - before.TotalAlloc
		for range 2 {
			for _, f := range filters {
				m.Leave(0, f)
			}
		}
	}
	b.StopTimer()
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)-1].Microseconds())/1000, "ms-longest-wait")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "ms-p99-wait")
	b.ReportMetric(float64(m.work.Stats().Longest.Load())/1e6, "ms-longest-slice")
	b.ReportMetric(float64(allocated)/float64(b.N)/(1<<20), "MiB-allocated/op")
	b.ReportMetric(float64(peak)/(1<<20), "MiB-heap")
}
