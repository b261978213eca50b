package switchboard

import (
	"fmt"
	"hash/maphash"
	"testing"
)

// A topic is broadcast from so many edges on, and from two thirds of them; it stays so down to one
// less, and half.
func TestWhenATopicIsBroadcast(t *testing.T) {
	for _, c := range []struct {
		edges, wanted int
		already, want bool
	}{
		{edges: 3, wanted: 3, want: true},
		{edges: 2, wanted: 2, want: false}, // fewer than three
		{edges: 6, wanted: 4, want: true},  // two thirds
		{edges: 7, wanted: 4, want: false},
		{edges: 3, wanted: 2, already: true, want: true},
		{edges: 1, wanted: 1, already: true, want: false},
		{edges: 8, wanted: 4, already: true, want: true}, // half
		{edges: 9, wanted: 4, already: true, want: false},
	} {
		w := newWays(3, func() {})
		w.edges.Store(int64(c.edges))
		if got := w.broadcast(c.already, c.wanted); got != c.want {
			t.Errorf("%+v: broadcast %v", c, got)
		}
	}
}

// The topics that are broadcast are bounded: one more goes to each edge, and still goes out.
func TestBroadcastTopicsAreBounded(t *testing.T) {
	seals := 0
	w := newWays(3, func() { seals++ })
	w.edges.Store(3)
	s := &w.shard[0]
	in := func(topic string) bool { return &w.shard[maphash.String(w.seed, topic)%wayShards] == s }
	var last string
	for i := 0; len(s.wide) < wideMost; i++ {
		if last = fmt.Sprint(i); in(last) {
			w.put(last, 3, func(bool) {})
		}
	}
	before := seals
	more := 0
	for i := 0; more < 3; i++ {
		topic := fmt.Sprint("more/", i)
		if !in(topic) {
			continue
		}
		more++
		put := 0
		w.put(topic, 3, func(broadcast bool) {
			put++
			if broadcast {
				t.Error("one more topic is broadcast")
			}
		})
		if put != 1 {
			t.Errorf("it was put %d times", put)
		}
	}
	if len(s.wide) != wideMost || seals != before {
		t.Errorf("a part has %d topics, at most %d; batches were ended %d times", len(s.wide), wideMost, seals-before)
	}
	w.put(last, 3, func(broadcast bool) {
		if !broadcast {
			t.Error("a topic that is broadcast is not any more because there are many")
		}
	})
}

// Batches are ended where a topic changes its way, and only there: between the last message of one
// way and the first of the other.
func TestAChangeOfTheWayEndsBatches(t *testing.T) {
	seals := 0
	w := newWays(3, func() { seals++ })
	w.edges.Store(3)
	put := func(wanted int) { w.put("a", wanted, func(bool) {}) }
	for _, step := range []struct {
		do    func()
		seals int
		what  string
	}{
		{func() { put(3) }, 1, "the first broadcast"},
		{func() { put(3) }, 0, "another one"},
		{func() { put(1) }, 1, "one edge alone"},
		{func() { put(1) }, 0, "again"},
		{func() { put(3) }, 1, "a broadcast again"},
		{func() { put(3) }, 0, "which is used"},
		{func() { w.ticksPass(forgetEvery) }, 0, "used since, so kept"},
		{func() { w.ticksPass(forgetEvery) }, 1, "not used since, so forgotten"},
		{func() { w.ticksPass(forgetEvery) }, 0, "nothing to forget"},
	} {
		before := seals
		step.do()
		if seals-before != step.seals {
			t.Errorf("%s: batches were ended %d times, want %d", step.what, seals-before, step.seals)
		}
	}
}

// ticksPass lets ticks go by.
func (w *ways) ticksPass(ticks int) {
	for range ticks {
		w.tick()
	}
}
