package backendtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// keepers are namespaces with keep LAST.
func keepers(maxKept uint32) *policy.Table {
	last := func(prefix string, most uint32) *pushmeshv1.Namespace {
		return &pushmeshv1.Namespace{Prefix: prefix, Policy: &pushmeshv1.Policy{Durable: true, Keep: pushmeshv1.Keep_KEEP_LAST, MaxKept: most}}
	}
	return policy.NewTable([]*pushmeshv1.Namespace{last("state", maxKept), last("state/own", 0)})
}

func openKeepers(t *testing.T, b backend.Backend, clock *Clock, table func() *policy.Table) *Log {
	t.Helper()
	l := OpenLog(t, b, owner("a"), 2, clock.Now, func(c *shardlog.Config) { c.Policies = table })
	l.WaitReady(t)
	return l
}

// value is an item with a payload; an empty one deletes.
func value(t *testing.T, topic, payload string) *meshv1.AppendItem {
	t.Helper()
	item := Item(topic, "")
	body, err := wire.Body(&wirev1.Message{Payload: []byte(payload), PublishedAt: begin, Id: item.GetMessageId()})
	need(t, err)
	item.Body = body
	return item
}

// kept is what topics keep, by their names: as seqs, and as bodies that are read.
func (l *Log) kept(t *testing.T, topics ...string) map[string]uint64 {
	t.Helper()
	heads, err := l.Heads(within(t), topics, nil, 0)
	need(t, err)
	all := map[string]uint64{}
	for _, h := range heads {
		if h.GetKept() > 0 {
			all[h.GetTopic()] = h.GetKept()
		}
	}
	return all
}

// keptBody reads what a topic keeps from the log, as an edge does.
func (l *Log) keptBody(t *testing.T, topic string, seq uint64) string {
	t.Helper()
	var got []string
	need(t, l.Read(within(t), topic, 0, seq, 0, func(shardlog.Position) error { return nil }, func(at uint64, r *run.Record) bool {
		if at != seq {
			t.Errorf("%s: seq %d was read, want %d", topic, at, seq)
		}
		got = append(got, string(r.Body))
		return true
	}))
	if len(got) != 1 {
		t.Fatalf("%s: %d messages from seq %d on, want the one that is kept", topic, len(got), seq)
	}
	return got[0]
}

func testLogKeeps(t *testing.T, db Database) {
	b, clock := db(t), NewClock()
	defer closeNow(t, b)
	table := keepers(0)
	l := openKeepers(t, b, clock, func() *policy.Table { return table })
	a, c, room := "state/a", "state/c", "room/1"
	wantOK(t, l.Append(t, value(t, a, "1"), value(t, a, "2"), value(t, c, "1"), value(t, room, "1"))...)
	if diff := cmp.Diff(map[string]uint64{a: 2, c: 1}, l.kept(t, a, c, room, "state/none")); diff != "" {
		t.Error(diff)
	}
	wantOK(t, l.Append(t, value(t, c, ""), value(t, a, ""), value(t, a, "4"))...)
	if diff := cmp.Diff(map[string]uint64{a: 4}, l.kept(t, a, c, room)); diff != "" {
		t.Errorf("after one was deleted: %s", diff)
	}
	if n := len(l.Bodies(t, c)); n != 2 {
		t.Errorf("the log has %d messages of the topic, want the value and its deletion", n)
	}
	if k, err := b.Kept(within(t), a); err != nil || k.Seq != 4 || k.Packed == nil {
		t.Errorf("the database keeps %+v, %v", k, err)
	}
	if _, err := b.Kept(within(t), c); err == nil {
		t.Error("what was deleted is still in the database")
	}
}

