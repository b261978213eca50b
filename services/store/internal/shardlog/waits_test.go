package shardlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog/heads"
)

// inBubble runs a test with a log on a database in memory that owns what it is told, by a clock
// that costs nothing.
func inBubble(t *testing.T, changes []func(*Config), f func(t *testing.T, db *memory, l *Log, reg *prometheus.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db, reg := newMemory(), prometheus.NewRegistry()
		l := newLog(db, reg, append([]func(*Config){func(cfg *Config) { cfg.Writers = 1 }}, changes...)...)
		_ = l.Start(t.Context())
		synctest.Wait()
		f(t, db, l, reg)
		db.fail(nil, nil)
		if err := l.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		db.mu.Lock()
		defer db.mu.Unlock()
		for _, what := range db.broken {
			t.Error(what)
		}
	})
}

func every() (all []int) {
	for n := range topic.Shards {
		all = append(all, n)
	}
	return all
}

// hangs has one call take so long.
func hangs(call string, d time.Duration) func(string) error {
	var once atomic.Bool
	return func(c string) error {
		if c == call && !once.Swap(true) {
			<-time.After(d)
		}
		return nil
	}
}

// A checkpoint that fails in the middle leaves nothing out of the next one, and covers nothing
// before all is stored; an append waits for a small part of it.
func TestACheckpointMayFailAnywhere(t *testing.T) {
	for _, size := range [][2]int{{600, 100}, {100, 600}, {500, 500}, {499, 2}, {700, 700}} {
		// of topics, and of those with a number
		for fails := range 4 {
			t.Run(fmt.Sprint(size, fails), func(t *testing.T) {
				inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
					l.Want(every())
					synctest.Wait()
					var items []*meshv1.AppendItem
					for i := range max(size[0], size[1]) {
						item := itemOf(fmt.Sprintf("room/%d", i%size[0]), byte(i/size[0]), 1, "")
						if i >= size[1] {
							item.ProducerSeq, item.ProducerId = 0, nil
						}
						items = append(items, item)
					}
					a := appended(l, items...)
					a.wait(t)
					for _, r := range a.all {
						if r.GetCode() != wirev1.Code_CODE_OK {
							t.Fatal(r)
						}
					}
					n := 0
					db.fail(func(c string) error {
						if c == "checkpoint" {
							if n++; n == fails {
								return errTest
							}
						}
						return nil
					}, nil)
					pass(checkpointEvery + tick) // the one that may fail
					pass(2*checkpointEvery + 10*tick)
					if n := db.uncovered(); n != 0 {
						t.Errorf("%d shards have commits that no checkpoint covers", n)
					}
					if db.largest > checkpointPart || db.largest < min(checkpointPart, size[0]+size[1]) {
						t.Errorf("a part has %d states", db.largest)
					}
				})
			})
		}
	}
}

// Many messages are reason enough for a checkpoint, however little time has passed: what a takeover
// reads stays bounded.
func TestMessagesMakeACheckpointDue(t *testing.T) {
	c := &checkpointer{begunAt: time.Unix(1000, 0)}
	for range checkpointAfter / 100 {
		if c.due(time.Unix(1001, 0)) {
			t.Fatalf("due after %d messages", c.messages)
		}
		c.noticed(100)
	}
	if !c.due(time.Unix(1001, 0)) {
		t.Errorf("not due after %d messages", c.messages)
	}
}

