package presencewatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// asks counts how often edges were looked up, by topic.
type asks struct {
	one
	times map[string]int
}

func (a asks) Interested(dst []interest.Edge, topic string) []interest.Edge {
	a.times[topic]++
	return a.one.Interested(dst, topic)
}

// Of very many watches some are looked at in each tick, and all of them have their turns, also
// while others come and end.
func TestManyWatchesTakeTurns(t *testing.T) {
	a := asks{one{interest.Edge{ID: "edge", Incarnation: 7}}, map[string]int{}}
	w := New(Config{Edges: a, Bus: bus.New(bus.Config{}), MaxMembers: 1000, MaxQueued: 1000})
	now := time.Now()
	var all []*watch
	for i := range 3*looksPerTick - 100 {
		all = append(all, w.put(now, presence.Topics{Filter: fmt.Sprint("crew/", i), Named: true}))
	}
	clear(a.times)
	w.Tick(now)
	if n := len(a.times); n != looksPerTick {
		t.Fatalf("%d are looked at in a tick", n)
	}
	for range 2 {
		w.Tick(now)
	}
	if n := len(a.times); n != len(all) {
		t.Fatalf("%d of %d have had their turns", n, len(all))
	}
	for i, x := range all {
		if i%3 > 0 {
			w.forget(x)
		}
	}
	clear(a.times)
	for range 2 {
		w.Tick(now)
	}
	if n, left := len(a.times), len(all)/3; n < left || n > left+1 || len(w.byTopics) != len(w.all) {
		t.Fatalf("%d of %d have had their turns", n, left)
	}
	for _, x := range w.byTopics {
		w.forget(x)
	}
	if w.Tick(now); len(w.all) != 0 {
		t.Fatalf("%d are left", len(w.all))
	}
}

func BenchmarkTick(b *testing.B) {
	for _, n := range []int{1000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := New(Config{Edges: one{interest.Edge{ID: "edge", Incarnation: 7}}, Bus: bus.New(bus.Config{}), MaxMembers: 1000, MaxQueued: 1000})
			now := time.Now()
			for i := range n {
				w.put(now, presence.Topics{Filter: fmt.Sprint("crew/", i), Named: true})
			}
			for b.Loop() {
				now = now.Add(tickEvery)
				w.Tick(now)
			}
		})
	}
}