// What is kept stays when nothing else of the topic does, and can be read like the rest of a log.
func testKeepsBeyondRetention(t *testing.T, db Database) {
	b, clock := db(t), NewClock()
	table := keepers(0)
	l := openKeepers(t, b, clock, func() *policy.Table { return table })
	last := value(t, "state/a", "3")
	wantOK(t, l.Append(t, value(t, "state/a", "1"), value(t, "state/a", "2"), last, value(t, "state/gone", "1"), value(t, "state/gone", ""))...)
	clock.Add(10 * 24 * time.Hour)
	check := func(when string) {
		t.Helper()
		heads, err := l.Heads(within(t), nil, []string{"state/#"}, 0)
		need(t, err)
		slices.SortFunc(heads, func(x, y *meshv1.Head) int { return int(x.GetHead()) - int(y.GetHead()) })
		if len(heads) != 2 || heads[1].GetKept() != 3 || heads[1].GetOldest() != 3 || heads[0].GetKept() != 0 || heads[0].GetOldest() != 3 {
			t.Fatalf("%s: %v", when, heads)
		}
		if seqs, at, err := readSeqs(t, l, "state/a", 0, 1, 0, 9); err != nil || !slices.Equal(seqs, []uint64{3}) || at.Oldest != 3 {
			t.Fatalf("%s: %v was read, %+v, %v", when, seqs, at, err)
		}
		if got := l.keptBody(t, "state/a", 3); got != string(last.GetBody()) {
			t.Fatalf("%s: body %q", when, got)
		}
	}
	check("past the retention")
	for {
		dropped, err := b.DropSlices(within(t), uint64(clock.Now().UnixMicro()))
		need(t, err)
		if dropped == 0 {
			break
		}
	}
	check("without its slice")
	l.Close(t)
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	l = openKeepers(t, b, clock, func() *policy.Table { return table })
	check("after a reopen")
	r := l.Append(t, value(t, "state/a", ""))[0]
	if wantOK(t, r); r.GetSeq() != 4 || len(l.kept(t, "state/a")) != 0 {
		t.Errorf("deleted by seq %d, and kept: %v", r.GetSeq(), l.kept(t, "state/a"))
	}
}

// Whatever is published, deleted and taken over in between: a topic keeps the newest message with a
// payload, unless one without came after it.
func testKeepsReopen(t *testing.T, db Database) {
	b, clock := db(t), NewClock()
	table := keepers(0)
	l := openKeepers(t, b, clock, func() *policy.Table { return table })
	random := rand.New(rand.NewPCG(77, 77))
	topics := []string{"state/a", "state/b", "state/b/c", "state/own/d", "room/1"}
	want, heads, bodies := map[string]uint64{}, map[string]uint64{}, map[string]string{}
	for step := range 40 {
		var items []*meshv1.AppendItem
		for range 1 + random.IntN(6) {
			payload := ""
			if random.IntN(3) > 0 {
				payload = fmt.Sprint(step, random.Uint64())
			}
			item := value(t, topics[random.IntN(len(topics))], payload)
			items = append(items, item)
			name := item.GetTopic()
			heads[name]++
			if delete(want, name); payload != "" && name != "room/1" {
				want[name], bodies[name] = heads[name], string(item.GetBody())
			}
		}
		wantOK(t, l.Append(t, items...)...)
		switch random.IntN(8) {
		case 0:
			clock.Add(time.Duration(random.IntN(50)) * time.Hour)
		case 1:
			l.Close(t)
			l = openKeepers(t, b, clock, func() *policy.Table { return table })
		}
		if diff := cmp.Diff(want, l.kept(t, topics...)); diff != "" {
			t.Fatalf("step %d: %s", step, diff)
		}
		for name, seq := range want {
			if got := l.keptBody(t, name, seq); got != bodies[name] {
				t.Fatalf("step %d: %s keeps %q, want %q", step, name, got, bodies[name])
			}
		}
	}
	l.Close(t)
	closeNow(t, b)
}

