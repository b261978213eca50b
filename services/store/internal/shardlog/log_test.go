package shardlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// A repetition in the same group is answered with what becomes of the first: nothing is called
// published that was not committed.
func TestARepetitionFailsWithItsFirst(t *testing.T) {
	l, f := start(t)
	keyed := func() *meshv1.AppendItem {
		item := backendtest.Item("room/1", "x")
		item.DedupeKey = "k"
		return item
	}
	later := func(n uint64) *meshv1.AppendItem {
		item := number(2, "room/3", n)
		item.DeliverAt = uint64(time.Now().Add(1000 * time.Hour).UnixMicro())
		return item
	}
	group := func() []*meshv1.AppendItem {
		return []*meshv1.AppendItem{keyed(), keyed(), number(1, "room/2", 1), number(1, "room/2", 1), number(1, "room/2", 2), later(1), later(1)}
	}
	f.set(func(f *faulty) {
		f.commit = func(backend.Writer, *backend.Batch) error {
			return fmt.Errorf("%w: %w", backend.ErrNotCommitted, errCut)
		}
	})
	for i, r := range l.Append(t, group()...) {
		if r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 {
			t.Errorf("%d: %v, and nothing was committed", i, r)
		}
	}
	rs := l.Append(t, group()...)
	for i, want := range []struct {
		seq       uint64
		duplicate bool
	}{{1, false}, {1, true}, {1, false}, {1, true}, {2, false}, {0, false}, {0, true}} {
		r := rs[i]
		if r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != want.seq || r.GetDuplicate() != want.duplicate || r.GetScheduled() != (i > 4) {
			t.Errorf("%d: %v, want seq %d, duplicate %v", i, r, want.seq, want.duplicate)
		}
	}
	if got := l.Bodies(t, "room/1"); len(got) != 1 {
		t.Errorf("%d messages are in the log", len(got))
	}
}

// A number that is repeated is answered with the very message that it got, however many others came
// since, and whichever of its group it was.
func TestARepeatedNumberIsFoundFarBack(t *testing.T) {
	l, _ := start(t)
	const batch, n = 1000, 6000
	first := map[uint64]*meshv1.AppendResult{}
	for seq := uint64(1); seq <= n; {
		var items []*meshv1.AppendItem
		for range batch {
			items = append(items, number(1, "room/1", seq), backendtest.Item("room/1", "of another"))
			seq++
		}
		for i, r := range l.Append(t, items...) {
			if r.GetCode() != wirev1.Code_CODE_OK {
				t.Fatal(r)
			}
			if i%2 == 0 {
				first[items[i].GetProducerSeq()] = r
			}
		}
	}
	for _, seq := range []uint64{n, n - 1, n - 700, n / 2, n - 4000, n - 4090} {
		// of 8,192 messages
		r := l.Append(t, number(1, "room/1", seq))[0]
		want := first[seq]
		if !r.GetDuplicate() || r.GetSeq() != want.GetSeq() || string(r.GetMessageId()) != string(want.GetMessageId()) || r.GetPublishedAt() != want.GetPublishedAt() {
			t.Errorf("number %d: %v, want %v", seq, r, want)
		}
	}
	if r := l.Append(t, number(1, "room/1", 1))[0]; !r.GetDuplicate() || r.GetSeq() != 0 {
		t.Errorf("further back nobody looks: %v", r)
	}
	if r := l.Append(t, number(1, "room/1", n+1))[0]; r.GetDuplicate() || r.GetSeq() != 2*n+1 {
		t.Errorf("the next: %v", r)
	}
}

// asking counts questions for what is retained, and may say that its database is away, or have two.
type asking struct {
	backend.Backend
	asked atomic.Int64
	away  atomic.Pointer[error]
}

func (a *asking) Oldest(ctx context.Context, qs []backend.OldestQuestion) ([]backend.OldestAnswer, error) {
	a.asked.Add(int64(len(qs)))
	return a.Backend.Oldest(ctx, qs)
}

func (a *asking) Away() error {
	if why := a.away.Load(); why != nil {
		return *why
	}
	return a.Backend.Away()
}

