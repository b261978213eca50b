package shardlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
)

var errTest = errors.New("by the test")

// memory is a database in memory that holds a log to what a backend is promised, and fails where a
// test says.
type memory struct {
	backend.Backend // what a log does not use

	mu        sync.Mutex
	shards    map[int]backend.Shard // by the checkpoints, as are topics and producers
	topics    map[string]backend.Topic
	producers map[producerKey]backend.Producer
	runs      []backend.Run
	marks     []backend.Mark
	commits   map[int]uint64
	keys      map[backend.KeyHash]backend.Key
	kept      map[string]backend.Kept
	scheduled map[backend.ScheduledID]backend.Scheduled
	batches   map[backend.BatchID]bool
	owners    map[int]*memoryWriter
	turns     map[int]memoryTurn
	writers   []*memoryWriter
	away      error
	// before and after are asked around each call of a writer, by its name; an error is the answer.
	// after: it was done. They may block.
	before, after func(call string) error
	asked         map[string]int // calls
	loaded        int            // runs that no checkpoint covered
	largest       int            // states of a checkpoint's part
	// rows are what was folded; before that, nothing is known of how long a topic is silent.
	rows map[string]backend.SilentTopic
	// over are the epochs under which topics were forgotten last, after silence at least.
	over    map[string]uint64
	silence time.Duration
	forgot  int // topics
	// broken is what was done against what a backend is promised.
	broken []string
}

func newMemory() *memory {
	return &memory{
		shards: map[int]backend.Shard{}, topics: map[string]backend.Topic{}, producers: map[producerKey]backend.Producer{}, commits: map[int]uint64{},
		keys: map[backend.KeyHash]backend.Key{}, kept: map[string]backend.Kept{}, scheduled: map[backend.ScheduledID]backend.Scheduled{}, batches: map[backend.BatchID]bool{},
		owners: map[int]*memoryWriter{}, turns: map[int]memoryTurn{}, rows: map[string]backend.SilentTopic{}, over: map[string]uint64{}, asked: map[string]int{},
	}
}

// memoryEpoch is that of every shard.
const memoryEpoch = 9

// memoryTurn is for how long one store had a shard, and no other.
type memoryTurn struct {
	store  string
	number int
}

type memoryWriter struct {
	db    *memory
	store string
	dead  bool // it was fenced, or its connection broke
	told  bool // that it is dead
	shut  bool
}

func (m *memory) complain(format string, args ...any) {
	m.broken = append(m.broken, fmt.Sprintf(format, args...))
}

func (m *memory) Away() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.away
}

