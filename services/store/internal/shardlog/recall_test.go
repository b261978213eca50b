package shardlog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog/heads"
)

// told is an item of an ordered producer with a dedupe key besides.
func told(name string, n uint64) *meshv1.AppendItem {
	return &meshv1.AppendItem{
		Topic: name, Body: fmt.Append(nil, n), MessageId: fmt.Appendf(nil, "%016d", n), ProducerId: slices.Repeat([]byte{7}, 16), ProducerSeq: n,
	}
}

// publishedAt appends numbers of a topic, one after the other, and fails unless each gets its own
// seq.
func publishedAt(t *testing.T, l *Log, name string, numbers ...uint64) {
	t.Helper()
	for _, n := range numbers {
		a := appended(l, told(name, n))
		a.wait(t)
		if r := a.all[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != n || r.GetDuplicate() {
			t.Fatalf("number %d of %s is answered with %v", n, name, r)
		}
	}
}

func headOf(t *testing.T, l *Log, name string) uint64 {
	t.Helper()
	found, err := l.Heads(t.Context(), []string{name}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return found[0].GetHead()
}

// A store whose connection breaks has its shards back without reading anything of them, and goes on
// where it was: heads, numbers of producers, keys, and what is to be in the next checkpoint.
func TestALostConnectionCostsNoReload(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, reg *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		publishedAt(t, l, "room/1", 1, 2)
		publishedAt(t, l, "room/2", 1)
		keyed := func() *answers {
			item := &meshv1.AppendItem{Topic: "room/3", Body: []byte("k"), MessageId: []byte("0000000000000009"), DedupeKey: "k"}
			a := appended(l, item)
			a.wait(t)
			return a
		}
		if r := keyed().all[0]; r.GetCode() != wirev1.Code_CODE_OK {
			t.Fatal(r)
		}
		loads, before := db.calls("load"), l.Ownership(0)
		for range 3 {
			db.fence()
			pass(3 * tick)
			if n := len(l.Owned()); n != len(every()) {
				t.Fatalf("%d shards are owned", n)
			}
		}
		if n := db.calls("load"); n != loads {
			t.Errorf("%d loads after connections that were lost, %d before", n, loads)
		}
		if now := l.Ownership(0); now == before {
			t.Error("who follows a shard is not told that it was not owned for a while")
		}
		if head := headOf(t, l, "room/1"); head != 2 {
			t.Errorf("head %d, want 2", head)
		}
		publishedAt(t, l, "room/1", 3)
		publishedAt(t, l, "room/2", 2)
		again := appended(l, told("room/1", 2))
		again.wait(t)
		if r := again.all[0]; !r.GetDuplicate() || r.GetSeq() != 2 {
			t.Errorf("a number again: %v", r)
		}
		if r := keyed().all[0]; !r.GetDuplicate() || r.GetSeq() != 1 {
			t.Errorf("a key again: %v", r)
		}
		pass(checkpointEvery + 2*tick)
		if n := db.uncovered(); n != 0 {
			t.Errorf("%d shards have commits that no checkpoint covers", n)
		}
		if n := gauge(t, reg, "pushmesh_store_shards_taken_total"); n != 4*float64(len(every())) {
			t.Errorf("%v shards are counted as taken", n)
		}
	})
}

// While shards are aside they are not owned: nothing is answered of them, and no filter finds them.
func TestWhatIsAsideIsNotOwned(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		publishedAt(t, l, "room/1", 1)
		db.fail(func(call string) error {
			if call == "open" {
				return errTest
			}
			return nil
		}, nil)
		db.fence()
		pass(3 * tick)
		if n := len(l.Owned()); n != 0 {
			t.Errorf("%d shards are owned", n)
		}
		if _, err := l.Heads(t.Context(), []string{"room/1"}, nil, 0); err == nil {
			t.Error("the head of a topic that is not owned is told")
		}
		found, shards, err := l.Survey(t.Context(), nil, []string{"#"}, 1)
		if err != nil || len(found) != 0 || len(shards) != 0 && shards.Has(0) {
			t.Errorf("%v are found, %v", found, err)
		}
		a := appended(l, told("room/1", 2))
		a.wait(t)
		if r := a.all[0]; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("an append is answered with %v", r)
		}
		loads := db.calls("load")
		pass(asideFor + time.Second) // longer than what is known is kept
		db.fail(nil, nil)
		pass(3 * tick)
		if n := db.calls("load"); n == loads {
			t.Errorf("nothing was loaded after %s", asideFor)
		}
		publishedAt(t, l, "room/1", 2)
	})
}

