package backendtest

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func firsts(t *testing.T, b backend.Backend, topic string, epoch, from, to uint64, most int) (seqs []uint64) {
	t.Helper()
	need(t, b.ReadRuns(within(t), topic, epoch, from, to, func(r backend.Run) bool {
		if r.Topic != topic || r.Epoch != epoch {
			t.Errorf("run of %s %d", r.Topic, r.Epoch)
		}
		seqs = append(seqs, r.First)
		return len(seqs) < most
	}))
	return seqs
}

func testReadRuns(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w := writer(t, b, owner("a"), 3)
	epoch := load(t, w, 3).shards[3].Epoch
	const runs = 300 // more than any page
	for i := range uint64(runs) {
		need(t, w.Commit(within(t), oneRun(3, i+1, epoch, "x", 1+i*10, 10, begin, backend.Day)))
	}
	need(t, w.Commit(within(t), oneRun(3, runs+1, epoch, "x/1", 1, 3, begin, backend.Day)))
	for _, c := range []struct {
		name     string
		from, to uint64
		most     int
		want     []uint64
	}{
		{"inside one run", 13, 15, 99, []uint64{11}},
		{"edges", 20, 21, 99, []uint64{11, 21}},
		{"fewer runs than messages", 1, 45, 99, []uint64{1, 11, 21, 31, 41}},
		{"to a run's last", 1, 40, 99, []uint64{1, 11, 21, 31}},
		{"limit", 1, 3000, 2, []uint64{1, 11}},
		{"end", 2991, 1 << 62, 99, []uint64{2991}},
		{"beyond", 3001, 4000, 99, nil},
		{"empty", 20, 19, 99, nil},
		{"all that can be", 2991, math.MaxInt64, 99, []uint64{2991}},
	} {
		if got := firsts(t, b, "x", epoch, c.from, c.to, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%s: runs from %v, want %v", c.name, got, c.want)
		}
	}
	if got := firsts(t, b, "x", epoch, 1, 2005, runs+1); len(got) != 201 || got[200] != 2001 {
		t.Errorf("%d runs up to one of the last", len(got))
	}
	all := firsts(t, b, "x", epoch, 1, runs*10, runs+1)
	if len(all) != runs || !slices.IsSorted(all) {
		t.Errorf("%d runs, sorted %v", len(all), slices.IsSorted(all))
	}
	if got := firsts(t, b, "x", epoch+1, 1, 3000, 99); got != nil {
		t.Errorf("runs of another epoch: %v", got)
	}
	need(t, w.Commit(within(t), oneRun(3, runs+2, epoch, "late", 101, 3, begin, backend.Day)))
	if got := firsts(t, b, "late", epoch, 50, 100, 99); got != nil {
		t.Errorf("runs from %v, of a range before the first", got)
	}
	if got := firsts(t, b, "never", epoch, 1, 3000, 99); got != nil {
		t.Errorf("runs of another topic: %v", got)
	}
	var whole backend.Run
	need(t, b.ReadRuns(within(t), "x/1", epoch, 2, 2, func(r backend.Run) bool { whole = r; return true }))
	want := oneRun(3, runs+1, epoch, "x/1", 1, 3, begin, backend.Day).Runs[0]
	if diff := cmp.Diff(want, whole); diff != "" {
		t.Errorf("run read back: %s", diff)
	}
}

// A topic's runs lie in several slices and, after its policy changed, in several classes.
func testReadAcrossSlices(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w := writer(t, b, owner("a"), 3)
	epoch := load(t, w, 3).shards[3].Epoch
	var want []uint64
	for i := range uint64(24) {
		at := after(time.Duration(i) * 5 * time.Minute)
		need(t, w.Commit(within(t), oneRun(3, i+1, epoch, "x", i+1, 1, at, backend.Class(i%uint64(backend.Classes)))))
		want = append(want, i+1)
	}
	if got := firsts(t, b, "x", epoch, 1, 24, 99); !slices.Equal(got, want) {
		t.Errorf("read %v", got)
	}
	if got := len(load(t, w, 3).runs); got != 24 {
		t.Errorf("loaded %d runs", got)
	}
}