// A namespace that keeps nothing any more, and a message that has expired, leave nothing behind.
func testKeepsNoMore(t *testing.T, db Database) {
	b, clock := db(t), NewClock()
	defer closeNow(t, b)
	var table atomic.Pointer[policy.Table]
	table.Store(keepers(0))
	l := openKeepers(t, b, clock, table.Load)
	short := value(t, "state/short", "1")
	short.ExpiresAt = uint64(clock.Now().Add(time.Hour).UnixMicro())
	wantOK(t, l.Append(t, value(t, "state/a", "1"), short)...)
	if n := len(l.kept(t, "state/a", "state/short")); n != 2 {
		t.Fatalf("%d are kept", n)
	}
	clock.Add(2 * time.Hour)
	if diff := cmp.Diff(map[string]uint64{"state/a": 1}, l.kept(t, "state/a", "state/short")); diff != "" {
		t.Errorf("one has expired: %s", diff)
	}
	wantNoRow(t, b, "state/short")
	table.Store(policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "state", Policy: &pushmeshv1.Policy{Durable: true}}}))
	if n := len(l.kept(t, "state/a")); n != 0 {
		t.Errorf("%d are kept in a namespace that keeps none", n)
	}
	wantNoRow(t, b, "state/a")
	table.Store(keepers(0))
	// the lane notes it right after the database has
	for ctx := within(t); len(l.kept(t, "state/a")) != 0; {
		if ctx.Err() != nil {
			t.Fatal("what was let go is back")
		}
	}
}