// What is known of a shard is of no use once another store had it.
func TestAShardThatAnotherStoreHadIsLoaded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		publishedAt(t, l, "room/1", 1)
		other := newLog(db, prometheus.NewRegistry(), func(c *Config) { c.Owner.StoreID = "other" })
		if err := other.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.PauseTaking(true)
		db.fence()
		pass(3 * tick)
		other.Want(every())
		synctest.Wait()
		publishedAt(t, other, "room/1", 2, 3)
		other.Want(nil)
		synctest.Wait()
		l.PauseTaking(false)
		pass(3 * tick)
		if head := headOf(t, l, "room/1"); head != 3 {
			t.Errorf("head %d, want 3", head)
		}
		publishedAt(t, l, "room/1", 4)
		if err := other.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A commit whose outcome is unknown is looked up, and memory has it or has it not; also where its
// callers were told before that nobody knows.
func TestACommitInDoubtIsSettled(t *testing.T) {
	for _, c := range []struct {
		name       string
		done, late bool
	}{{"done", true, false}, {"not done", false, false}, {"done, known late", true, true}, {"not done, known late", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
				l.Want(every())
				synctest.Wait()
				publishedAt(t, l, "room/1", 1)
				loads, hit := db.calls("load"), false
				fails := func(call string) error {
					switch {
					case call == "commit" && !hit:
						hit = true
						return fmt.Errorf("%w: %w", backend.ErrUnknown, errTest)
					case call == "open" && hit && c.late:
						return errTest
					}
					return nil
				}
				if c.done {
					db.fail(nil, fails)
				} else {
					db.fail(fails, nil)
				}
				items := []*meshv1.AppendItem{told("room/1", 2), told("room/2", 1)}
				items = append(items, told("room/1", 3))
				items[2].DeliverAt = uint64(time.Now().Add(1000 * time.Hour).UnixMicro())
				a := appended(l, items...)
				a.wait(t)
				for i, r := range a.all {
					want := map[[2]bool]wirev1.Code{
						{true, false}: wirev1.Code_CODE_OK, {false, false}: wirev1.Code_CODE_UNAVAILABLE,
						{true, true}: wirev1.Code_CODE_INTERNAL, {false, true}: wirev1.Code_CODE_INTERNAL,
					}[[2]bool{c.done, c.late}]
					if r.GetCode() != want {
						t.Errorf("item %d is answered with %v, want %v", i, r, want)
					}
				}
				pass(time.Second)
				db.fail(nil, nil)
				pass(3 * tick)
				if n := db.calls("load"); n != loads {
					t.Errorf("%d loads, %d before", n, loads)
				}
				next := uint64(2)
				if c.done {
					next = 4 // and 3 waits for its time: it has no seq
					again := appended(l, told("room/1", 2))
					again.wait(t)
					if r := again.all[0]; !r.GetDuplicate() || r.GetSeq() != 2 {
						t.Errorf("what was committed, again: %v", r)
					}
				}
				after := appended(l, told("room/1", next))
				after.wait(t)
				if r := after.all[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetDuplicate() || r.GetSeq() != map[bool]uint64{true: 3, false: 2}[c.done] {
					t.Errorf("number %d after it: %v", next, r)
				}
				pass(checkpointEvery + 2*tick)
				if n := db.uncovered(); n != 0 {
					t.Errorf("%d shards have commits that no checkpoint covers", n)
				}
			})
		})
	}
}