// Heads are answered from memory: the database is asked for what is retained once after a takeover
// and once as the retention passes, and not again and again.
func TestHeadsAreAnsweredFromMemory(t *testing.T) {
	db, clock := database(t), backendtest.NewClock()
	var a *asking
	var l *backendtest.Log
	open := func() {
		a = &asking{Backend: db(t)}
		l = backendtest.OpenLog(t, a, me, 1, clock.Now)
		l.WaitReady(t)
	}
	heads := func(what string, asked int64, oldest uint64) {
		t.Helper()
		a.asked.Store(0)
		for range 3 {
			all, err := l.Heads(t.Context(), []string{"room/1"}, nil, 0)
			need(t, err)
			if all[0].GetOldest() != oldest || all[0].GetHead() == 0 && oldest > 1 {
				t.Errorf("%s: %v, want oldest %d", what, all[0], oldest)
			}
		}
		if got := a.asked.Load(); got != asked {
			t.Errorf("%s: the database is asked %d times, want %d", what, got, asked)
		}
	}
	open()
	heads("nothing was published", 0, 1)
	l.Append(t, backendtest.Item("room/1", "1"))
	clock.Add(12 * time.Hour)
	l.Append(t, backendtest.Item("room/1", "2"))
	heads("all is retained", 0, 1)
	clock.Add(13 * time.Hour)
	heads("the first is not retained any more", 1, 2)
	l.Close(t)
	need(t, a.Close())
	open()
	heads("another store took over", 1, 2)
	clock.Add(24 * time.Hour)
	heads("nothing is retained", 1, 3)
	l.Append(t, backendtest.Item("room/1", "3"))
	heads("something is again", 0, 3)
	if err := l.Read(t.Context(), "room/1", 0, 1, 100, func(p shardlog.Position) error {
		if p.Head != 3 || p.Oldest != 3 {
			t.Errorf("read at %+v", p)
		}
		return nil
	}, func(seq uint64, r *run.Record) bool {
		if seq != 3 || string(r.Body) == "" {
			t.Errorf("read %d", seq)
		}
		return true
	}); err != nil {
		t.Error(err)
	}
}

// After a restore topics begin anew under the new epoch: nothing of before is in their heads, and a
// reader that asks under the old one is told.
func TestANewEpochBeginsEveryTopicAnew(t *testing.T) {
	db := database(t)
	b := db(t)
	l := backendtest.OpenLog(t, b, me, 1, backendtest.NewClock().Now)
	l.WaitReady(t)
	before := l.Append(t, backendtest.Item("room/1", "1"), backendtest.Item("room/1", "2"), backendtest.Item("room/2", "1"), number(1, "room/3", 1))
	l.Close(t)
	epoch := before[0].GetEpoch() + 5
	need(t, b.NewEpoch(t.Context(), epoch))
	need(t, b.Close())
	b = db(t)
	l = backendtest.OpenLog(t, b, me, 1, backendtest.NewClock().Now)
	l.WaitReady(t)
	expect := func(name string, head uint64) {
		t.Helper()
		heads, err := l.Heads(t.Context(), []string{name}, nil, 0)
		need(t, err)
		if h := heads[0]; h.GetEpoch() != epoch || h.GetHead() != head || h.GetOldest() != 1 {
			t.Errorf("%v, want head %d under epoch %d", h, head, epoch)
		}
	}
	expect("room/1", 0)
	if r := l.Append(t, backendtest.Item("room/1", "3"))[0]; r.GetSeq() != 1 || r.GetEpoch() != epoch {
		t.Errorf("the first: %v", r)
	}
	expect("room/1", 1)
	expect("room/2", 0)
	err := l.Read(t.Context(), "room/1", before[0].GetEpoch(), 1, 0, func(shardlog.Position) error { return nil }, func(uint64, *run.Record) bool { return true })
	if code.Of(err) != wirev1.Code_CODE_EPOCH_CHANGED {
		t.Errorf("under the old epoch: %v", err)
	}
	if got := l.Bodies(t, "room/1"); !slices.Equal(got, []string{"3"}) {
		t.Errorf("under the new one: %q", got)
	}
}