// What a store answers from memory was confirmed less than 1.5 s ago. Whoever asks later has the
// database asked at once, and the answer as soon as it answers, by whatever question; none within a
// second is a refusal that says to come back.
func TestAnswersFromMemoryAreConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane("0", Config{Backend: newMemory(), Metrics: NewMetrics(prometheus.NewRegistry()), Now: time.Now}, &pace{})
		l.state.shards[1] = &shard{topics: &heads.Table{}}
		if l.confirmed() {
			t.Error("confirmed before the database was asked")
		}
		l.confirm(time.Now())
		pass(confirmedFor - 1)
		if !l.confirmed() || l.sure(t.Context()) != nil {
			t.Errorf("not confirmed after %s", confirmedFor-1)
		}
		pass(1)
		if l.confirmed() {
			t.Errorf("confirmed after %s", confirmedFor)
		}
		answered := make(chan error, 2)
		ask := func() { answered <- l.sure(t.Context()) }
		go ask()
		synctest.Wait()
		if len(l.kick) != 1 || len(answered) != 0 {
			t.Errorf("the lane is woken %d times, %d are answered", len(l.kick), len(answered))
		}
		go ask()
		synctest.Wait()
		begun := time.Now()
		l.confirm(begun)
		for range 2 {
			if err := <-answered; err != nil || time.Since(begun) > 0 {
				t.Errorf("after %s: %v", time.Since(begun), err)
			}
		}
		pass(confirmedFor)
		begun = time.Now()
		if err := l.sure(t.Context()); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || time.Since(begun) != confirmPatience {
			t.Errorf("without an answer, after %s: %v", time.Since(begun), err)
		}
		delete(l.state.shards, 1)
		begun = time.Now()
		if err := l.sure(t.Context()); err != nil || time.Since(begun) > 0 {
			t.Errorf("of no shards: %v after %s", err, time.Since(begun))
		}
	})
}

// A shard is this store's for certain only while that is confirmed; by name and by filter alike a
// lane that is not sure is left out.
func TestWhoIsNotSureSaysNothing(t *testing.T) {
	inBubble(t, []func(*Config){func(cfg *Config) { cfg.Writers = 4 }}, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		const name = "room/1"
		n := topic.Shard(name)
		appended(l, itemOf(name, 0, 0, ""), itemOf("room/2", 0, 0, ""), itemOf("room/3", 0, 0, ""), itemOf("user/4", 0, 0, "")).wait(t)
		lanes := l.lanes
		hung := make(chan struct{})
		db.fail(func(c string) error {
			if c == "claim" {
				<-hung
			}
			return nil
		}, nil)
		pass(confirmedFor + tick)
		for _, other := range lanes { // all but one are confirmed by what they commit
			if other != l.lane(n) {
				other.confirm(time.Now())
			}
		}
		if err := l.Sure(t.Context(), n); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("sure of shard %d: %v", n, err)
		}
		if _, err := l.Heads(t.Context(), []string{name}, nil, 0); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("the head of %s: %v", name, err)
		}
		for _, other := range lanes {
			if other != l.lane(n) {
				other.confirm(time.Now())
			}
		}
		heads, shards, err := l.Survey(t.Context(), nil, []string{"#"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for s := range topic.Shards {
			if shards.Has(s) != (l.lane(s) != l.lane(n)) {
				t.Fatalf("shard %d is said to have been looked through: %v", s, shards.Has(s))
			}
		}
		for _, h := range heads {
			if l.lane(topic.Shard(h.GetTopic())) == l.lane(n) {
				t.Errorf("%v is told by a lane that is not sure", h)
			}
		}
		close(hung)
		synctest.Wait()
		if err := l.Sure(t.Context(), n); err != nil {
			t.Errorf("once it is confirmed: %v", err)
		}
	})
}

