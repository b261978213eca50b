package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// logTests are those of the log above the backend: what a store's callers see.
var logTests = []suiteTest{
	{"LogConcurrentAppenders", testConcurrentAppenders},
	{"LogGroupCommit", testGroupCommit},
	{"LogDedupe", testDedupe},
	{"LogDedupeConcurrent", testDedupeConcurrent},
	{"LogDedupeReopen", testDedupeReopen},
	{"LogOrdered", testOrdered},
	{"LogOrderedReopen", testOrderedReopen},
	{"LogOrderedDuplicateByKey", testOrderedByKey},
	{"LogOrderedMarks", testOrderedMarks},
	{"LogOrderedHistory", testOrderedHistory},
	{"LogReadRange", testReadRange},
	{"LogHeads", testHeads},
	{"LogRetention", testRetention},
	{"LogKeepsInDoubt", testKeepsInDoubt},
	{"LogTakeover", testLogTakeover},
	{"LogReopen", testLogReopen},
	{"ScheduleFires", testScheduleFires},
	{"ScheduleTakeover", testScheduleTakeover},
	{"ScheduleCancel", testScheduleCancel},
	{"LogKeeps", testLogKeeps},
	{"LogKeepsBeyondRetention", testKeepsBeyondRetention},
	{"LogKeepsReopen", testKeepsReopen},
	{"LogKeepsNoMore", testKeepsNoMore},
	{"LogKeptInDoubt", testKeptInDoubt},
	{"LogKeepsSome", testKeepsSome},
	{"LogKeepsNothingOfAnEpoch", testKeepsNothingOfAnEpoch},
	{"LogListKept", testListKept},
	{"LettersAreReplayed", testLettersAreReplayed},
	{"LettersAreCopied", testLettersAreCopied},
	{"LettersAreMarkedLater", testLettersAreMarkedLater},
}

func openLog(t *testing.T, db Database, clock *Clock) (*Log, backend.Backend) {
	t.Helper()
	b := db(t)
	l := OpenLog(t, b, owner("a"), 2, clock.Now)
	l.WaitReady(t)
	return l, b
}