// Nothing that topics keep is deleted because this version does not understand their namespace, or
// by a clock that is in doubt.
func testKeptInDoubt(t *testing.T, db Database) {
	b, clock := db(t), NewClock()
	defer closeNow(t, b)
	last := &pushmeshv1.Policy{Durable: true, Keep: pushmeshv1.Keep_KEEP_LAST}
	namespaces := func(notUnderstood string, gone *pushmeshv1.Policy) *policy.Table {
		return policy.NewTable([]*pushmeshv1.Namespace{
			{Prefix: "state", Policy: last, NotUnderstood: notUnderstood}, {Prefix: "short", Policy: last}, {Prefix: "gone", Policy: gone},
		})
	}
	var table atomic.Pointer[policy.Table]
	var doubt atomic.Bool
	table.Store(namespaces("", last))
	l := OpenLog(t, b, owner("a"), 2, clock.Now, func(c *shardlog.Config) {
		c.Policies = table.Load
		c.Ages = func() error {
			if doubt.Load() {
				return errors.New("nobody knows")
			}
			return nil
		}
	})
	l.WaitReady(t)
	const topics = 10 // of each, some in each lane
	var state, short, gone []string
	for i := range topics {
		state, short, gone = append(state, fmt.Sprint("state/", i)), append(short, fmt.Sprint("short/", i)), append(gone, fmt.Sprint("gone/", i))
		expires := value(t, short[i], "x")
		expires.ExpiresAt = uint64(clock.Now().Add(time.Hour).UnixMicro())
		wantOK(t, l.Append(t, value(t, state[i], "x"), expires, value(t, gone[i], "x"))...)
	}
	doubt.Store(true)
	clock.Add(2 * time.Hour)
	table.Store(namespaces("a rule of a newer version", &pushmeshv1.Policy{Durable: true}))
	for _, name := range gone { // whoever looked at these has looked at the others as well
		wantNoRow(t, b, name)
	}
	for _, name := range slices.Concat(state, short) {
		if _, err := b.Kept(within(t), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(l.kept(t, short...)); n != topics {
		t.Errorf("%d of %d topics keep a message that has expired by a clock in doubt", n, topics)
	}
	table.Store(namespaces("", last))
	doubt.Store(false)
	for _, name := range short {
		wantNoRow(t, b, name)
	}
	if n := len(l.kept(t, state...)); n != topics {
		t.Errorf("%d of %d topics keep a message once their namespace is understood again", n, topics)
	}
}

// wantNoRow waits until the database keeps nothing of a topic.
func wantNoRow(t *testing.T, b backend.Backend, name string) {
	t.Helper()
	ctx := within(t)
	for {
		_, err := b.Kept(ctx, name)
		switch {
		case errors.Is(err, backend.ErrNotFound):
			return
		case err != nil:
			t.Fatalf("%s is still in the database: %v", name, err)
		}
		// the lane looks after it with its next tick
	}
}

func testKeepsSome(t *testing.T, db Database) {
	b, clock := db(t), NewClock()
	defer closeNow(t, b)
	table := keepers(3)
	l := openKeepers(t, b, clock, func() *policy.Table { return table })
	code := func(items ...*meshv1.AppendItem) (all []wirev1.Code) {
		t.Helper()
		for _, r := range l.Append(t, items...) {
			all = append(all, r.GetCode())
		}
		return all
	}
	const ok, full = wirev1.Code_CODE_OK, wirev1.Code_CODE_TOO_MANY_TOPICS
	for i := range 3 {
		wantOK(t, l.Append(t, value(t, fmt.Sprint("state/", i), "x"), value(t, fmt.Sprint("state/own/", i), "x"))...)
	}
	for name, tt := range map[string]struct {
		item *meshv1.AppendItem
		want wirev1.Code
	}{
		"a further topic":             {value(t, "state/9", "x"), full},
		"a new value":                 {value(t, "state/1", "y"), ok},
		"nothing to be kept":          {value(t, "state/8", ""), ok},
		"a namespace under it":        {value(t, "state/own/9", "x"), ok},
		"where nothing is kept":       {value(t, "room/1", "x"), ok},
		"one that only looks like it": {value(t, "stately/1", "x"), ok},
	} {
		if got := code(tt.item)[0]; got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := code(value(t, "state/2", ""), value(t, "state/9", "x"), value(t, "state/7", "x")); got[0] != ok {
		t.Errorf("one is deleted, another comes, and a third: %v", got)
	}
	heads, _, _, err := l.ListKept(within(t), []string{"state/+"}, "", 10)
	if need(t, err); len(heads) != 3 {
		t.Errorf("%d topics keep a message, at most 3", len(heads))
	}
}

// What was kept under an earlier epoch is void, as its log is.
func testKeepsNothingOfAnEpoch(t *testing.T, db Database) {
	b, clock := db(t), NewClock()
	defer closeNow(t, b)
	table := keepers(0)
	l := openKeepers(t, b, clock, func() *policy.Table { return table })
	r := l.Append(t, value(t, "state/a", "1"))[0]
	wantOK(t, r)
	l.Close(t)
	need(t, b.NewEpoch(within(t), r.GetEpoch()+1))
	l = openKeepers(t, b, clock, func() *policy.Table { return table })
	defer l.Close(t)
	if n := len(l.kept(t, "state/a")); n != 0 {
		t.Error("a message of an earlier epoch is kept")
	}
	wantNoRow(t, b, "state/a")
	wantOK(t, l.Append(t, value(t, "state/a", "2"))...)
	if diff := cmp.Diff(map[string]uint64{"state/a": 1}, l.kept(t, "state/a")); diff != "" {
		t.Error(diff)
	}
}

func testListKept(t *testing.T, db Database) {
	b, clock := db(t), NewClock()
	defer closeNow(t, b)
	table := keepers(0)
	l := openKeepers(t, b, clock, func() *policy.Table { return table })
	want := map[string]bool{}
	var items []*meshv1.AppendItem
	for i := range 40 {
		name := fmt.Sprintf("state/%d/%d", i%4, i)
		items = append(items, value(t, name, "x"))
		if i%5 == 0 {
			items = append(items, value(t, name, ""))
		} else {
			want[name] = true
		}
	}
	wantOK(t, l.Append(t, append(items, value(t, "room/1", "x"))...)...)
	var got []string
	for after, more := "", true; more; {
		var heads []*meshv1.Head
		var err error
		heads, more, err = listKept(within(t), l, nil, after, 7)
		need(t, err)
		for _, h := range heads {
			got, after = append(got, h.GetTopic()), h.GetTopic()
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got); diff != "" {
		t.Error(diff)
	}
	heads, more, err := listKept(within(t), l, []string{"state/2/+", "state/3/#", "state/3/7"}, "state/2/6", 100)
	need(t, err)
	got = nil
	for _, h := range heads {
		got = append(got, h.GetTopic())
	}
	var some []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if name[:7] > "state/1" && name > "state/2/6" {
			some = append(some, name)
		}
	}
	if diff := cmp.Diff(some, got); diff != "" || more {
		t.Errorf("more: %t: %s", more, diff)
	}
}

// listKept asks as Heads does.
func listKept(ctx context.Context, l *Log, filters []string, after string, limit int) (heads []*meshv1.Head, more bool, err error) {
	for {
		heads, _, more, err = l.ListKept(ctx, filters, after, limit)
		if err == nil || ctx.Err() != nil {
			return heads, more, err
		}
	}
}
