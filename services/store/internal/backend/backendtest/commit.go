package backendtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func testEpochs(t *testing.T, db Database) {
	b := db(t)
	w := writer(t, b, owner("a"), 0, 512, 1023)
	first := load(t, w, 0, 512, 1023)
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	again := load(t, writer(t, b, owner("b"), 0, 512, 1023), 0, 512, 1023)
	if diff := cmp.Diff(first.shards, again.shards); diff != "" {
		t.Errorf("shards differ after a reopen: %s", diff)
	}
	if n := first.shards[0].Commit; n != 0 {
		t.Errorf("commit of an untouched shard is %d", n)
	}
}

func testCommitAndLoad(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w := writer(t, b, owner("a"), 3, 4)
	epoch := load(t, w, 3, 4).shards[3].Epoch
	batch := &backend.Batch{
		ID: batchID(), At: begin,
		Commits: []backend.Commit{{Shard: 3, Number: 1}, {Shard: 4, Number: 1}},
		Runs: []backend.Run{
			{Shard: 3, Commit: 1, Topic: "x/1", Epoch: epoch, First: 1, N: 2, At: begin, Class: backend.Day, Packed: []byte("one")},
			{Shard: 3, Commit: 1, Topic: "x/1", Epoch: epoch, First: 3, N: 1, At: begin, Class: backend.Day, Packed: []byte{0, 1, 255}},
			{Shard: 4, Commit: 1, Topic: "y", Epoch: epoch, First: 1, N: 5, At: begin, Class: backend.Week, Packed: []byte("two")},
		},
		Marks: []backend.Mark{{Commit: 1, Producer: backend.Producer{Shard: 4, Topic: "y", ID: [16]byte{9}, ProducerSeq: 12, Epoch: epoch, Seq: 4, At: begin}}},
	}
	need(t, w.Commit(within(t), batch))
	second := oneRun(3, 2, epoch, "x/1", 4, 7, after(time.Second), backend.Day)
	need(t, w.Commit(within(t), second))

	s := load(t, w, 3)
	if diff := cmp.Diff([]backend.Run{batch.Runs[0], batch.Runs[1], second.Runs[0]}, s.runs); diff != "" {
		t.Errorf("runs of shard 3: %s", diff)
	}
	s = load(t, w, 3, 4)
	if len(s.runs) != 4 {
		t.Errorf("%d runs of both shards, want 4", len(s.runs))
	}
	want := batch.Marks[0].Producer
	if diff := cmp.Diff(map[string]backend.Producer{producerKey(want): want}, s.producers); diff != "" {
		t.Errorf("producers: %s", diff)
	}
}

func testCommitIsAtomic(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w := writer(t, b, owner("a"), 3)
	epoch := load(t, w, 3).shards[3].Epoch
	batch := oneRun(3, 1, epoch, "mine", 1, 1, begin, backend.Day)
	batch.Keys = []backend.Key{{Shard: 3, Hash: backend.KeyHash{1}, Epoch: epoch, Seq: 1, Until: after(time.Minute)}}
	// A shard that this writer does not own spoils the whole batch.
	batch.Commits = append(batch.Commits, backend.Commit{Shard: 5, Number: 1})
	batch.Runs = append(batch.Runs, backend.Run{Shard: 5, Commit: 1, Topic: "other", Epoch: epoch, First: 1, N: 1, At: begin, Class: backend.Day, Packed: []byte("x")})
	if err := w.Commit(within(t), batch); !errors.Is(err, backend.ErrLost) {
		t.Fatalf("commit to a shard not owned: %v, want ErrLost", err)
	}
	w = writer(t, b, owner("a"), 5)
	if s := load(t, w, 5); len(s.runs) != 0 {
		t.Errorf("runs of a refused batch: %v", s.runs)
	}
	keys, err := b.Keys(within(t), []backend.KeyHash{{1}}, begin)
	need(t, err)
	if len(keys) != 0 {
		t.Errorf("keys of a refused batch: %v", keys)
	}
}

func testCommitted(t *testing.T, db Database) {
	b := db(t)
	w := writer(t, b, owner("a"), 3)
	epoch := load(t, w, 3).shards[3].Epoch
	batch := oneRun(3, 1, epoch, "x", 1, 1, begin, backend.Day)
	committed := func(id backend.BatchID) bool {
		t.Helper()
		yes, err := w.Committed(within(t), id)
		need(t, err)
		return yes
	}
	if committed(batch.ID) {
		t.Error("committed before the commit")
	}
	need(t, w.Commit(within(t), batch))
	if !committed(batch.ID) {
		t.Error("not committed after the commit")
	}
	gone, cancel := context.WithCancel(within(t))
	cancel()
	cut := oneRun(3, 2, epoch, "x", 2, 1, begin, backend.Day)
	err := w.Commit(gone, cut)
	if err == nil {
		t.Fatal("commit with a context that is gone succeeded")
	}
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	w = writer(t, b, owner("b"), 3)
	if !committed(batch.ID) {
		t.Error("forgotten after a reopen")
	}
	runs := len(load(t, w, 3).runs)
	if yes := committed(cut.ID); yes != (runs == 2) {
		t.Errorf("committed says %v about the cut batch, there are %d runs", yes, runs)
	}
	if errors.Is(err, backend.ErrNotCommitted) && runs != 1 {
		t.Errorf("%v, but it is there", err)
	}
}