// fail sets what is asked around calls.
func (m *memory) fail(before, after func(call string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before, m.after = before, after
}

// calls is how often a call was made.
func (m *memory) calls(call string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[call]
}

func (m *memory) OpenWriter(_ context.Context, owner backend.Owner) (backend.Writer, error) {
	w := &memoryWriter{db: m, store: owner.StoreID}
	err := w.do("open", func() error {
		m.writers = append(m.writers, w)
		return nil
	})
	if err != nil { // there is nothing to close
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// do is one call on the connection.
func (w *memoryWriter) do(call string, f func() error) error {
	m := w.db
	m.mu.Lock()
	m.asked[call]++
	before, after := m.before, m.after
	if (w.told || w.shut) && call != "release" {
		// which is how a load that failed ends, for whatever reason
		m.complain("%s on a connection that is lost", call)
	}
	m.mu.Unlock()
	if before != nil {
		if err := before(call); err != nil {
			return w.broke(err)
		}
	}
	m.mu.Lock()
	err := backend.ErrLost
	if !w.dead {
		err = f()
	}
	m.mu.Unlock()
	if err == nil && after != nil {
		err = after(call)
	}
	return w.broke(err)
}

// broke ends the connection where an error says so.
func (w *memoryWriter) broke(err error) error {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrUnknown) {
		w.end()
		w.told = true
	}
	return err
}

func (w *memoryWriter) end() {
	w.dead = true
	maps.DeleteFunc(w.db.owners, func(_ int, o *memoryWriter) bool { return o == w })
}

// fence ends every connection.
func (m *memory) fence() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.writers {
		w.end()
	}
}

func (w *memoryWriter) TakeShards(_ context.Context, shards []int) (got []int, err error) {
	err = w.do("claim", func() error {
		for _, n := range shards {
			if w.db.owners[n] == nil || w.db.owners[n] == w {
				w.db.owners[n] = w
				if turn := w.db.turns[n]; turn.store != w.store {
					w.db.turns[n] = memoryTurn{w.store, turn.number + 1}
				}
				got = append(got, n)
			}
		}
		return nil
	})
	return got, err
}

func (w *memoryWriter) Hold(shard int) backend.Hold {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	if w.db.owners[shard] != w {
		return ""
	}
	return backend.Hold(fmt.Sprint(w.db.turns[shard].number))
}

func (w *memoryWriter) Load(_ context.Context, shards []int, into backend.Loader) error {
	return w.do("load", func() error {
		m := w.db
		for _, n := range shards {
			if m.owners[n] != w {
				m.complain("shard %d is loaded by who does not own it", n)
			}
			sh := m.shards[n]
			sh.Shard, sh.Epoch = n, memoryEpoch
			into.LoadShard(sh)
			for _, t := range m.topics {
				if t.Shard == n {
					into.LoadTopic(t)
				}
			}
			for _, p := range m.producers {
				if p.Shard == n && p.At >= sh.Forgot {
					into.LoadProducer(p)
				}
			}
			for _, r := range m.runs {
				switch {
				case r.Shard != n:
				case r.Commit > sh.Commit:
					m.loaded++
					into.LoadRun(r)
				case r.Commit+backend.CoveredCommits > sh.Commit:
					into.LoadCovered(r)
				}
			}
			for _, k := range m.marks {
				if k.Shard == n && k.Commit > sh.Commit {
					into.LoadMark(k)
				}
			}
			for _, k := range m.kept {
				if k.Shard == n {
					into.LoadKept(k)
				}
			}
		}
		return nil
	})
}

func (w *memoryWriter) Commit(_ context.Context, b *backend.Batch) error {
	return w.do("commit", func() error {
		m := w.db
		for _, c := range b.Commits {
			if m.owners[c.Shard] != w {
				m.complain("a commit in shard %d of who does not own it", c.Shard)
			}
			if c.Number != m.commits[c.Shard]+1 {
				m.complain("commit %d of shard %d after %d", c.Number, c.Shard, m.commits[c.Shard])
			}
			m.commits[c.Shard] = c.Number
		}
		for _, r := range b.Runs {
			if epoch, head := m.ends(r.Shard, r.Topic); r.First != head+1 || r.Commit != m.commits[r.Shard] || r.Epoch != epoch || r.At != b.At {
				m.complain("run %+v after head %d of epoch %d", r, head, epoch)
			}
			r.Packed = slices.Clone(r.Packed)
			m.runs = append(m.runs, r)
		}
		for _, k := range b.Keys {
			m.keys[k.Hash] = k
		}
		for _, s := range b.Scheduled {
			m.scheduled[s.ScheduledID] = s
		}
		for _, id := range b.Removed {
			delete(m.scheduled, id)
		}
		for _, k := range b.Kept {
			if epoch, head := m.ends(k.Shard, k.Topic); head != k.Seq || epoch != k.Epoch {
				m.complain("%s keeps message %d, and its newest is %d", k.Topic, k.Seq, head)
			}
			m.kept[k.Topic] = k
		}
		m.unkeep(b.Unkept)
		m.marks = append(m.marks, b.Marks...)
		m.batches[b.ID] = true
		return nil
	})
}

// newest is the epoch of a shard's topics that begin now.
func (m *memory) newest(shard int) uint64 { return max(memoryEpoch, m.shards[shard].Born) }

// ends is the epoch and the head of a topic's log, or under which epoch it would begin.
func (m *memory) ends(shard int, topic string) (epoch, head uint64) {
	for i := range m.runs {
		if m.runs[i].Topic == topic {
			epoch, head = m.runs[i].Epoch, m.runs[i].Last()
		}
	}
	if epoch == 0 || m.over[topic] >= epoch {
		return m.newest(shard), 0
	}
	return epoch, head
}

// forget complains where a topic may not be forgotten.
func (m *memory) forget(t backend.Topic, shards []backend.Shard) {
	epoch, head := m.ends(t.Shard, t.Topic)
	if len(shards) != 1 || shards[0].Shard != t.Shard || shards[0].Born != t.Epoch || t.Epoch <= epoch || t.Epoch < m.newest(t.Shard) {
		m.complain("%+v of epoch %d is forgotten with %+v", t, epoch, shards)
	}
	if _, kept := m.kept[t.Topic]; kept || head == 0 {
		m.complain("%s with head %d is forgotten, and keeps a message: %v", t.Topic, head, kept)
	}
	for _, r := range m.runs {
		if r.Topic == t.Topic && r.Epoch == epoch && time.Since(time.UnixMicro(int64(r.At))) < m.silence {
			m.complain("%s is forgotten %s after its message %d", t.Topic, time.Since(time.UnixMicro(int64(r.At))), r.Last())
		}
	}
	m.over[t.Topic] = epoch
	m.forgot++
}

// fold moves states into rows, as far as they changed, and deletes those of forgotten topics.
func (m *memory) fold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, t := range m.topics {
		if t.Head == 0 {
			delete(m.topics, name)
			delete(m.rows, name)
		} else if m.rows[name].Topic != t {
			m.rows[name] = backend.SilentTopic{Topic: t, At: uint64(time.Now().UnixMicro())}
		}
	}
}

