package postgres

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// loaded is a Loader that keeps heads and positions as a lane does.
type loaded struct {
	shards    map[int]backend.Shard
	topics    map[string]backend.Topic
	positions map[string]uint64
}

func newLoaded() *loaded {
	return &loaded{map[int]backend.Shard{}, map[string]backend.Topic{}, map[string]uint64{}}
}

func (l *loaded) LoadShard(s backend.Shard) { l.shards[s.Shard] = s }
func (l *loaded) LoadTopic(t backend.Topic) {
	t.Topic = strings.Clone(t.Topic)
	have := l.topics[t.Topic]
	t.Head, t.Oldest = max(t.Head, have.Head), max(t.Oldest, have.Oldest)
	l.topics[t.Topic] = t
}

func (l *loaded) LoadProducer(p backend.Producer) {
	l.positions[p.Topic] = max(l.positions[p.Topic], p.ProducerSeq)
}
func (l *loaded) LoadMark(m backend.Mark) { l.LoadProducer(m.Producer) }
func (l *loaded) LoadCovered(backend.Run) {}
func (l *loaded) LoadKept(backend.Kept)   {}
func (l *loaded) LoadRun(r backend.Run) {
	t := l.topics[r.Topic]
	t.Head = max(t.Head, r.Last())
	l.topics[r.Topic] = t
}

// Whatever statement of a load checkpoints are folded before, and their slices dropped: it sees all
// of them.
func TestALoadBesideAFold(t *testing.T) {
	t.Parallel()
	wire := &pgtest.Wire{}
	url := pgtest.URL(t)
	healthy, d := open(t, url), openWith(t, Config{URL: url, Dial: wire.Dial})
	w, first := claimed(t, healthy, 3)
	epoch := first.shards[3].Epoch
	// The checkpoint covers what the log has, and a mark lies behind it.
	const topics, pagesInSlice = 300, 8192
	for head := uint64(1); ; head++ {
		need(t, w.Checkpoint(t.Context(), checkpointOf(3, epoch, 10*head, topics)))
		mark := batch(3, epoch, 10*head+1)
		mark.Runs = nil
		mark.Marks = []backend.Mark{{Commit: 10*head + 1, Producer: backend.Producer{Shard: 3, Topic: "t1", ID: [16]byte{1}, ProducerSeq: 10*head + 1, Epoch: epoch, At: now()}}}
		need(t, w.Commit(t.Context(), mark))
		need(t, w.Close())
		pgtest.Exec(t, url, `SELECT setval('pushmesh.checkpoint_id', (SELECT last_value FROM pushmesh.checkpoint_id) + $1)`, int64(3*pagesInSlice))

		n, err := d.OpenWriter(t.Context(), owner("b"))
		need(t, err)
		_, err = n.TakeShards(t.Context(), []int{3})
		need(t, err)
		var statements atomic.Uint64
		var sql string
		wire.Judge(func(s pgtest.Statement) pgtest.Fate {
			if s.App == "pushmesh-writer" && statements.Add(1) == head {
				sql = s.SQL
				if _, err := healthy.DropSlices(t.Context(), now()); err != nil {
					t.Error(err)
				}
				if err := healthy.FoldCheckpoints(t.Context(), backend.FoldAll); err != nil {
					t.Error(err)
				}
				if _, err := healthy.DropSlices(t.Context(), now()); err != nil {
					t.Error(err)
				}
			}
			return pgtest.Pass
		})
		got := newLoaded()
		need(t, n.Load(t.Context(), []int{3}, got))
		wire.Judge(nil)
		need(t, n.Close())
		if err := got.is(10*head, topics); err != nil {
			t.Errorf("checkpoints were folded before statement %d of a load (%s): %v", head, sql, err)
		}
		if statements.Load() < head {
			t.Logf("a load has %d statements", statements.Load())
			return
		}
		w, _ = claimed(t, healthy, 3)
	}
}

// is compares with what a checkpoint of checkpointOf and the mark after it say.
func (l *loaded) is(head uint64, topics int) error {
	var errs []error
	low, behind := 0, 0
	for i := range topics {
		name := fmt.Sprint("t", i)
		if l.topics[name].Head != head {
			low++
		}
		if l.positions[name] < head {
			behind++
		}
	}
	if low > 0 {
		errs = append(errs, fmt.Errorf("%d of %d heads are not %d", low, topics, head))
	}
	if behind > 0 {
		errs = append(errs, fmt.Errorf("%d of %d positions of producers are below %d", behind, topics, head))
	}
	if l.positions["t1"] != head+1 {
		errs = append(errs, fmt.Errorf("a mark was passed over: the position is %d, want %d", l.positions["t1"], head+1))
	}
	if l.shards[3].Commit != head {
		errs = append(errs, fmt.Errorf("the checkpoint covers commit %d, want %d", l.shards[3].Commit, head))
	}
	return errors.Join(errs...)
}

// claimed opens a writer and has it claim and load shards.
func claimed(t *testing.T, d *DB, shards ...int) (backend.Writer, *loaded) {
	t.Helper()
	w, err := d.OpenWriter(t.Context(), owner("a"))
	need(t, err)
	got, err := w.TakeShards(t.Context(), shards)
	need(t, err)
	if len(got) != len(shards) {
		t.Fatalf("claimed %v of %v", got, shards)
	}
	l := newLoaded()
	need(t, w.Load(t.Context(), shards, l))
	return w, l
}