// While a step takes too long what waits behind it is refused at its bound, and what comes then at
// once; the step itself gets its true answer, and what comes after is taken. Steps that are slow
// one after the other refuse nothing.
func TestAStallRefusesWhatWaits(t *testing.T) {
	inBubble(t, []func(*Config){func(cfg *Config) { cfg.Stall = 0 }}, func(t *testing.T, db *memory, l *Log, reg *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		item := func() *meshv1.AppendItem { return itemOf("room/1", 0, 0, "") }
		for range 3 {
			db.fail(hangs("commit", DefaultStall-1), nil)
			first := appended(l, item())
			pass(time.Millisecond)
			behind := appended(l, item())
			if took := first.wait(t); took > DefaultStall || first.all[0].GetCode() != wirev1.Code_CODE_OK {
				t.Errorf("slow, after %s: %v", took, first.all[0])
			}
			if behind.wait(t); behind.all[0].GetCode() != wirev1.Code_CODE_OK {
				t.Errorf("behind one that is slow: %v", behind.all[0])
			}
		}
		if n := gauge(t, reg, "pushmesh_store_database_stalls_total"); n != 0 || l.Check() != nil {
			t.Errorf("%v stalls: %v", n, l.Check())
		}
		db.fail(hangs("commit", 3*time.Second), nil)
		hung := appended(l, item())
		pass(300 * time.Millisecond)
		behind := appended(l, item(), item())
		if took := behind.wait(t); took != 700*time.Millisecond || behind.all[1].GetCode() != wirev1.Code_CODE_UNAVAILABLE || behind.all[1].GetRetryAfterMs() == 0 {
			t.Errorf("behind one that hangs, after %s: %v", took, behind.all)
		}
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), "1s") {
			t.Errorf("the check says %v", err)
		}
		late := appended(l, item())
		if took := late.wait(t); took > 0 || late.all[0].GetCode() != wirev1.Code_CODE_UNAVAILABLE || late.all[0].GetRetryAfterMs() == 0 {
			t.Errorf("after %s: %v", took, late.all[0])
		}
		if n := gauge(t, reg, "pushmesh_store_queue_messages"); n != 0 {
			t.Errorf("%v wait", n)
		}
		if took := hung.wait(t); took != 2*time.Second || hung.all[0].GetCode() != wirev1.Code_CODE_OK {
			t.Errorf("what hung, after %s more: %v", took, hung.all[0])
		}
		if again := appended(l, item()); again.wait(t) > 0 || again.all[0].GetSeq() != 8 || l.Check() != nil {
			t.Errorf("afterwards: %v, %v", again.all[0], l.Check())
		}
		if n := gauge(t, reg, "pushmesh_store_database_stalls_total"); n != 1 {
			t.Errorf("%v stalls are counted", n)
		}
	})
}

// A store that holds back claims nothing, and says so, until it may; what it owns it keeps. Whoever
// waits for it to be ready does so until it is, or gives up.
func TestAStoreHoldsBack(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		if err := l.Ready(t.Context()); err != nil || l.Check() != nil {
			t.Errorf("nothing is wanted: %v, %v", err, l.Check())
		}
		l.PauseTaking(true)
		l.Want([]int{1, 2})
		pass(time.Minute)
		if len(l.Owned()) != 0 || db.calls("open") != 0 || l.Check() == nil {
			t.Errorf("owns %v, asked %v: %v", l.Owned(), db.asked, l.Check())
		}
		ready := make(chan error, 2)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ready <- l.Ready(ctx) }()
		go func() { ready <- l.Ready(t.Context()) }()
		synctest.Wait()
		if cancel(); !errors.Is(<-ready, context.Canceled) {
			t.Error("who gave up is told that all is ready")
		}
		l.PauseTaking(false)
		pass(tick)
		if err := <-ready; err != nil || !slices.Equal(l.Owned(), []int{1, 2}) || l.Check() != nil {
			t.Errorf("owns %v: %v, %v", l.Owned(), err, l.Check())
		}
		l.PauseTaking(true)
		l.Want([]int{2, 3})
		pass(tick)
		if err := l.Check(); !slices.Equal(l.Owned(), []int{2}) || err == nil || !strings.Contains(err.Error(), "owns 1 of 2") {
			t.Errorf("owns %v: %v", l.Owned(), err)
		}
		go func() { ready <- l.Ready(t.Context()) }()
		pass(tick)
		if len(ready) > 0 {
			t.Error("ready with one of two shards")
		}
		l.PauseTaking(false)
		pass(tick)
		if err := <-ready; err != nil || !slices.Equal(l.Owned(), []int{2, 3}) {
			t.Errorf("owns %v: %v", l.Owned(), err)
		}
	})
}

// A shard that a store could neither load nor give back is free for the next store that wants it:
// whatever happens between the two, no shard stays locked by a store that does not serve it, where
// nobody could publish until that store is restarted.
func TestAShardThatCouldNotBeGivenBackIsFree(t *testing.T) {
	for name, c := range map[string]struct {
		fails []string // calls
		// damage makes what is loaded contradict the log.
		damage func(db *memory)
	}{
		"it could not be loaded": {fails: []string{"load", "release"}},
		"it contradicts the log": {fails: []string{"release"}, damage: func(db *memory) {
			db.runs = append(db.runs, backend.Run{Shard: 1, Topic: "room/1", Epoch: memoryEpoch, First: 2, Commit: 1})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
				if c.damage != nil {
					c.damage(db)
				}
				db.fail(func(call string) error {
					if slices.Contains(c.fails, call) {
						return backend.ErrNotCommitted // the connection stands
					}
					return nil
				}, nil)
				l.Want([]int{1})
				pass(tick)
				l.Want(nil)
				pass(2 * tick)
				if db.calls("release") == 0 || len(l.Owned()) != 0 {
					t.Fatalf("asked %v, owns %v", db.asked, l.Owned())
				}
				db.mu.Lock()
				defer db.mu.Unlock()
				if len(db.owners) > 0 {
					t.Errorf("%d shards are still locked by a store that neither serves nor wants them", len(db.owners))
				}
			})
		})
	}
}