func testConcurrentAppenders(t *testing.T, db Database) {
	l, _ := openLog(t, db, NewClock())
	const callers, each = 8, 100
	topics := []string{"room/1", "room/2", "room/3"}
	seen := map[string][]string{} // by topic, bodies in order of seq
	var mu sync.Mutex
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			s := NewSink()
			for i := range each {
				item := Item(topics[i%len(topics)], fmt.Sprintf("%d/%d", c, i))
				item.Ref = uint64(i) + 1
				l.Log.Append([]*meshv1.AppendItem{item}, s)
			}
			last := map[string]uint64{}
			for i := range each {
				r := s.Wait(t, uint64(i)+1)
				if r.GetCode() != wirev1.Code_CODE_OK {
					t.Errorf("%v", r)
					return
				}
				topic := topics[i%len(topics)]
				if r.GetSeq() <= last[topic] {
					t.Errorf("caller %d: seq %d after %d in %s", c, r.GetSeq(), last[topic], topic)
				}
				last[topic] = r.GetSeq()
				mu.Lock()
				for len(seen[topic]) < int(r.GetSeq()) {
					seen[topic] = append(seen[topic], "")
				}
				seen[topic][r.GetSeq()-1] = fmt.Sprintf("%d/%d", c, i)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	total := 0
	for _, topic := range topics {
		if diff := cmp.Diff(seen[topic], l.Bodies(t, topic)); diff != "" {
			t.Errorf("%s: what was answered and what is in the log differ: %s", topic, diff)
		}
		total += len(seen[topic])
	}
	if total != callers*each {
		t.Errorf("%d messages, want %d", total, callers*each)
	}
}

func testGroupCommit(t *testing.T, db Database) {
	gate := NewGate(db(t))
	l := OpenLog(t, gate, owner("a"), 1, NewClock().Now)
	l.WaitReady(t)
	s := NewSink()
	put := func(ref uint64) {
		item := Item(fmt.Sprintf("room/%d", ref%7), "x")
		item.Ref = ref
		l.Log.Append([]*meshv1.AppendItem{item}, s)
	}
	put(1)
	if n := <-gate.Entered; n != 1 {
		t.Fatalf("an idle log waits for company: %d messages in the first commit", n)
	}
	for ref := uint64(2); ref <= 101; ref++ {
		put(ref)
	}
	gate.Leave <- nil
	if n := <-gate.Entered; n != 100 {
		t.Errorf("the second commit has %d messages, want the 100 that gathered", n)
	}
	gate.Leave <- nil
	for ref := uint64(1); ref <= 101; ref++ {
		wantOK(t, s.Wait(t, ref))
	}
}

func readSeqs(t *testing.T, l *Log, topic string, epoch, from, to uint64, most int) (seqs []uint64, p shardlog.Position, err error) {
	t.Helper()
	err = l.Read(within(t), topic, epoch, from, to, func(at shardlog.Position) error { p = at; return nil }, func(seq uint64, _ *run.Record) bool {
		seqs = append(seqs, seq)
		return len(seqs) < most
	})
	return seqs, p, err
}

func testReadRange(t *testing.T, db Database) {
	l, _ := openLog(t, db, NewClock())
	for range 10 {
		var items []*meshv1.AppendItem
		for range 10 {
			items = append(items, Item("room/1", strings.Repeat("x", 100)))
		}
		wantOK(t, l.Append(t, items...)...)
	}
	for _, c := range []struct {
		from, to    uint64
		most        int
		first, last uint64
	}{{0, 0, 999, 1, 100}, {15, 25, 999, 15, 25}, {95, 0, 999, 95, 100}, {15, 90, 3, 15, 17}, {100, 200, 999, 100, 100}, {101, 0, 999, 0, 0}} {
		seqs, p, err := readSeqs(t, l, "room/1", 0, c.from, c.to, c.most)
		need(t, err)
		var want []uint64
		for s := c.first; s > 0 && s <= c.last; s++ {
			want = append(want, s)
		}
		if !slices.Equal(seqs, want) || p.Head != 100 || p.Oldest != 1 {
			t.Errorf("%+v: %v, position %+v", c, seqs, p)
		}
	}
	_, p, err := readSeqs(t, l, "room/2", 0, 0, 0, 9)
	if err != nil || p.Head != 0 || p.Epoch == 0 {
		t.Errorf("a topic nobody published to: %+v %v", p, err)
	}
	if _, _, err := readSeqs(t, l, "room/1", p.Epoch+1, 0, 0, 9); code.Of(err) != wirev1.Code_CODE_EPOCH_CHANGED {
		t.Errorf("an epoch that is gone: %v", err)
	}
	if _, _, err := readSeqs(t, l, "room//1", 0, 0, 0, 9); code.Of(err) != wirev1.Code_CODE_BAD_TOPIC {
		t.Errorf("a bad topic: %v", err)
	}
}

func testHeads(t *testing.T, db Database) {
	l, _ := openLog(t, db, NewClock())
	for topic, n := range map[string]int{"room/1": 3, "room/2": 1, "user/1/x": 2} {
		for range n {
			wantOK(t, l.Append(t, Item(topic, "x"))...)
		}
	}
	heads := func(topics, filters []string, limit int) map[string]uint64 {
		t.Helper()
		all, err := l.Heads(within(t), topics, filters, limit)
		need(t, err)
		by := map[string]uint64{}
		for _, h := range all {
			if _, twice := by[h.GetTopic()]; twice || h.GetEpoch() == 0 || h.GetOldest() != 1 {
				t.Errorf("head %v (twice: %v)", h, twice)
			}
			by[h.GetTopic()] = h.GetHead()
		}
		return by
	}
	for _, c := range []struct {
		topics, filters []string
		limit           int
		want            map[string]uint64
	}{
		{[]string{"room/1", "never"}, nil, 0, map[string]uint64{"room/1": 3, "never": 0}},
		{nil, []string{"room/#"}, 2, map[string]uint64{"room/1": 3, "room/2": 1}},
		{[]string{"room/1", "room/1"}, []string{"room/+", "+/1", "#"}, 0, map[string]uint64{"room/1": 3, "room/2": 1, "user/1/x": 2}},
		{nil, []string{"none/#"}, 0, map[string]uint64{}},
	} {
		if diff := cmp.Diff(c.want, heads(c.topics, c.filters, c.limit)); diff != "" {
			t.Errorf("%v %v: %s", c.topics, c.filters, diff)
		}
	}
	if _, err := l.Heads(within(t), nil, []string{"#"}, 2); code.Of(err) != wirev1.Code_CODE_TOO_MANY_TOPICS {
		t.Errorf("three topics, at most two: %v", err)
	}
	for ctx := within(t); ; { // as long as it takes on a machine that stands still now and then
		_, shards, err := l.Survey(ctx, nil, []string{"room/#"}, 0)
		if err == nil && shards.Full() {
			break
		}
		if err != nil || ctx.Err() != nil {
			t.Fatalf("everything is owned here: %v, %v", shards, err)
		}
	}
	if _, err := l.Heads(within(t), nil, []string{"a/#/b"}, 0); code.Of(err) != wirev1.Code_CODE_BAD_TOPIC {
		t.Errorf("a bad filter: %v", err)
	}
}

// Retention is logical: what is too old is not had any more, whether its slice is there or not; the
// head stays.
func testRetention(t *testing.T, db Database) {
	clock := NewClock()
	l, b := openLog(t, db, clock)
	oldest := func() uint64 {
		t.Helper()
		all, err := l.Heads(within(t), []string{"room/1"}, nil, 0)
		need(t, err)
		if all[0].GetHead() != 3 {
			t.Errorf("head %d", all[0].GetHead())
		}
		return all[0].GetOldest()
	}
	for range 3 {
		wantOK(t, l.Append(t, Item("room/1", "x"))...)
		clock.Add(8 * time.Hour)
	}
	if got := oldest(); got != 1 { // 24, 16 and 8 hours old; rooms keep 24
		t.Errorf("oldest %d, want 1", got)
	}
	clock.Add(time.Hour)
	if got := oldest(); got != 2 {
		t.Errorf("oldest %d, want 2", got)
	}
	if seqs, _, err := readSeqs(t, l, "room/1", 0, 1, 0, 9); err != nil || !slices.Equal(seqs, []uint64{2, 3}) {
		t.Errorf("read %v %v", seqs, err)
	}
	clock.Add(48 * time.Hour)
	if got := oldest(); got != 4 {
		t.Errorf("oldest %d, want 4: none is retained", got)
	}
	l.Close(t)
	if _, err := b.DropSlices(within(t), uint64(clock.Now().UnixMicro())); err != nil {
		t.Fatal(err)
	}
	closeNow(t, b)
	l, _ = openLog(t, db, clock)
	if got := oldest(); got != 4 {
		t.Errorf("oldest %d after a reopen, want 4", got)
	}
	if r := l.Append(t, Item("room/1", "x"))[0]; r.GetSeq() != 4 {
		t.Errorf("after everything was dropped: %v, want seq 4", r)
	}
}

// What is found too old is so for ever. So nothing is while the namespaces are not known, or the
// clock is in doubt; and nothing is taken, for its retention is decided then.
func testKeepsInDoubt(t *testing.T, db Database) {
	clock := NewClock()
	b := db(t)
	defer closeNow(t, b)
	var known, ages atomic.Bool
	doubt := func(sure *atomic.Bool) func() error {
		return func() error {
			if sure.Load() {
				return nil
			}
			return errors.New("nobody knows")
		}
	}
	long := &pushmeshv1.Namespace{Prefix: "room", Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(300 * 24 * time.Hour)}}
	tables := map[bool]*policy.Table{false: policy.NewTable(nil), true: policy.NewTable([]*pushmeshv1.Namespace{long})}
	l := OpenLog(t, b, owner("a"), 2, clock.Now, func(c *shardlog.Config) {
		c.Policies, c.Known, c.Ages = func() *policy.Table { return tables[known.Load()] }, doubt(&known), doubt(&ages)
	})
	wantOldest := func(when string, want uint64) {
		t.Helper()
		all, err := l.Heads(within(t), []string{"room/1"}, nil, 0)
		need(t, err)
		if got := all[0].GetOldest(); got != want {
			t.Errorf("%s: oldest %d, want %d", when, got, want)
		}
	}
	l.WaitReady(t)
	early, sink := Item("room/1", "x"), NewSink()
	l.Log.Append([]*meshv1.AppendItem{early}, sink)
	if r := sink.Wait(t, early.GetRef()); r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 || !strings.Contains(r.GetError(), "namespaces") {
		t.Errorf("taken before the namespaces are known: %v", r)
	}
	known.Store(true)
	ages.Store(true)
	wantOK(t, l.Append(t, Item("room/1", "x"), Item("room/1", "y"))...)
	clock.Add(48 * time.Hour) // the built-in table keeps rooms for 24 hours
	known.Store(false)
	wantOldest("before the namespaces are known", 1)
	known.Store(true)
	wantOldest("once they are", 1)
	clock.Add(365 * 24 * time.Hour)
	ages.Store(false)
	wantOldest("while the clock is in doubt", 1)
	ages.Store(true)
	wantOldest("once it is a year later", 3)
}

