package shardlog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func at(producer byte, topic string, seq, when uint64) position {
	return position{key: producerKey{backend.ProducerID{producer}, topic}, producerSeq: seq, epoch: 9, at: when, dirty: true}
}

// held names what is remembered, the longest unused first; and the way back must be the same.
func held(t *testing.T, ps *positions) (topics []string) {
	t.Helper()
	own := map[backend.ProducerID]int{}
	dirty := 0
	for p := ps.oldest; p != nil; p = p.newer {
		topics = append(topics, p.key.topic)
		own[p.key.id]++
		if p.dirty {
			dirty++
		}
		if ps.by[p.key] != p || p.newer != nil && p.newer.older != p || p.newer == nil && ps.newest != p {
			t.Fatalf("%s is not where it should be", p.key.topic)
		}
	}
	if len(topics) != len(ps.by) || len(own) != len(ps.of) || dirty != ps.dirty {
		t.Fatalf("%d in order of %d, of %d producers of %d, %d changed of %d", len(topics), len(ps.by), len(own), len(ps.of), dirty, ps.dirty)
	}
	for id, n := range own {
		if ps.of[id] != n {
			t.Fatalf("producer %d has %d, %d are counted", id[0], n, ps.of[id])
		}
	}
	return topics
}

// Positions lie in the order of their use, whatever comes, goes and is loaded.
func TestPositionsLieInOrderOfUse(t *testing.T) {
	ps := newPositions(100, time.Minute)
	for i, topic := range []string{"a", "b", "c", "d"} {
		ps.moved(at(byte(i%2), topic, 1, noon+uint64(10*i)))
	}
	ps.moved(at(1, "b", 2, noon+40))
	ps.moved(at(0, "c", 1, noon+50)) // no step ahead: as it was
	if got := held(t, &ps); !slices.Equal(got, []string{"a", "c", "d", "b"}) {
		t.Errorf("%v", got)
	}
	loaded := newPositions(100, time.Minute)
	loaded.moved(at(7, "y", 1, noon+25))
	loaded.moved(at(7, "x", 1, noon+15))
	ps.merge(&loaded)
	if got := held(t, &ps); !slices.Equal(got, []string{"a", "x", "c", "y", "d", "b"}) {
		t.Errorf("with what was loaded %v", got)
	}
	ps.by[producerKey{backend.ProducerID{7}, "x"}].shard = 5
	ps.drop(func(shard int) bool { return shard == 5 })
	ps.remove(ps.by[producerKey{backend.ProducerID{1}, "b"}])
	if got := held(t, &ps); !slices.Equal(got, []string{"a", "c", "y", "d"}) {
		t.Errorf("of those that are left %v", got)
	}
}

// A clock that was ahead, here or at the store before, does not keep positions for as long as it
// was wrong.
func TestPositionsFromTheFutureAreForgotten(t *testing.T) {
	s, year, minute := owning(), micros(365*24*time.Hour), micros(time.Minute)
	s.positions.most = 2
	loaded := &state{positions: newPositions(2, time.Minute)}
	loaded.positions.moved(at(1, "before", 1, noon+year))
	s.merge(loaded, noon)
	s.positions.moved(at(1, "here", 1, noon+year))
	s.forget(noon, 1, 10)
	if got := held(t, &s.positions); len(got) != 2 {
		t.Fatalf("%v is remembered within the window", got)
	}
	s.forget(noon+minute, 1, 10)
	s.forget(noon+2*minute, 1, 10)
	if got := held(t, &s.positions); len(got) != 0 {
		t.Errorf("%v is remembered a window later", got)
	}
	if got := s.shards[0].forgot; got != noon+minute+1 {
		t.Errorf("forgotten up to %d, want %d", got, noon+minute+1)
	}
}

// Whatever is under way when a checkpoint of everything begins belongs to it; and one that failed
// leaves nothing out of the next.
func TestACheckpointOfEverythingHoldsEverything(t *testing.T) {
	l := newLane("0", Config{Backend: well{}, Now: func() time.Time { return time.UnixMicro(int64(noon)) }, Metrics: NewMetrics(prometheus.NewRegistry())}, &pace{})
	l.state = owning()
	stored := func() string {
		c := l.checkpoints.rest
		held(t, &l.state.positions)
		slices.SortFunc(c.Producers, func(a, b backend.Producer) int { return int(a.At) - int(b.At) })
		var names []string
		for _, p := range c.Producers {
			names = append(names, p.Topic)
		}
		shards := 0
		for _, s := range c.Shards {
			shards += s.Shard
		}
		return fmt.Sprintf("shards %d, topics %d, positions %v", shards, len(c.Topics), names)
	}
	change := func(shard int, name string, when uint64) {
		l.state.shards[shard].dirty = true
		topics := l.state.shards[shard].topics
		topics.Changed(topics.Add(name, 9), name)
		l.state.positions.moved(at(1, name, 1, when))
	}
	change(3, "a", noon-2)
	l.beginCheckpoint()
	change(40, "b", noon-1)
	l.beginCheckpoint()
	if got, want := stored(), "shards 43, topics 2, positions [a b]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	l.checkpoints.rest = nil
	l.beginCheckpoint()
	if got, want := stored(), "shards 0, topics 0, positions []"; got != want {
		t.Errorf("where nothing changed: %s, want %s", got, want)
	}
	l.checkpoints.rest = nil
	change(3, "c", noon)
	l.beginCheckpoint()
	failed := l.checkpoints.rest
	l.checkpoints.rest = nil
	l.state.topic(3, "c").Head = 7 // and more was appended meanwhile
	change(41, "d", noon+1)
	l.state.markUnstored(failed)
	l.beginCheckpoint()
	if got, want := stored(), "shards 44, topics 2, positions [c d]"; got != want {
		t.Errorf("after one that failed: %s, want %s", got, want)
	}
	for _, x := range l.checkpoints.rest.Topics {
		if x.Topic == "c" && x.Head != 7 {
			t.Errorf("after one that failed, head %d of %s is stored, want 7", x.Head, x.Topic)
		}
	}
}

// A number whose position was forgotten is taken where its dedupe key tells what became of it.
func TestAKeyTellsWhatAForgottenPositionDoes(t *testing.T) {
	s := owning()
	item := itemOf("room/1", 1, 1, "k")
	item.SentMsAgo = 3_600_000
	e := entryOf(item)
	s.shards[e.shard].forgot = noon - micros(10*time.Minute)
	plan := func() *plan { return newPlan(s, []*entry{e}, backend.BatchID{}, noon, policy.NewTable(nil), scratch{}) }
	if r := plan().results[0]; r.GetCode() == 0 || r.GetRetryAfterMs() != 0 {
		t.Errorf("a key that nobody knows: %v, want a refusal for good", r)
	}
	s.keys.put(backend.Key{Hash: e.key, Epoch: 9, Seq: 5, Until: noon + 1}, noon)
	if r := plan().results[0]; r.GetCode() != 0 || !r.GetDuplicate() || r.GetSeq() != 5 {
		t.Errorf("a key that is known: %v, want its first result", r)
	}
}
