// Package shardlog decides what is appended where: it numbers messages, recognises what was
// published before, keeps the order of ordered producers, and gathers the appends of all callers
// into group commits. It is the same above every backend.
package shardlog

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog/heads"
)

// state is what a lane knows of its shards: loaded when a shard is taken, changed by its own
// commits alone. The lane's goroutine is the only writer; shards and topics are also read by
// others, under mu.
type state struct {
	mu     sync.RWMutex
	shards map[int]*shard
	// aside are shards that are not owned now, of which, with their topics and positions, is still
	// known what was: see recall.go.
	aside      map[int]*shard
	ownerships uint64 // counts ownerships, for shard.ownership
	// keeping are the names of topics that keep their last message, in order, and keptUntil is when
	// it expires, of those where it does.
	keeping   btree.Set[string]
	keptUntil map[string]uint64
	// mostTopics is how many a shard may have before what begins further ones is refused.
	mostTopics int

	// kept and shardsOwned are the lengths of keeping and shards, for other lanes; others are their
	// states, and share is this store's part of a bound. nil: it is alone.
	kept, shardsOwned atomic.Int64
	others            []*state
	share             func(most int) int

	positions positions // of ordered producers; the lane's own, as is keys
	keys      keyCache
}

type shard struct {
	// Below epoch all is void. born is the epoch of topics that begin from now on; 0: epoch is.
	epoch, born uint64
	commit      uint64
	dirty       bool
	// forgot is when the last position of a producer that was forgotten was used, and a microsecond
	// more; 0: none was. The lane's own.
	forgot uint64
	// ownership tells this ownership of the shard from earlier ones; hold does so across lost
	// connections, where nobody else had the shard.
	ownership uint64
	hold      backend.Hold
	lostAt    time.Time // when it was put aside; the lane's own
	// topics are those that were published to and are not forgotten. It is never nil; the lane
	// replaces it by a smaller one, and who looked at the earlier one goes on with that.
	topics *heads.Table
}

// newest is the epoch of topics that begin from now on.
func (sh *shard) newest() uint64 { return max(sh.epoch, sh.born) }

// epochOf is a topic's epoch, or the one under which it would begin.
func (sh *shard) epochOf(t *heads.Topic) uint64 {
	if t == nil {
		return sh.newest()
	}
	return sh.topics.Epoch(t)
}

func newState(positions int, window time.Duration) *state {
	return &state{
		shards: map[int]*shard{}, aside: map[int]*shard{}, keptUntil: map[string]uint64{}, mostTopics: heads.MaxTopics - maxBatch,
		positions: newPositions(positions, window),
	}
}

// topic of a shard; nil: nothing was published to it, or the shard is neither owned nor aside.
func (s *state) topic(shard int, name string) *heads.Topic {
	sh := s.knownShard(shard)
	if sh == nil {
		return nil
	}
	return sh.topics.Get(name)
}