// A commit whose outcome is not known is asked about for five seconds; then nobody knows, and that
// is said. Meanwhile it is asked again ten times a second.
func TestAnUnknownOutcomeIsAskedForSoLong(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		a := loseOutcome(db, l, errTest)
		if took := a.wait(t); took < resolveFor || took > resolveFor+2*resolvePause || a.all[0].GetCode() != wirev1.Code_CODE_INTERNAL || a.all[1].GetCode() != wirev1.Code_CODE_OUT_OF_ORDER {
			t.Errorf("after %s: %v", took, a.all)
		}
		if n := db.calls("open"); n < 45 || n > 55 {
			t.Errorf("the database is tried %d times", n)
		}
		db.fail(nil, nil)
		pass(2 * tick)
		if err := l.Check(); err != nil {
			t.Error(err)
		}
	})
}

// loseOutcome appends one item whose commit ends without an answer, and one that is out of order,
// with the database away from then on.
func loseOutcome(db *memory, l *Log, why error) *answers {
	db.fail(func(c string) error {
		if c == "open" || c == "claim" {
			return why
		}
		return nil
	}, func(c string) error {
		if c == "commit" {
			return fmt.Errorf("%w: %w", backend.ErrUnknown, why)
		}
		return nil
	})
	return appended(l, itemOf("room/1", 0, 0, ""), itemOf("room/1", 1, 2, ""))
}

// What is said to be away is said to be so at once, with the reason, and a lane that has no
// connection tries again every tick.
func TestAwayIsSaidAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
		down := func(c string) error {
			if c == "open" || c == "claim" {
				return fmt.Errorf("%w: %w", backend.ErrLost, errTest)
			}
			return nil
		}
		db.fail(down, nil)
		l.Want(every())
		synctest.Wait()
		for range 2 {
			if err := l.Check(); err == nil || !strings.Contains(err.Error(), errTest.Error()) {
				t.Errorf("the check says %v", err)
			}
			a := appended(l, itemOf("room/1", 0, 0, ""))
			if took := a.wait(t); took > 0 || a.all[0].GetCode() != wirev1.Code_CODE_UNAVAILABLE || a.all[0].GetRetryAfterMs() != 250 || !strings.Contains(a.all[0].GetError(), errTest.Error()) {
				t.Errorf("after %s: %v", took, a.all[0])
			}
			before := db.calls("open")
			pass(10 * tick)
			if n := db.calls("open") - before; n != 10 {
				t.Errorf("%d tries in 10 ticks", n)
			}
			db.fail(nil, nil)
			pass(tick)
			if err := l.Check(); err != nil {
				t.Error(err)
			}
			if a := appended(l, itemOf("room/1", 0, 0, "")); a.wait(t) > 0 || a.all[0].GetCode() != wirev1.Code_CODE_OK {
				t.Errorf("%v", a.all[0])
			}
			db.fail(down, nil)
			db.fence()
			pass(tick)
		}
	})
}