func (m *memory) Silent(_ context.Context, shard int, after string, before uint64) (silent []backend.SilentTopic, next string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.before != nil {
		if err := m.before("silent"); err != nil {
			return nil, "", err
		}
	}
	looked := 0
	for _, name := range slices.Sorted(maps.Keys(m.rows)) {
		t := m.rows[name]
		if t.Shard != shard || name <= after {
			continue
		}
		if looked++; t.At < before {
			silent = append(silent, t)
		}
		if looked == 2 {
			return silent, name, nil
		}
	}
	return silent, "", nil
}

func (m *memory) ForgetTopics(context.Context) error { return nil }

// bodies of a topic's log.
func (m *memory) bodies(topic string) (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		if r.Topic != topic {
			continue
		}
		if err := run.Each(r.Packed, func(_ int, rec *run.Record) bool {
			all = append(all, string(rec.Body))
			return true
		}); err != nil {
			m.complain("run of %s: %v", topic, err)
		}
	}
	return all
}

// last number that a producer has published in a topic.
func (m *memory) last(key producerKey) (last uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastUpTo(key, ^uint64(0))
}

func (m *memory) lastUpTo(key producerKey, commit uint64) (last uint64) {
	for _, r := range m.runs {
		if r.Topic == key.topic && r.Commit <= commit {
			_ = run.Each(r.Packed, func(_ int, rec *run.Record) bool {
				if rec.Producer == key.id {
					last = max(last, rec.ProducerSeq)
				}
				return true
			})
		}
	}
	for _, k := range m.marks {
		if k.Topic == key.topic && k.ID == key.id && k.Commit <= commit {
			last = max(last, k.ProducerSeq)
		}
	}
	return last
}

func (w *memoryWriter) Committed(_ context.Context, id backend.BatchID) (yes bool, err error) {
	err = w.do("committed", func() error {
		yes = w.db.batches[id]
		return nil
	})
	return yes, err
}

func (w *memoryWriter) Checkpoint(_ context.Context, c *backend.Checkpoint) error {
	call := "checkpoint"
	if slices.ContainsFunc(c.Topics, func(t backend.Topic) bool { return t.Head == 0 }) {
		call = "forget"
	}
	return w.do(call, func() error {
		m := w.db
		m.largest = max(m.largest, len(c.Topics)+len(c.Producers))
		for _, t := range c.Topics {
			if m.owners[t.Shard] != w {
				m.complain("a checkpoint has a topic of shard %d, of who does not own it", t.Shard)
			}
			if t.Head == 0 {
				m.forget(t, c.Shards)
			}
			switch have := m.topics[t.Topic]; {
			case have.Epoch < t.Epoch:
				m.topics[t.Topic] = t
			case have.Epoch == t.Epoch && have.Head <= t.Head:
				t.Oldest = max(t.Oldest, have.Oldest)
				m.topics[t.Topic] = t
			}
		}
		for _, p := range c.Producers {
			if m.owners[p.Shard] != w {
				m.complain("a checkpoint has a producer of shard %d, of who does not own it", p.Shard)
			}
			if key := (producerKey{p.ID, p.Topic}); m.producers[key].ProducerSeq <= p.ProducerSeq {
				m.producers[key] = p
			}
		}
		for _, s := range c.Shards {
			if m.owners[s.Shard] != w {
				m.complain("a checkpoint has shard %d, of who does not own it", s.Shard)
			}
			have := m.shards[s.Shard]
			s.Commit, s.Forgot, s.Born = max(s.Commit, have.Commit), max(s.Forgot, have.Forgot), max(s.Born, have.Born)
			m.shards[s.Shard] = s
			m.covered(s)
		}
		m.unkeep(c.Unkept)
		return nil
	})
}