func testCheckpoint(t *testing.T, db Database) {
	b := db(t)
	w := writer(t, b, owner("a"), 3)
	epoch := load(t, w, 3).shards[3].Epoch
	for i := uint64(1); i <= 3; i++ {
		batch := oneRun(3, i, epoch, "x", i, 1, begin, backend.Day)
		batch.Marks = []backend.Mark{{Commit: i, Producer: backend.Producer{Shard: 3, Topic: "x", ID: [16]byte{1}, ProducerSeq: i, Epoch: epoch, Seq: i, At: begin}}}
		need(t, w.Commit(within(t), batch))
	}
	topic := backend.Topic{Shard: 3, Topic: "x", Epoch: epoch, Head: 2, Oldest: 2}
	producer := backend.Producer{Shard: 3, Topic: "x", ID: [16]byte{2}, ProducerSeq: 5, Epoch: epoch, Seq: 1, At: begin}
	old := backend.Producer{Shard: 3, Topic: "x", ID: [16]byte{3}, ProducerSeq: 5, Epoch: epoch, Seq: 1, At: begin - 10}
	need(t, w.Checkpoint(within(t), &backend.Checkpoint{
		Shards: []backend.Shard{{Shard: 3, Epoch: epoch, Commit: 2}},
		Topics: []backend.Topic{topic}, Producers: []backend.Producer{producer, old},
	}))
	need(t, w.Checkpoint(within(t), &backend.Checkpoint{Shards: []backend.Shard{{Shard: 3, Epoch: epoch, Forgot: begin - 5}}}))
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	s := load(t, writer(t, b, owner("b"), 3), 3)
	if got := s.shards[3]; got.Commit != 2 || got.Forgot != begin-5 {
		t.Errorf("checkpoint %+v, want commit 2, forgot %d", got, begin-5)
	}
	if diff := cmp.Diff(map[string]backend.Topic{"x": topic}, s.topics); diff != "" {
		t.Errorf("topics: %s", diff)
	}
	if len(s.runs) != 1 || s.runs[0].First != 3 {
		t.Errorf("runs after the checkpoint: %+v, want the third", s.runs)
	}
	if len(s.covered) != 2 || s.covered[0].First != 1 || s.covered[1].Last() != 2 || s.covered[0].Packed != nil {
		t.Errorf("runs that the checkpoint covers: %+v, want the first two, without what they hold", s.covered)
	}
	third := backend.Producer{Shard: 3, Topic: "x", ID: [16]byte{1}, ProducerSeq: 3, Epoch: epoch, Seq: 3, At: begin}
	want := map[string]backend.Producer{producerKey(producer): producer, producerKey(third): third}
	if diff := cmp.Diff(want, s.producers); diff != "" {
		t.Errorf("producers: %s", diff)
	}
}

func testCheckpointNeverLowers(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w := writer(t, b, owner("a"), 3)
	epoch := load(t, w, 3).shards[3].Epoch
	at := func(n uint64) *backend.Checkpoint {
		return &backend.Checkpoint{
			Shards:    []backend.Shard{{Shard: 3, Epoch: epoch, Commit: n}},
			Topics:    []backend.Topic{{Shard: 3, Topic: "x", Epoch: epoch, Head: n, Oldest: n}},
			Producers: []backend.Producer{{Shard: 3, Topic: "x", ID: [16]byte{1}, ProducerSeq: n, Epoch: epoch, Seq: n, At: begin}},
		}
	}
	need(t, w.Checkpoint(within(t), at(9)))
	before := load(t, w, 3)
	need(t, w.Checkpoint(within(t), at(4)))
	if diff := cmp.Diff(before, load(t, w, 3), cmp.AllowUnexported(state{})); diff != "" {
		t.Errorf("an older checkpoint changed: %s", diff)
	}
	if before.topics["x"].Head != 9 {
		t.Errorf("head is %d, want 9", before.topics["x"].Head)
	}
}

func testReopen(t *testing.T, db Database) {
	b := db(t)
	w := writer(t, b, owner("a"), 3)
	epoch := load(t, w, 3).shards[3].Epoch
	const n = 50
	for i := uint64(1); i <= n; i++ {
		need(t, w.Commit(within(t), oneRun(3, i, epoch, "x", i, 1, begin, backend.Day)))
	}
	closeNow(t, b) // the writer was not closed
	b = db(t)
	defer closeNow(t, b)
	s := load(t, writer(t, b, owner("a"), 3), 3)
	if len(s.runs) != n {
		t.Fatalf("%d runs, want %d", len(s.runs), n)
	}
	for i, r := range s.runs {
		if r.First != uint64(i)+1 || r.Commit != uint64(i)+1 {
			t.Fatalf("run %d: first %d, commit %d", i, r.First, r.Commit)
		}
	}
}
