// Package shardlog decides what is appended where: it numbers messages, recognises what was
// published before, keeps the order of ordered producers, and gathers the appends of all callers
// into group commits. It is the same above every backend.
package shardlog

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
)

// state is what a lane knows of its shards: loaded when a shard is taken, changed by its own
// commits alone. The lane's goroutine is the only writer; shards and topics are also read by
// others, under mu.
type state struct {
	mu         sync.RWMutex
	shards     map[int]*shard
	ownerships uint64 // counts ownerships, for shard.ownership
	topics     map[string]*topicState
	// names are those of topics, in order, and keeping those of topics that keep their last
	// message.
	names   btree.Set[string]
	keeping btree.Set[string]

	// kept and shardsOwned are the lengths of keeping and shards, for other lanes; others are their
	// states, and share is this store's part of a bound. nil: it is alone.
	kept, shardsOwned atomic.Int64
	others            []*state
	share             func(most int) int

	positions positions // of ordered producers; the lane's own, as is keys
	keys      keyCache
}

type shard struct {
	epoch  uint64
	commit uint64
	dirty  bool
	// forgot is when the last position of a producer that was forgotten was used, and a microsecond
	// more; 0: none was. The lane's own.
	forgot uint64
	// ownership tells this ownership of the shard from earlier ones.
	ownership uint64
}

// topicState of a topic that was published to.
type topicState struct {
	shard int
	epoch uint64
	head  uint64
	// oldest may still be retained, all below is not. oldestAt is the time of its run; 0: not
	// known.
	oldest, oldestAt uint64
	dirty            bool
	// keeps says that the message at head is kept, until a time (0: for ever).
	keeps     bool
	keptUntil uint64
}

func newState(positions int, window time.Duration) *state {
	return &state{shards: map[int]*shard{}, topics: map[string]*topicState{}, positions: newPositions(positions, window)}
}

// owns reports whether a shard is loaded.
func (s *state) owns(n int) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.shards[n] != nil
}

// empty says that no shard is loaded.
func (s *state) empty() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.shards) == 0
}

func (s *state) owned() []int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]int, 0, len(s.shards))
	for n := range s.shards {
		all = append(all, n)
	}
	return all
}

// ownershipsNow tells ownerships of shards from earlier and later ones.
func (s *state) ownershipsNow() map[int]uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make(map[int]uint64, len(s.shards))
	for n, sh := range s.shards {
		all[n] = sh.ownership
	}
	return all
}

// drop forgets shards.
func (s *state) drop(gone func(shard int) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.shards {
		if gone(n) {
			delete(s.shards, n)
		}
	}
	for name, t := range s.topics {
		if gone(t.shard) {
			delete(s.topics, name)
			s.names.Delete(name)
			s.keeping.Delete(name)
		}
	}
	s.positions.drop(gone)
	s.counted()
}

// counted tells other lanes how much there is.
func (s *state) counted() {
	s.kept.Store(int64(s.keeping.Len()))
	s.shardsOwned.Store(int64(len(s.shards)))
}

// merge takes what was loaded of shards that were not owned before. Keys used before now are looked
// up in the database.
func (s *state) merge(loaded *state, now uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ownerships++
	for n, x := range loaded.shards {
		x.ownership = s.ownerships
		s.shards[n] = x
	}
	for name, t := range loaded.topics {
		s.topics[name] = t
		s.names.Insert(name)
		if t.keeps {
			s.keeping.Insert(name)
		}
	}
	s.positions.merge(&loaded.positions)
	s.keys.since(now)
	s.counted()
}

// loader fills a state from what a backend tells, and compares it with the log. bad are the shards
// that can't be as they are told: whoever went on with one would give seqs twice.
type loader struct {
	*state
	bad map[int]error
}

func newLoader(positions int) *loader { return &loader{newState(positions, 0), map[int]error{}} }

// refuse notes the first reason.
func (l *loader) refuse(shard int, why error) {
	if l.bad[shard] == nil {
		l.bad[shard] = why
	}
}

func (l *loader) LoadShard(x backend.Shard) {
	l.shards[x.Shard] = &shard{epoch: x.Epoch, commit: x.Commit, forgot: x.Forgot}
}

func (l *loader) LoadTopic(x backend.Topic) {
	l.topics[x.Topic] = &topicState{shard: x.Shard, epoch: x.Epoch, head: x.Head, oldest: max(x.Oldest, 1)}
}

func (l *loader) LoadProducer(x backend.Producer) {
	l.positions.moved(position{key: producerKey{x.ID, x.Topic}, shard: int32(x.Shard), producerSeq: x.ProducerSeq, epoch: x.Epoch, seq: x.Seq, at: x.At})
}

// LoadMark is LoadProducer of a position that no checkpoint has yet.
func (l *loader) LoadMark(x backend.Mark) {
	if s := l.shards[x.Shard]; s != nil {
		s.commit, s.dirty = max(s.commit, x.Commit), true
	}
	l.positions.moved(position{
		key: producerKey{x.ID, x.Topic}, shard: int32(x.Shard), producerSeq: x.ProducerSeq, epoch: x.Epoch, seq: x.Seq, at: x.At, dirty: true,
	})
}

// headOf is a topic's head under an epoch, as far as it was loaded.
func (l *loader) headOf(topic string, epoch uint64) uint64 {
	t := l.topics[topic]
	switch {
	case t == nil || t.epoch < epoch:
		return 0
	case t.epoch > epoch: // void
		return math.MaxUint64
	}
	return t.head
}

// LoadCovered compares: no head is below a run that the checkpoint covers.
func (l *loader) LoadCovered(r backend.Run) {
	if head := l.headOf(r.Topic, r.Epoch); head < r.Last() {
		l.refuse(r.Shard, fmt.Errorf("topic %q has head %d in the checkpoint, which covers commit %d with its seqs %d to %d", r.Topic, head, r.Commit, r.First, r.Last()))
	}
}

// LoadRun brings heads and producers up to a run that no checkpoint covers. It begins where the
// topic ended, or before.
func (l *loader) LoadRun(r backend.Run) {
	if head := l.headOf(r.Topic, r.Epoch); r.First-1 > head {
		l.refuse(r.Shard, fmt.Errorf("topic %q has head %d, and the next run, of commit %d, begins at seq %d", r.Topic, head, r.Commit, r.First))
	}
	if s := l.shards[r.Shard]; s != nil {
		s.commit, s.dirty = max(s.commit, r.Commit), true
	}
	l.extended(&r)
	err := run.Each(r.Packed, func(i int, rec *run.Record) bool {
		if rec.ProducerSeq != 0 {
			l.positions.moved(position{
				key: producerKey{rec.Producer, r.Topic}, shard: int32(r.Shard), producerSeq: rec.ProducerSeq, epoch: r.Epoch, seq: r.First + uint64(i), at: r.At, dirty: true,
			})
		}
		return true
	})
	if err != nil {
		l.refuse(r.Shard, err)
	}
}

// extended moves a topic's head to the end of a run.
func (s *state) extended(r *backend.Run) {
	t := s.topics[r.Topic]
	if t == nil || t.epoch != r.Epoch {
		t = &topicState{shard: r.Shard, epoch: r.Epoch, oldest: r.First, oldestAt: r.At}
		s.topics[r.Topic] = t
		s.names.Insert(r.Topic)
	}
	if t.head+1 == t.oldest { // nothing was retained before this run
		t.oldestAt = r.At
	}
	t.head, t.dirty = max(t.head, r.Last()), true
}