// What a backend says of itself is the refusal; what was refused so is taken once it is well.
func TestABackendThatIsAwaySaysSo(t *testing.T) {
	a := &asking{Backend: open(t)}
	l := backendtest.OpenLog(t, a, me, 1, backendtest.NewClock().Now)
	l.WaitReady(t)
	var why error = code.Retry(wirev1.Code_CODE_UNAVAILABLE, 7*time.Second, "the disk is full")
	a.away.Store(&why)
	if r := l.Append(t, backendtest.Item("room/1", "x"))[0]; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() != 7000 || r.GetError() != "the disk is full" {
		t.Errorf("%v", r)
	}
	a.away.Store(nil)
	if r := l.Append(t, backendtest.Item("room/1", "x"))[0]; r.GetSeq() != 1 {
		t.Errorf("%v", r)
	}
}

// pair is two databases, of the even and the odd shards; one shard is on the move.
type pair struct {
	backend.Backend
	all   []backend.Log
	moves int
}

func (p *pair) Databases() []backend.Log { return p.all }

func (p *pair) Place(shard int) int {
	if shard == p.moves {
		return -1
	}
	return shard % 2
}

func (p *pair) Move(context.Context, []int, int) error { return nil }

// Each shard is in its database, and what one of them is missing holds up nothing in the other. A
// shard that is on the move is nobody's for that time.
func TestShardsLieInTheirDatabases(t *testing.T) {
	even, odd := &faulty{Backend: open(t)}, &faulty{Backend: open(t)}
	names := map[int]string{} // by shard
	for i := 0; len(names) < 40; i++ {
		name := fmt.Sprintf("room/%d", i)
		names[topic.Shard(name)] = name
	}
	var moves int
	for shard := range names {
		moves = shard
	}
	var wanted []int
	for _, s := range backendtest.AllShards() {
		if s != moves {
			wanted = append(wanted, s)
		}
	}
	l := backendtest.OpenLogOf(t, backendtest.AllShards(), &pair{even, []backend.Log{even, odd}, moves}, me, 2, backendtest.NewClock().Now)
	l.WaitReady(t)
	if got := l.Owned(); !slices.Equal(got, wanted) {
		t.Errorf("owns %d shards, want all but %d", len(got), moves)
	}
	for shard, name := range names {
		r := l.Append(t, backendtest.Item(name, "x"))[0]
		if want := map[bool]wirev1.Code{true: wirev1.Code_CODE_CONFLICT, false: wirev1.Code_CODE_OK}[shard == moves]; r.GetCode() != want {
			t.Errorf("shard %d: %v", shard, r)
		}
		if shard == moves {
			continue
		}
		if err := l.Sure(t.Context(), shard); err != nil || l.Ownership(shard) == 0 {
			t.Errorf("shard %d is owned: %v", shard, err)
		}
		found := 0
		for i, b := range []backend.Backend{even, odd} {
			need(t, b.ReadRuns(t.Context(), name, r.GetEpoch(), 1, 1, func(backend.Run) bool {
				found++
				if i != shard%2 {
					t.Errorf("shard %d is in database %d", shard, i)
				}
				return true
			}))
		}
		if found != 1 {
			t.Errorf("shard %d: %d runs are found", shard, found)
		}
	}
	if err := l.Owns(moves); code.Of(err) != wirev1.Code_CODE_CONFLICT {
		t.Errorf("a shard on the move: %v", err)
	}
	odd.set(func(f *faulty) { f.away = errCut })
	until(t, "the odd shards are lost", func() bool { return l.Check() != nil })
	for shard, name := range names {
		if shard == moves {
			continue
		}
		if r := l.Append(t, backendtest.Item(name, "x"))[0]; (r.GetCode() == wirev1.Code_CODE_OK) != (shard%2 == 0) {
			t.Errorf("shard %d, without the odd database: %v", shard, r)
		}
	}
}