func testLogTakeover(t *testing.T, db Database) {
	b := db(t)
	clock := NewClock()
	old := OpenLog(t, b, owner("a"), 2, clock.Now)
	old.WaitReady(t)
	wantOK(t, old.Append(t, Item("room/1", "a1"), Item("room/1", "a2"))...)
	next := OpenLog(t, b, owner("b"), 2, clock.Now)
	if r := next.Append(t, Item("room/1", "x"))[0]; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("a store that waits for a shard: %v", r)
	}
	old.PauseTaking(true) // as one that can't be reached
	need(t, b.Fence(within(t), "a", 7))
	next.WaitReady(t)
	wantOK(t, next.Append(t, Item("room/1", "b1"))...)
	if r := old.Append(t, Item("room/1", "late"))[0]; r.GetCode() == wirev1.Code_CODE_OK {
		t.Errorf("the old owner appended: %v", r)
	}
	if diff := cmp.Diff([]string{"a1", "a2", "b1"}, next.Bodies(t, "room/1")); diff != "" {
		t.Error(diff)
	}
	next.Want(AllShards()[:512])
	old.Want(AllShards()[512:])
	old.PauseTaking(false)
	// The old store first has to notice what it lost.
	for ctx := within(t); ; {
		if slices.Equal(append(next.Owned(), old.Owned()...), AllShards()) {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the two own %d and %d shards", len(next.Owned()), len(old.Owned()))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func testLogReopen(t *testing.T, db Database) {
	l, b := openLog(t, db, NewClock())
	var items []*meshv1.AppendItem
	for i := range 500 {
		items = append(items, Item(fmt.Sprintf("room/%d", i%50), fmt.Sprint(i)))
	}
	first := l.Append(t, items...)
	wantOK(t, first...)
	before, err := l.Heads(within(t), nil, []string{"#"}, 0)
	need(t, err)
	closeNow(t, b) // abruptly: no checkpoint
	l.Close(t)
	l, _ = openLog(t, db, NewClock())
	after, err := l.Heads(within(t), nil, []string{"#"}, 0)
	need(t, err)
	if diff := cmp.Diff(byTopic(before), byTopic(after), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for i := range 50 {
		if got := l.Bodies(t, fmt.Sprintf("room/%d", i)); len(got) != 10 || got[9] != fmt.Sprint(450+i) {
			t.Errorf("room/%d: %v", i, got)
		}
	}
	if r := l.Append(t, Item("room/7", "next"))[0]; r.GetSeq() != 11 {
		t.Errorf("after the reopen: %v", r)
	}
}

func byTopic(hs []*meshv1.Head) map[string]*meshv1.Head {
	by := map[string]*meshv1.Head{}
	for _, h := range hs {
		by[h.GetTopic()] = h
	}
	return by
}