// snapshot of the server's disk; setBack has the server go on with it.
func (m *memory) snapshot() (setBack func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	runs, commits, batches := slices.Clone(m.runs), maps.Clone(m.commits), maps.Clone(m.batches)
	shards, topics, producers := maps.Clone(m.shards), maps.Clone(m.topics), maps.Clone(m.producers)
	return func() {
		m.mu.Lock()
		m.runs, m.commits, m.batches = runs, commits, batches
		m.shards, m.topics, m.producers = shards, topics, producers
		m.mu.Unlock()
		m.fence()
	}
}

// The first commit of a lane, whose outcome is asked for after the database has forgotten it,
// counts as one that nobody knows: the shard is loaded.
func TestAFirstCommitInDoubtThatIsForgotten(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		hit := false
		db.fail(nil, func(call string) error {
			switch {
			case call == "commit" && !hit:
				hit = true
				return fmt.Errorf("%w: %w", backend.ErrUnknown, errTest)
			case call == "open" && hit:
				return errTest
			}
			return nil
		})
		item := func(n int) *meshv1.AppendItem {
			return &meshv1.AppendItem{Topic: "room/1", Body: []byte("x"), MessageId: fmt.Appendf(nil, "%016d", n)}
		}
		appended(l, item(1)).wait(t)
		db.mu.Lock()
		clear(db.batches)
		db.mu.Unlock()
		db.fail(nil, nil)
		pass(3 * tick)
		a := appended(l, item(2))
		a.wait(t)
		if r := a.all[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 2 {
			t.Errorf("what comes behind it: %v, want seq 2", r)
		}
	})
}

// A server that has the same name and lacks the last commit was set back: nothing that was known of
// it holds.
func TestAServerThatWasSetBackIsReadAnew(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		publishedAt(t, l, "room/1", 1)
		for i, doubt := range []bool{false, true} {
			publishedAt(t, l, "room/2", uint64(i+1)) // the last commit that is left
			setBack := db.snapshot()
			if doubt { // its last commit had no answer
				once := false
				db.fail(nil, func(call string) error {
					if call == "commit" && !once {
						once = true
						return fmt.Errorf("%w: %w", backend.ErrUnknown, errTest)
					}
					return nil
				})
			}
			publishedAt(t, l, "room/1", 2)
			db.fail(nil, nil)
			setBack()
			pass(3 * tick)
			if head := headOf(t, l, "room/1"); head != 1 {
				t.Errorf("head %d, want 1: the server knows of no other", head)
			}
		}
		publishedAt(t, l, "room/1", 2)
	})
}

// inShardOf names a topic of the shard of another one.
func inShardOf(name string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("beside/", i); topic.Shard(other) == topic.Shard(name) {
			return other
		}
	}
}

// A server that was set back to a moment behind the last commit, and before the checkpoint that
// followed, knows nothing of that: a later checkpoint of the shard must not say that it has what
// the lost one had.
func TestACheckpointThatWasSetBackIsMadeAgain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		publishedAt(t, l, "room/1", 1, 2)
		setBack := db.snapshot()
		pass(checkpointEvery + 2*tick)
		if n := db.uncovered(); n != 0 {
			t.Fatalf("%d shards have commits that no checkpoint covers", n)
		}
		setBack()
		pass(3 * tick)
		publishedAt(t, l, inShardOf("room/1"), 1)
		pass(checkpointEvery + 2*tick) // the database complains
		if n := db.uncovered(); n != 0 {
			t.Errorf("%d shards have commits that no checkpoint covers", n)
		}
		publishedAt(t, l, "room/1", 3)
	})
}

