package backendtest

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
	"github.com/pushmesh/pushmesh/services/store/internal/schedule"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// scheduling is a log with the schedule on top, as a store has them.
func scheduling(t *testing.T, b backend.Backend, o backend.Owner, clock *Clock) *Log {
	t.Helper()
	var s *schedule.Schedule
	var l *Log
	ready := make(chan struct{})
	l = OpenLog(t, b, o, 2, clock.Now, func(cfg *shardlog.Config) {
		cfg.Scheduled = func(all []backend.Scheduled) {
			<-ready
			s.Added(all)
		}
	})
	s = schedule.New(schedule.Config{Backend: b, Ownerships: l.Ownerships, Append: l.Log.Append, Now: clock.Now, Logger: slog.New(slog.DiscardHandler)})
	close(ready)
	need(t, s.Start(t.Context()))
	t.Cleanup(func() { need(t, s.Stop(within(t))) })
	return l
}

func later(topic, body string, at uint64) *meshv1.AppendItem {
	item := Item(topic, body)
	item.DeliverAt = at
	return item
}

// holds waits until a topic's log has n messages.
func (l *Log) holds(t *testing.T, topic string, n int) []string {
	t.Helper()
	for ctx := within(t); ; {
		heads, err := l.Heads(ctx, []string{topic}, nil, 0)
		if err == nil && heads[0].GetHead() >= uint64(n) {
			return l.Bodies(t, topic)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v, %v; want %d messages", topic, heads, err, n)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A message is kept until its time and appended then, with its TTL running from then; what is due
// is appended at once, and what was scheduled twice under one key or number is scheduled once.
func testScheduleFires(t *testing.T, db Database) {
	clock := NewClock()
	b := db(t)
	need(t, b.MakeSlices(within(t), begin))
	l := scheduling(t, b, owner("a"), clock)
	l.WaitReady(t)
	hour := later("room/1", "in an hour", after(time.Hour))
	hour.TtlUs = 1000
	year := later("room/1", "in a year", after(365*24*time.Hour))
	past := later("room/1", "past", begin)
	past.TtlUs = 7
	rs := l.Append(t, hour, year, past)
	wantOK(t, rs...)
	if !rs[0].GetScheduled() || rs[0].GetSeq() != 0 || !rs[1].GetScheduled() || rs[2].GetScheduled() || rs[2].GetSeq() != 1 {
		t.Fatalf("results: %v", rs)
	}
	keyed := later("room/2", "keyed", after(time.Hour))
	keyed.DedupeKey = "k"
	again := later("room/2", "keyed", after(2*time.Hour))
	again.DedupeKey = "k"
	numbered, repeated, next := later("room/2", "numbered", after(time.Hour)), later("room/2", "numbered", after(time.Hour)), Item("room/2", "next")
	for i, item := range []*meshv1.AppendItem{numbered, repeated, next} {
		item.ProducerId, item.ProducerSeq = make([]byte, 16), uint64(1+i/2)
	}
	rs = l.Append(t, keyed, again, numbered, repeated, next)
	wantOK(t, rs...)
	for i, first := range map[int]int{1: 0, 3: 2} {
		if !rs[i].GetDuplicate() || !rs[i].GetScheduled() || !slices.Equal(rs[i].GetMessageId(), rs[first].GetMessageId()) {
			t.Errorf("scheduled twice: %v, then %v", rs[first], rs[i])
		}
	}
	if r := l.Append(t, repeated)[0]; !r.GetDuplicate() || !slices.Equal(r.GetMessageId(), rs[2].GetMessageId()) {
		t.Errorf("scheduled again: %v, first %v", r, rs[2])
	}
	clock.Add(59 * time.Minute)
	wantOK(t, l.Append(t, Item("room/1", "before"))...)
	clock.Add(time.Minute)
	if got := l.holds(t, "room/1", 3); fmt.Sprint(got) != "[past before in an hour]" {
		t.Errorf("room/1: %q", got)
	}
	got := l.holds(t, "room/2", 3)
	slices.Sort(got)
	if fmt.Sprint(got) != "[keyed next numbered]" {
		t.Errorf("room/2: %q", got)
	}
	var expires []uint64
	need(t, l.Read(within(t), "room/1", 0, 0, 0, func(shardlog.Position) error { return nil }, func(_ uint64, r *run.Record) bool {
		expires = append(expires, r.ExpiresAt)
		return true
	}))
	if want := []uint64{begin + 7, 0, after(time.Hour) + 1000}; !slices.Equal(expires, want) {
		t.Errorf("expire at %d, want %d", expires, want)
	}
	left, err := b.ReadScheduled(within(t), AllShards(), backend.ScheduledID{}, after(1000*24*time.Hour), 10)
	need(t, err)
	if len(left) != 1 || string(left[0].Body) != "in a year" {
		t.Errorf("left in the schedule: %v", left)
	}
}

// Who takes a shard over appends what is due, also what fell due while nobody owned it, and nothing
// that was appended before.
func testScheduleTakeover(t *testing.T, db Database) {
	clock := NewClock()
	b := db(t)
	need(t, b.MakeSlices(within(t), begin))
	old := scheduling(t, b, owner("a"), clock)
	old.WaitReady(t)
	const messages = 600
	var items []*meshv1.AppendItem
	for i := range messages {
		items = append(items, later(fmt.Sprintf("room/%d", i%20), fmt.Sprint(i), after(time.Duration(1+i%3)*time.Second)))
	}
	wantOK(t, old.Append(t, items...)...)
	dedupe := Item("room/x", "dedupe")
	dedupe.DedupeKey = "k"
	wantOK(t, old.Append(t, dedupe)...)
	clock.Add(time.Second)
	old.holds(t, "room/0", 1)
	next := scheduling(t, b, owner("b"), clock)
	old.PauseTaking(true)
	need(t, b.Fence(within(t), "a", 7))
	clock.Add(time.Second)
	next.WaitReady(t)
	clock.Add(time.Second)
	seen := map[string]bool{}
	for topic := range 20 {
		for _, body := range next.holds(t, fmt.Sprintf("room/%d", topic), messages/20) {
			if seen[body] {
				t.Errorf("message %s was appended twice", body)
			}
			seen[body] = true
		}
	}
	if len(seen) != messages {
		t.Errorf("%d messages, want %d", len(seen), messages)
	}
	if r := next.Append(t, dedupe)[0]; !r.GetDuplicate() || r.GetSeq() != 1 {
		t.Errorf("a key used before the takeover: %v", r)
	}
	clock.Add(2 * time.Minute)
	if r := next.Append(t, dedupe)[0]; r.GetDuplicate() || r.GetSeq() != 2 {
		t.Errorf("the key after its window: %v", r)
	}
}

// A cancelled message is not appended, an appended one is not cancelled, and who does both at once
// gets one of the two.
func testScheduleCancel(t *testing.T, db Database) {
	clock := NewClock()
	b := db(t)
	need(t, b.MakeSlices(within(t), begin))
	l := scheduling(t, b, owner("a"), clock)
	l.WaitReady(t)
	cancel := func(item *meshv1.AppendItem) *meshv1.AppendResult {
		r, err := l.Cancel(within(t), &backend.Scheduled{
			ScheduledID: backend.ScheduledID{Due: item.GetDeliverAt(), MessageID: [16]byte(item.GetMessageId())}, Topic: item.GetTopic(),
		})
		if err != nil {
			t.Error(err)
		}
		return r
	}
	early, soon := later("room/1", "early", after(time.Second)), later("room/1", "soon", after(time.Second))
	wantOK(t, l.Append(t, early, soon)...)
	for range 2 {
		if r := cancel(early); r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 0 {
			t.Errorf("cancel: %v", r)
		}
	}
	clock.Add(time.Second)
	if got := l.holds(t, "room/1", 1); fmt.Sprint(got) != "[soon]" {
		t.Errorf("appended: %v", got)
	}
	if r := cancel(soon); r.GetSeq() != 1 {
		t.Errorf("cancel of what was appended: %v", r)
	}
	const messages = 200
	var items []*meshv1.AppendItem
	for i := range messages {
		items = append(items, later("room/2", fmt.Sprint(i), after(2*time.Second)))
	}
	wantOK(t, l.Append(t, items...)...)
	clock.Add(time.Second)
	var wg sync.WaitGroup
	cancelled := make([]bool, messages)
	for i := range messages {
		wg.Go(func() { cancelled[i] = cancel(items[i]).GetSeq() == 0 })
	}
	wg.Wait()
	left := 0
	for _, yes := range cancelled {
		if !yes {
			left++
		}
	}
	got := l.holds(t, "room/2", left)
	for i, yes := range cancelled {
		if slices.Contains(got, fmt.Sprint(i)) == yes {
			t.Errorf("message %d: cancelled %v, appended %v", i, yes, !yes)
		}
	}
	rest, err := b.ReadScheduled(within(t), AllShards(), backend.ScheduledID{}, after(time.Hour), 1000)
	need(t, err)
	if len(rest) > 0 {
		t.Errorf("%d are left in the schedule", len(rest))
	}
	t.Logf("%d of %d were cancelled", messages-left, messages)
}