func testKeys(t *testing.T, db Database) {
	b := db(t)
	w := writer(t, b, owner("a"), 3)
	epoch := load(t, w, 3).shards[3].Epoch
	key := func(n byte, window time.Duration) backend.Key {
		return backend.Key{
			Shard: 3, Hash: backend.KeyHash{n}, Epoch: epoch, Seq: uint64(n), MessageID: [16]byte{n, n}, PublishedAt: begin + uint64(n),
			Until: after(window), Class: backend.KeyClassFor(window),
		}
	}
	batch := oneRun(3, 1, epoch, "x", 1, 3, begin, backend.Day)
	batch.Keys = []backend.Key{key(1, 2*time.Minute), key(2, 20*time.Hour), key(3, 9*time.Minute)}
	need(t, w.Commit(within(t), batch))
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	all := []backend.KeyHash{{3}, {4}, {1}, {2}}
	for _, c := range []struct {
		at   time.Duration
		want []backend.Key
	}{
		{0, batch.Keys},
		{2 * time.Minute, batch.Keys[1:]},
		{10 * time.Minute, batch.Keys[1:2]},
		{21 * time.Hour, nil},
	} {
		got, err := b.Keys(within(t), all, after(c.at))
		need(t, err)
		slices.SortFunc(got, func(x, y backend.Key) int { return int(x.Seq) - int(y.Seq) })
		if diff := cmp.Diff(c.want, got); diff != "" && len(c.want)+len(got) > 0 {
			t.Errorf("after %s: %s", c.at, diff)
		}
	}
	// Used again after its time was over, in the same slice: the later one counts.
	w = writer(t, b, owner("b"), 3)
	if own, err := w.Keys(within(t), all, begin); err != nil || len(own) != len(batch.Keys) {
		t.Errorf("a writer finds %v %v", own, err)
	}
	later := oneRun(3, 2, epoch, "x", 4, 1, after(3*time.Minute), backend.Day)
	later.Keys = []backend.Key{key(1, 4*time.Minute)}
	later.Keys[0].Seq = 44
	need(t, w.Commit(within(t), later))
	if again, err := b.Keys(within(t), all[2:3], after(3*time.Minute)); err != nil || len(again) != 1 || again[0].Seq != 44 {
		t.Errorf("a key used again: %v %v", again, err)
	}
	for ctx := within(t); ; {
		// it gives up soon rather than hold up anybody: the next round goes on
		_, err := b.DropSlices(ctx, after(time.Hour))
		need(t, err)
		got, err := b.Keys(ctx, all, begin)
		need(t, err)
		diff := cmp.Diff(batch.Keys[1:2], got)
		if diff == "" {
			break
		}
		if len(got) < 1 || ctx.Err() != nil {
			t.Fatalf("after dropping slices: %s", diff)
		}
	}
}

func testOldest(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w := writer(t, b, owner("a"), 3)
	epoch := load(t, w, 3).shards[3].Epoch
	for i := range uint64(5) {
		need(t, w.Commit(within(t), oneRun(3, i+1, epoch, "x", 1+i*10, 10, after(time.Duration(i)*time.Hour), backend.Day)))
	}
	got, err := b.Oldest(within(t), []backend.OldestQuestion{
		{Topic: "x", Epoch: epoch},
		{Topic: "never", Epoch: epoch},
		{Topic: "x", Epoch: epoch, NotBefore: after(90 * time.Minute)},
		{Topic: "x", Epoch: epoch, NotBefore: after(2 * time.Hour)},
		{Topic: "x", Epoch: epoch, NotBefore: after(5 * time.Hour)},
		{Topic: "x", Epoch: epoch + 1},
		{Topic: "x", Epoch: epoch, From: 25},
		{Topic: "x", Epoch: epoch, NotBefore: after(90 * time.Minute), From: 31},
		{Topic: "x", Epoch: epoch, From: 51},
	})
	need(t, err)
	want := []backend.OldestAnswer{
		{Seq: 1, At: begin},
		{},
		{Seq: 21, At: after(2 * time.Hour)},
		{Seq: 21, At: after(2 * time.Hour)},
		{},
		{},
		{Seq: 21, At: after(2 * time.Hour)},
		{Seq: 31, At: after(3 * time.Hour)},
		{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func testDropSlices(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w := writer(t, b, owner("a"), 3)
	epoch := load(t, w, 3).shards[3].Epoch
	need(t, b.MakeSlices(within(t), begin))
	need(t, b.MakeSlices(within(t), begin)) // again: nothing to do
	for i, class := range []backend.Class{backend.Hour, backend.Day, backend.Week} {
		need(t, w.Commit(within(t), oneRun(3, uint64(i)+1, epoch, "x", uint64(i)+1, 1, begin, class)))
	}
	need(t, w.Checkpoint(within(t), &backend.Checkpoint{
		Shards: []backend.Shard{{Shard: 3, Epoch: epoch, Commit: 3}},
		Topics: []backend.Topic{{Shard: 3, Topic: "x", Epoch: epoch, Head: 3, Oldest: 1}},
	}))
	for _, c := range []struct {
		at   time.Duration
		left []uint64
	}{
		{30 * time.Minute, []uint64{1, 2, 3}},
		{2 * time.Hour, []uint64{2, 3}},
		{30 * time.Hour, []uint64{3}},
		{9 * 24 * time.Hour, nil},
	} {
		dropped := 0
		for ctx := within(t); ; {
			// it gives up soon rather than hold up anybody: the next round goes on
			n, err := b.DropSlices(ctx, after(c.at))
			need(t, err)
			dropped += n
			got := firsts(t, b, "x", epoch, 1, 9, 9)
			if slices.Equal(got, c.left) && (c.at <= time.Hour || dropped > 0) {
				break
			}
			if len(got) < len(c.left) || ctx.Err() != nil {
				t.Fatalf("after %s: %v left, want %v; %d slices dropped", c.at, got, c.left, dropped)
			}
		}
	}
	if head := load(t, w, 3).topics["x"].Head; head != 3 {
		t.Errorf("head is %d after everything was dropped, want 3", head)
	}
	need(t, w.Commit(within(t), oneRun(3, 4, epoch, "x", 4, 1, after(9*24*time.Hour), backend.Hour)))
}