// The last commit is the newest one, and not an older one whose outcome was found out later.
func TestACommitInDoubtIsNotTheLastOne(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		doubted := false
		db.fail(func(call string) error {
			if call == "open" && doubted {
				return errTest
			}
			return nil
		}, func(call string) error {
			if call == "commit" {
				doubted = true
				return fmt.Errorf("%w: %w", backend.ErrUnknown, errTest)
			}
			return nil
		})
		a := appended(l, told("room/1", 1))
		a.wait(t)
		if r := a.all[0]; r.GetCode() != wirev1.Code_CODE_INTERNAL {
			t.Fatal(r)
		}
		other := newLog(db, prometheus.NewRegistry(), func(c *Config) { c.Owner.StoreID = "other" })
		if err := other.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.PauseTaking(true)
		pass(3 * tick)
		db.fail(nil, nil)
		other.Want([]int{topic.Shard("room/1")})
		synctest.Wait()
		l.PauseTaking(false)
		pass(3 * tick)
		publishedAt(t, l, "room/2", 1)
		setBack := db.snapshot()
		publishedAt(t, l, "room/2", 2)
		if err := other.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		pass(3 * tick) // the commit in doubt is found
		if head := headOf(t, l, "room/1"); head != 1 {
			t.Fatalf("head %d, want 1", head)
		}
		setBack()
		pass(3 * tick)
		if head := headOf(t, l, "room/2"); head != 1 {
			t.Errorf("head %d, want 1: the server knows of no other", head)
		}
	})
}

// A lane that lost some shards for long and others a moment ago forgets the former all the same.
func TestWhatIsAsideIsForgottenThoughOthersAreLostAgain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want([]int{topic.Shard("room/1"), topic.Shard("room/2")})
		synctest.Wait()
		publishedAt(t, l, "room/1", 1)
		publishedAt(t, l, "room/2", 1)
		other := newLog(db, prometheus.NewRegistry(), func(c *Config) { c.Owner.StoreID = "other" })
		if err := other.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.PauseTaking(true)
		db.fence()
		pass(3 * tick)
		other.Want([]int{topic.Shard("room/1")})
		synctest.Wait()
		l.PauseTaking(false)
		for range 4 {
			pass(asideFor / 3)
			db.mu.Lock()
			for _, w := range db.writers {
				if w.store == "a" {
					w.end()
				}
			}
			db.mu.Unlock()
			pass(3 * tick)
		}
		state := l.lanes[0].state
		state.mu.RLock()
		known := len(state.aside)
		state.mu.RUnlock()
		if known != 0 {
			t.Errorf("%d shards are aside, lost more than %s ago", known, asideFor)
		}
		if err := other.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Of the shards that a lane takes again, one that can't be loaded holds up none that is known.
func TestAShardThatCanNotBeLoadedHoldsUpNone(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		publishedAt(t, l, "room/1", 1)
		publishedAt(t, l, "room/2", 1)
		other := newLog(db, prometheus.NewRegistry(), func(c *Config) { c.Owner.StoreID = "other" })
		if err := other.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.PauseTaking(true)
		db.fence()
		pass(3 * tick)
		other.Want([]int{topic.Shard("room/1")})
		synctest.Wait()
		if err := other.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		db.fail(func(call string) error {
			if call == "load" {
				return errTest
			}
			return nil
		}, nil)
		l.PauseTaking(false)
		pass(3 * tick)
		if n := len(l.Owned()); n != len(every())-1 {
			t.Fatalf("%d shards are owned", n)
		}
		publishedAt(t, l, "room/2", 2)
		db.fail(nil, nil)
		pass(3 * tick)
		publishedAt(t, l, "room/1", 2)
	})
}

// Who reads finds out that old messages are no longer retained while the lane plans an append.
func TestReadersChangeNothingThatAPlanReads(t *testing.T) {
	s, name := newState(10, time.Minute), "room/1"
	n := topic.Shard(name)
	s.shards[n] = &shard{epoch: memoryEpoch, topics: &heads.Table{}}
	topics := s.shards[n].topics
	known := topics.Add(name, memoryEpoch)
	known.Head, known.Oldest = 5, 1
	known.SetKeeps(true)
	var read sync.WaitGroup
	read.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.retained(&meshv1.Head{Topic: name, Epoch: memoryEpoch, Head: 5, Oldest: 1}, backend.OldestAnswer{Seq: 4, At: 1000}, 900); err != nil {
			t.Error(err)
		}
	})
	p := newPlan(s, []*entry{{item: &meshv1.AppendItem{Topic: name, MessageId: make([]byte, 16)}, shard: n}}, backend.BatchID{1}, 2000, table, scratch{})
	read.Wait()
	if r := p.results[0]; r.GetSeq() != 6 {
		t.Errorf("%v", r)
	}
	changed := 0
	topics.TakeChanged(func(string, *heads.Topic) { changed++ })
	if !known.Keeps() || changed != 1 || known.Oldest != 4 {
		t.Errorf("keeps %v, %d changed, oldest %d", known.Keeps(), changed, known.Oldest)
	}
}