// A number that is repeated is looked for as far back as there is a log, and no further than is
// said: each look makes an append wait.
func TestHowFarBackANumberIsLookedFor(t *testing.T) {
	for _, c := range [][2]int{{1, 1}, {searchSeqs, 1}, {searchSeqs + 1, 2}, {searchSeqs * 10, searchSteps}} {
		// messages, looks
		inBubble(t, nil, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
			l.Want(every())
			synctest.Wait()
			// published under the key: no record has the number
			first, repeated := itemOf("room/1", 0, 0, "k"), itemOf("room/1", 1, 1, "k")
			items := []*meshv1.AppendItem{first, repeated}
			for range c[0] - 2 {
				items = append(items, itemOf("room/1", 0, 0, ""))
			}
			if c[0] > 1 { // the producer's last is the last of all
				items = append(items, itemOf("room/1", 1, 2, ""))
			}
			appended(l, items...).wait(t)
			again := itemOf("room/1", 1, 1, "")
			a := appended(l, again)
			if a.wait(t); a.all[0].GetCode() != wirev1.Code_CODE_OK || !a.all[0].GetDuplicate() || a.all[0].GetSeq() != 0 {
				t.Errorf("%v", a.all[0])
			}
			if n := db.calls("read"); n != c[1] {
				t.Errorf("%d looks at a log of %d messages, want %d", n, c[0], c[1])
			}
		})
	}
}

// A lane packs one group after the other into the same memory, and keeps no body of what is
// answered.
func TestALaneUsesItsMemoryAgain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *memory, l *Log, _ *prometheus.Registry) {
		l.Want(every())
		synctest.Wait()
		with := &l.lanes[0].scratch
		for range 3 {
			before := with.packed
			appended(l, itemOf("room/1", 1, 0, ""), itemOf("room/1", 1, 0, ""), itemOf("room/2", 1, 0, "")).wait(t)
			if cap(with.packed) == 0 || len(with.packed) != 0 || cap(before) > 0 && &before[:1][0] != &with.packed[:1][0] {
				t.Errorf("packed into %d bytes of memory, %d used", cap(with.packed), len(with.packed))
			}
			for _, g := range with.growing {
				for _, r := range g.records[:cap(g.records)] {
					if r.Body != nil {
						t.Error("a body is kept")
					}
				}
			}
			if len(with.growing) != 2 {
				t.Errorf("%d topics are kept of two", len(with.growing))
			}
		}
		for range 2 {
			var large []*meshv1.AppendItem
			for range 3 {
				item := itemOf("room/1", 1, 0, "")
				item.Body = make([]byte, 3<<20)
				large = append(large, item)
			}
			appended(l, large...).wait(t)
		}
		if cap(with.packed) > maxScratch {
			t.Errorf("%d bytes are kept", cap(with.packed))
		}
	})
}

// That a message is no longer retained is noticed within ten seconds, or a twentieth of what is
// kept: until then heads are answered from memory, and then exactly.
func TestAPassedRetentionIsNoticedSoon(t *testing.T) {
	for _, c := range []struct{ keep, slack time.Duration }{{24 * time.Hour, 10 * time.Second}, {200 * time.Second, 10 * time.Second}, {100 * time.Second, 5 * time.Second}} {
		kept := policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "room", Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(c.keep)}}})
		var ahead atomic.Int64 // days of the bubble's time would be many ticks
		policies := func(cfg *Config) {
			cfg.Policies, cfg.Now = func() *policy.Table { return kept }, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		}
		inBubble(t, []func(*Config){policies}, func(t *testing.T, db *memory, l *Log, _ *prometheus.Registry) {
			l.Want(every())
			synctest.Wait()
			expect := func(after time.Duration, oldest uint64, asked int) {
				t.Helper()
				ahead.Store(int64(after))
				heads, err := l.Heads(t.Context(), []string{"room/1"}, nil, 0)
				if err != nil || heads[0].GetOldest() != oldest || db.calls("oldest") != asked {
					t.Errorf("%s kept, after %s: %v, asked %d times; want %d, %d: %v", c.keep, after, heads, db.calls("oldest"), oldest, asked, err)
				}
			}
			appended(l, itemOf("room/1", 0, 0, "")).wait(t)
			ahead.Store(int64(c.slack / 2))
			appended(l, itemOf("room/1", 0, 0, "")).wait(t)
			expect(c.keep, 1, 0)
			expect(c.keep+c.slack, 1, 0)
			expect(c.keep+c.slack+time.Microsecond, 3, 1) // the second is too old as well
			expect(c.keep+2*c.slack, 3, 1)
			appended(l, itemOf("room/1", 0, 0, "")).wait(t)
			expect(c.keep+2*c.slack+time.Second, 3, 1)
		})
	}
}