// covered complains where a checkpoint says of commits that it has all of them, and has not.
func (m *memory) covered(s backend.Shard) {
	for _, r := range m.runs {
		if r.Shard != s.Shard || r.Commit > s.Commit || m.over[r.Topic] >= r.Epoch {
			continue
		}
		if m.topics[r.Topic].Head < r.Last() {
			m.complain("the checkpoint of shard %d covers commit %d, and has head %d of %s, not %d", s.Shard, s.Commit, m.topics[r.Topic].Head, r.Topic, r.Last())
		}
		_ = run.Each(r.Packed, func(_ int, rec *run.Record) bool {
			if p := m.producers[producerKey{rec.Producer, r.Topic}]; p.ProducerSeq < rec.ProducerSeq && r.At >= s.Forgot {
				m.complain("the checkpoint of shard %d covers commit %d, and has number %d of a producer, not %d", s.Shard, s.Commit, p.ProducerSeq, rec.ProducerSeq)
			}
			return true
		})
	}
}

func (w *memoryWriter) ReadRuns(_ context.Context, topic string, epoch, from, to uint64, visit func(backend.Run) bool) error {
	return w.do("read", func() error { return w.db.read(topic, epoch, from, to, visit) })
}

func (m *memory) ReadRuns(_ context.Context, topic string, epoch, from, to uint64, visit func(backend.Run) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read(topic, epoch, from, to, visit)
}

func (m *memory) read(topic string, epoch, from, to uint64, visit func(backend.Run) bool) error {
	for _, r := range m.runs {
		if r.Topic == topic && r.Epoch == epoch && r.First <= to && r.Last() >= from && !visit(r) {
			break
		}
	}
	return nil
}

func (m *memory) unkeep(all []backend.Kept) {
	for _, k := range all {
		if m.kept[k.Topic].Seq == k.Seq {
			delete(m.kept, k.Topic)
		}
	}
}

func (m *memory) Kept(_ context.Context, topic string) (backend.Kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.kept[topic]
	if !ok {
		return k, backend.ErrNotFound
	}
	return k, nil
}

func (m *memory) Oldest(_ context.Context, questions []backend.OldestQuestion) ([]backend.OldestAnswer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked["oldest"] += len(questions)
	answers := make([]backend.OldestAnswer, len(questions))
	for i, q := range questions {
		for _, r := range m.runs {
			if r.Topic == q.Topic && r.Epoch == q.Epoch && r.At >= q.NotBefore && r.Last() >= q.From {
				answers[i] = backend.OldestAnswer{Seq: r.First, At: r.At}
				break
			}
		}
	}
	return answers, nil
}

func (w *memoryWriter) Keys(_ context.Context, hashes []backend.KeyHash, now uint64) (found []backend.Key, err error) {
	err = w.do("keys", func() error {
		for _, h := range hashes {
			if k, ok := w.db.keys[h]; ok && k.Until > now {
				found = append(found, k)
			}
		}
		return nil
	})
	return found, err
}

func (w *memoryWriter) ReleaseShards(_ context.Context, shards []int) error {
	return w.do("release", func() error {
		for _, n := range shards {
			if w.db.owners[n] != w {
				w.db.complain("shard %d is given back by who does not own it", n)
			}
			delete(w.db.owners, n)
		}
		return nil
	})
}

func (w *memoryWriter) Close() error {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	w.shut = true
	w.end()
	return nil
}

// open connections, but for those that were opened and never returned.
func (m *memory) open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(m.writers), func(w *memoryWriter) bool { return w.shut }))
}

// uncovered is how many shards have commits that no checkpoint covers.
func (m *memory) uncovered() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for shard, commit := range m.commits {
		if m.shards[shard].Commit < commit {
			n++
		}
	}
	return n
}

// eachRecord visits a run's records.
func eachRecord(r backend.Run, visit func(seq uint64, producer backend.ProducerID, number uint64, body string)) {
	_ = run.Each(r.Packed, func(i int, rec *run.Record) bool {
		visit(r.First+uint64(i), rec.Producer, rec.ProducerSeq, string(rec.Body))
		return true
	})
}