// A shard whose log can't be read is refused, as one is that contradicts it.
func TestAShardWithABrokenRunIsRefused(t *testing.T) {
	l, f := start(t)
	l.Append(t, backendtest.Item("room/1", "x"), backendtest.Item("room/2", "x"))
	f.set(func(f *faulty) { f.away = errors.New("gone, before any checkpoint") })
	need(t, f.Fence(t.Context(), me.StoreID, me.Incarnation))
	l.Close(t)
	f.set(func(f *faulty) {
		f.away = nil
		f.load = func(into backend.Loader) backend.Loader { return breaking{into} }
	})
	l = backendtest.OpenLog(t, f, backend.Owner{StoreID: "b", Incarnation: 1}, 1, time.Now)
	until(t, "all shards but one", func() bool { return len(l.Owned()) == topic.Shards-1 })
	f.set(func(f *faulty) { f.load = nil })
	l.WaitReady(t)
	if r := l.Append(t, backendtest.Item("room/1", "x"))[0]; r.GetSeq() != 2 {
		t.Errorf("an append once it is loaded: %v", r)
	}
}

// breaking spoils what is loaded of one topic.
type breaking struct{ backend.Loader }

func (b breaking) LoadRun(r backend.Run) {
	if r.Topic == "room/1" {
		r.Packed = r.Packed[:len(r.Packed)/2]
	}
	b.Loader.LoadRun(r)
}

// What happens to a commit is counted by what is known of it, and a group's messages are.
func TestCommitsAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	l, f := start(t, func(cfg *shardlog.Config) { cfg.Metrics = shardlog.NewMetrics(reg) })
	for label, err := range map[string]error{"not_committed": backend.ErrNotCommitted, "lost": backend.ErrLost, "unknown": backend.ErrUnknown} {
		f.set(func(f *faulty) {
			f.commit = func(backend.Writer, *backend.Batch) error { return fmt.Errorf("%w: %w", err, errCut) }
		})
		l.Append(t, backendtest.Item("room/1", "x"), backendtest.Item("room/1", "x"))
		if n := counted(t, reg, "pushmesh_store_commit_failures_total", label); n != 1 {
			t.Errorf("%s: %v counted", label, n)
		}
		l.WaitReady(t)
	}
	all, err := reg.Gather()
	need(t, err)
	for _, m := range all {
		if m.GetName() == "pushmesh_store_commit_messages" {
			if h := m.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 3 || h.GetSampleSum() != 6 {
				t.Errorf("%d groups of %v messages counted", h.GetSampleCount(), h.GetSampleSum())
			}
			return
		}
	}
	t.Error("groups are not measured")
}

// A lane that hears of other shards goes for them at once, not at its next look around; and what it
// gives back it forgets.
func TestAWishIsSeenAtOnce(t *testing.T) {
	reg := prometheus.NewRegistry()
	l, _ := start(t, small(reg))
	l.Append(t, number(1, "room/1", 1), number(2, "room/2", 1))
	until(t, "positions are counted", func() bool {
		l.Append(t, number(1, "room/1", 1))
		return counted(t, reg, "pushmesh_store_producer_positions", "0") == 2
	})
	best := time.Hour
	for deadline := time.Now().Add(backendtest.Patience / 4); best > 60*time.Millisecond && time.Now().Before(deadline); {
		// the machine may be busy
		for _, wanted := range [][]int{nil, backendtest.AllShards()} {
			begun := time.Now()
			l.Want(wanted)
			poll := time.NewTicker(time.Millisecond)
			for len(l.Owned()) != len(wanted) {
				<-poll.C
			}
			poll.Stop()
			best = min(best, time.Since(begun))
		}
	}
	if best > 60*time.Millisecond {
		t.Errorf("after %s at best", best)
	}
	l.Want(nil)
	until(t, "all is given back", func() bool { return len(l.Owned()) == 0 })
	until(t, "positions are forgotten", func() bool { return counted(t, reg, "pushmesh_store_producer_positions", "0") <= 2 })
	l.Want(backendtest.AllShards())
	l.WaitReady(t)
	l.Append(t, number(1, "room/1", 2))
	if n := counted(t, reg, "pushmesh_store_producer_positions", "0"); n > 2 {
		t.Errorf("%v positions of two producers", n)
	}
}