// epochOf is a topic's epoch, or the one under which it would begin. The shard is owned or aside.
func (s *state) epochOf(shard int, name string) uint64 {
	sh := s.knownShard(shard)
	return sh.epochOf(sh.topics.Get(name))
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

// drop forgets shards, those aside as well.
func (s *state) drop(gone func(shard int) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shards := range []map[int]*shard{s.shards, s.aside} {
		for n, sh := range shards {
			if gone(n) {
				delete(shards, n)
				s.letGoOf(sh)
			}
		}
	}
	s.positions.drop(gone)
	s.counted()
}

// letGoOf notes that no topic of a shard that was dropped keeps anything.
func (s *state) letGoOf(sh *shard) {
	if s.keeping.Len() == 0 {
		return
	}
	sh.topics.Each(func(name string, t *heads.Topic) {
		if t.Keeps() {
			s.letGo(name)
		}
	})
}

// counted tells other lanes how much there is; what is aside does not count where it is all.
func (s *state) counted() {
	kept := s.keeping.Len()
	if len(s.shards) == 0 {
		kept = 0
	}
	s.kept.Store(int64(kept))
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
	loaded.keeping.Scan(func(name string) bool {
		s.keeping.Insert(name)
		return true
	})
	maps.Copy(s.keptUntil, loaded.keptUntil)
	s.positions.merge(&loaded.positions)
	s.keys.since(now)
	s.counted()
}

// loader fills a state from what a backend tells, and compares it with the log. bad are the shards
// that can't be as they are told: whoever went on with one would give seqs twice.
type loader struct {
	*state
	bad map[int]error
	at  []*shard // shards by their numbers: what is asked for each of millions of topics
	// lately is a time since when no topic's last message can have been and the topic be forgotten;
	// 0: it is not known.
	lately uint64
	gone   map[int]bool // shards of which topics were told that are forgotten
}

func newLoader(positions int) *loader {
	return &loader{state: newState(positions, 0), bad: map[int]error{}, gone: map[int]bool{}}
}

// refuse notes the first reason.
func (l *loader) refuse(shard int, why error) {
	if l.bad[shard] == nil {
		l.bad[shard] = why
	}
}

func (l *loader) LoadShard(x backend.Shard) {
	sh := &shard{epoch: x.Epoch, born: x.Born, commit: x.Commit, forgot: x.Forgot, topics: &heads.Table{}}
	l.shards[x.Shard] = sh
	for len(l.at) <= x.Shard {
		l.at = append(l.at, nil)
	}
	l.at[x.Shard] = sh
}

func (l *loader) LoadTopic(x backend.Topic) {
	if !l.present(x.Shard, x.Topic, x.Epoch) {
		return
	}
	t := l.at[x.Shard].topics.Append(x.Topic, x.Epoch)
	if t == nil {
		l.refuse(x.Shard, errManyTopics)
		return
	}
	if x.Head == 0 {
		l.gone[x.Shard] = true
	}
	t.Head, t.Oldest = x.Head, max(x.Oldest, 1)
}

var errManyTopics = fmt.Errorf("the shard has more than %d topics", heads.MaxTopics)

// index has all that was loaded be found, and nothing of what is forgotten.
func (l *loader) index() {
	for n, sh := range l.shards {
		sh.topics.Index()
		if !l.gone[n] {
			continue
		}
		sh.topics.Each(func(_ string, t *heads.Topic) {
			if t.Head == 0 {
				sh.topics.Forget(t)
			}
		})
	}
}

// topic finds what was loaded.
func (l *loader) topic(shard int, name string) *heads.Topic {
	if sh := l.shards[shard]; sh != nil {
		sh.topics.Index()
	}
	return l.state.topic(shard, name)
}

// present reports whether an epoch is one of the shard's topics. Of earlier ones nothing is taken,
// and a later one can't be.
func (l *loader) present(shard int, topic string, epoch uint64) bool {
	if shard >= len(l.at) || l.at[shard] == nil {
		return false
	}
	switch sh := l.at[shard]; {
	case epoch < sh.epoch:
		return false
	case epoch > sh.newest():
		l.refuse(shard, fmt.Errorf("topic %q is of epoch %d, and its shard of epoch %d", topic, epoch, sh.newest()))
		return false
	}
	return true
}

// added is a topic of a loaded shard with an epoch that is not earlier than its own: it may have
// been there before, under that one or an earlier one. nil: there is no room.
func (l *loader) added(shard int, name string, epoch uint64) *heads.Topic {
	topics := l.shards[shard].topics
	t := l.topic(shard, name)
	switch {
	case t == nil:
		t = topics.Add(name, epoch)
	case topics.Epoch(t) < epoch && !topics.Restart(t, epoch):
		t = nil
	}
	if t == nil {
		l.refuse(shard, errManyTopics)
	}
	return t
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

// headOf is a topic's head under an epoch, as far as it was loaded. past: the topic has a later
// epoch, so that whatever it was under this one is forgotten.
func (l *loader) headOf(shard int, topic string, epoch uint64) (head uint64, past bool) {
	t := l.topic(shard, topic)
	if t == nil {
		return 0, false
	}
	switch of := l.shards[shard].topics.Epoch(t); {
	case of > epoch:
		return 0, true
	case of == epoch:
		return t.Head, false
	}
	return 0, false
}

// mayBeForgotten reports whether a topic that was not told can be one that was forgotten: topics
// that begin have a later epoch, and nothing was published to it for long.
func (l *loader) mayBeForgotten(shard int, name string, epoch, at uint64) bool {
	return epoch < l.shards[shard].newest() && l.topic(shard, name) == nil && (l.lately == 0 || at < l.lately)
}

// LoadCovered compares: no head is below a run that the checkpoint covers.
func (l *loader) LoadCovered(r backend.Run) {
	if !l.present(r.Shard, r.Topic, r.Epoch) {
		return
	}
	head, past := l.headOf(r.Shard, r.Topic, r.Epoch)
	if past || head == 0 && l.mayBeForgotten(r.Shard, r.Topic, r.Epoch, r.At) {
		return
	}
	if head < r.Last() {
		l.refuse(r.Shard, fmt.Errorf("topic %q has head %d in the checkpoint, which covers commit %d with its seqs %d to %d", r.Topic, head, r.Commit, r.First, r.Last()))
	}
}

// LoadRun brings heads and producers up to a run that no checkpoint covers. It begins where the
// topic ended, or before.
func (l *loader) LoadRun(r backend.Run) {
	if !l.present(r.Shard, r.Topic, r.Epoch) {
		return
	}
	s := l.shards[r.Shard]
	s.commit, s.dirty = max(s.commit, r.Commit), true
	head, past := l.headOf(r.Shard, r.Topic, r.Epoch)
	if past {
		return
	}
	if r.First-1 > head {
		l.refuse(r.Shard, fmt.Errorf("topic %q has head %d, and the next run, of commit %d, begins at seq %d", r.Topic, head, r.Commit, r.First))
	}
	if l.added(r.Shard, r.Topic, r.Epoch) == nil {
		return
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

// extended moves a topic's head to the end of a run. There is room for the topic.
func (s *state) extended(r *backend.Run) {
	topics := s.knownShard(r.Shard).topics
	t := topics.Get(r.Topic)
	if t == nil {
		t = topics.Add(r.Topic, r.Epoch)
	}
	if t.Oldest == 0 { // it is new
		t.Oldest, t.OldestAt = r.First, r.At
	}
	if t.Head+1 == t.Oldest { // nothing was retained before this run
		t.OldestAt = r.At
	}
	t.Head = max(t.Head, r.Last())
	topics.Changed(t, r.Topic)
}