// A lane that has some of its shards back stores nothing of those that it has not.
func TestWhatIsAsideIsNotStored(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		pass(2 * tick)
		publishedAt(t, l, "room/1", 1)
		publishedAt(t, l, "room/2", 1)
		other := newLog(db, prometheus.NewRegistry(), func(c *Config) { c.Owner.StoreID = "other" })
		if err := other.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.PauseTaking(true)
		db.fence()
		pass(3 * tick)
		other.Want([]int{topic.Shard("room/1")})
		synctest.Wait()
		l.PauseTaking(false)
		pass(3 * tick)
		if n := len(l.Owned()); n != len(every())-1 {
			t.Fatalf("%d shards are owned", n)
		}
		publishedAt(t, other, "room/1", 2)
		publishedAt(t, l, "room/2", 2)
		pass(checkpointEvery + 2*tick) // the database complains
		if err := other.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		pass(3 * tick)
		publishedAt(t, l, "room/1", 3)
	})
}

// A position that is forgotten while its shard is aside is known to have been forgotten when that
// comes back: the same number may have been published.
func TestWhatIsForgottenOfShardsAsideIsKnown(t *testing.T) {
	s, now := newState(10, time.Minute), uint64(100*positionsKept.Microseconds())
	s.shards[3] = &shard{topics: &heads.Table{}}
	s.positions.moved(position{key: producerKey{topic: "room/1"}, shard: 3, producerSeq: 5, at: 1000})
	s.suspend()
	if unused, _ := s.forget(now, 0, 10); unused != 1 {
		t.Fatalf("%d positions are forgotten", unused)
	}
	s.recall(map[int]bool{3: true})
	if sh := s.shards[3]; sh.forgot != 1001 || !sh.dirty {
		t.Errorf("forgotten up to %d, dirty %v", sh.forgot, sh.dirty)
	}
}

// A checkpoint that a lost connection cuts off goes on: what it held is in a later one.
func TestACheckpointThatIsCutOffIsMadeUpFor(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		items := make([]*meshv1.AppendItem, 3*checkpointPart)
		for i := range items {
			items[i] = told(fmt.Sprint("room/", i), 1)
		}
		appended(l, items...).wait(t)
		loads, parts := db.calls("load"), 0
		cut := func(call string) error {
			if call == "checkpoint" {
				if parts++; parts%2 == 0 {
					return fmt.Errorf("%w: %w", backend.ErrLost, errTest)
				}
			}
			return nil
		}
		db.fail(cut, nil)
		pass(checkpointEvery + 4*tick)
		db.fail(nil, nil)
		if parts < 2 {
			t.Fatalf("%d parts of a checkpoint were begun", parts)
		}
		pass(checkpointEvery + 20*tick)
		if n := db.uncovered(); n != 0 || db.calls("load") != loads {
			t.Errorf("%d shards have commits that no checkpoint covers, %d loads after %d", n, db.calls("load"), loads)
		}
	})
}

// What can't be asked is no answer: shards whose last commit can't be looked for are given back,
// and taken again later.
func TestWhatCanNotBeLookedForIsAskedAgain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		publishedAt(t, l, "room/1", 1)
		left := 2
		db.fail(func(call string) error {
			if call == "committed" && left > 0 {
				left--
				return errors.New("a lock")
			}
			return nil
		}, nil)
		db.fence()
		pass(5 * tick)
		if n := len(l.Owned()); n != len(every()) || left != 0 {
			t.Errorf("%d shards are owned, %d questions are left to fail", n, left)
		}
		publishedAt(t, l, "room/1", 2)
	})
}
