package shardlog_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// What callers of a log are promised, above the smallest backend.
func TestTheLogKeepsItsPromises(t *testing.T) { backendtest.RunLog(t, database) }

// What is no longer retained stays so: not even a store that takes over, under a policy that keeps
// messages for longer, has it again.
func TestOldestNeverFalls(t *testing.T) {
	db, clock := database(t), backendtest.NewClock()
	var table atomic.Pointer[policy.Table]
	table.Store(policy.NewTable(nil)) // rooms keep a day
	reopen := func(b backend.Backend, l *backendtest.Log) (backend.Backend, *backendtest.Log) {
		if l != nil {
			l.Close(t)
			need(t, b.Close())
		}
		b = db(t)
		l = backendtest.OpenLog(t, b, me, 1, clock.Now, func(cfg *shardlog.Config) { cfg.Policies = table.Load })
		l.WaitReady(t)
		return b, l
	}
	oldest := func(l *backendtest.Log) uint64 {
		t.Helper()
		heads, err := l.Heads(t.Context(), []string{"room/1"}, nil, 0)
		need(t, err)
		return heads[0].GetOldest()
	}
	b, l := reopen(nil, nil)
	l.Append(t, backendtest.Item("room/1", "1"), backendtest.Item("room/1", "2"))
	clock.Add(23 * time.Hour)
	l.Append(t, backendtest.Item("room/1", "3"))
	b, l = reopen(b, l) // nothing is left to be stored, but for what happens now
	clock.Add(2 * time.Hour)
	if got := oldest(l); got != 3 {
		t.Fatalf("oldest %d after 25 hours, want 3", got)
	}
	table.Store(policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "room", Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(300 * 24 * time.Hour)}}}))
	if got := oldest(l); got != 3 {
		t.Fatalf("oldest %d where more is kept from now on, want 3", got)
	}
	_, l = reopen(b, l)
	if got := oldest(l); got != 3 {
		t.Errorf("oldest %d after a takeover, want 3", got)
	}
}

// A lane that has nothing to append finds out that its connection is lost: it stops being ready,
// and takes its shards again when it can.
func TestASilentLaneNoticesThatItsConnectionIsLost(t *testing.T) {
	l, f := start(t)
	f.set(func(f *faulty) { f.away = errCut })
	for deadline := time.After(30 * time.Second); l.Check() == nil; {
		select {
		case <-deadline:
			t.Fatal("the store believes that it has its connection")
		case <-time.After(time.Millisecond):
		}
	}
	if got := l.Owned(); len(got) > 0 {
		t.Errorf("%d shards are owned without a connection", len(got))
	}
	f.set(func(f *faulty) { f.away = nil })
	l.WaitReady(t)
	if r := l.Append(t, backendtest.Item("room/1", "x"))[0]; r.GetCode() != wirev1.Code_CODE_OK {
		t.Error(r)
	}
}

// audited counts what writers load, and notes which shards a whole checkpoint covers.
type audited struct {
	backend.Backend
	loaded    atomic.Int64 // runs
	positions atomic.Int64 // of producers

	largest atomic.Int64 // states stored between two commits

	mu      sync.Mutex
	covered map[int]uint64 // commits
	changed chan struct{}
}

func audit(b backend.Backend) *audited {
	return &audited{Backend: b, covered: map[int]uint64{}, changed: make(chan struct{})}
}

func (a *audited) OpenWriter(ctx context.Context, o backend.Owner) (backend.Writer, error) {
	w, err := a.Backend.OpenWriter(ctx, o)
	return &auditedWriter{w, a}, err
}

type auditedWriter struct {
	backend.Writer
	a *audited
}

type countedLoad struct {
	backend.Loader
	a *audited
}

func (c countedLoad) LoadRun(r backend.Run) {
	c.a.loaded.Add(1)
	c.Loader.LoadRun(r)
}

func (c countedLoad) LoadProducer(p backend.Producer) {
	c.a.positions.Add(1)
	c.Loader.LoadProducer(p)
}

func (w *auditedWriter) Load(ctx context.Context, shards []int, into backend.Loader) error {
	return w.Writer.Load(ctx, shards, countedLoad{into, w.a})
}

func (w *auditedWriter) Checkpoint(ctx context.Context, c *backend.Checkpoint) error {
	if n := int64(len(c.Topics) + len(c.Producers)); n > w.a.largest.Load() {
		w.a.largest.Store(n)
	}
	err := w.Writer.Checkpoint(ctx, c)
	if err == nil && len(c.Shards) > 0 {
		w.a.mu.Lock()
		defer w.a.mu.Unlock()
		for _, s := range c.Shards {
			w.a.covered[s.Shard] = max(w.a.covered[s.Shard], s.Commit)
		}
		close(w.a.changed)
		w.a.changed = make(chan struct{})
	}
	return err
}

// A takeover reads what came since the last checkpoint, which stores make every ten seconds and
// when they stop. What was appended in between is read again, all of it.
func TestATakeoverReadsWhatNoCheckpointCovers(t *testing.T) {
	const topics = 700 // more than one piece of a checkpoint
	db, clock := database(t), backendtest.NewClock()
	var a *audited
	var l *backendtest.Log
	open := func() {
		a = audit(db(t))
		l = backendtest.OpenLog(t, a, me, 1, clock.Now)
		l.WaitReady(t)
	}
	n := uint64(0)
	appended := func() (shards map[int]bool) {
		t.Helper()
		n++
		shards = map[int]bool{}
		var items []*meshv1.AppendItem
		for i := range topics {
			items = append(items, number(1, fmt.Sprintf("room/%d", i), n))
			shards[topic.Shard(items[i].GetTopic())] = true
		}
		for _, r := range l.Append(t, items...) {
			if r.GetSeq() != n {
				t.Fatalf("%v, want seq %d", r, n)
			}
		}
		return shards
	}
	crash := func() {
		need(t, a.Close())
		l.Close(t)
	}
	open()
	appended()
	crash()
	open()
	if got := a.loaded.Load(); got != topics {
		t.Errorf("after a crash without a checkpoint %d runs are read, want %d", got, topics)
	}

	shards := appended()
	clock.Add(11 * time.Second)
	for deadline := time.After(30 * time.Second); ; {
		a.mu.Lock()
		covered, changed := 0, a.changed
		for shard := range shards {
			if a.covered[shard] == n { // each is touched by one commit at a time
				covered++
			}
		}
		a.mu.Unlock()
		if covered == len(shards) {
			break
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("after eleven seconds checkpoints cover %d of %d shards", covered, len(shards))
		}
	}
	if got := a.largest.Load(); got != 500 {
		t.Errorf("an append waits for %d states at most, want 500", got)
	}
	crash()
	open()
	if got := a.loaded.Load(); got != 0 {
		t.Errorf("after a crash behind a checkpoint %d runs are read, want none", got)
	}

	appended()
	l.Close(t)
	need(t, a.Close())
	open()
	if got := a.loaded.Load(); got != 0 {
		t.Errorf("after a planned stop %d runs are read, want none", got)
	}
	appended() // numbers and heads are known, whoever told them
}
