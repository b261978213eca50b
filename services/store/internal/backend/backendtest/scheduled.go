package backendtest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func waiting(shard int, due uint64, id byte, topic string) backend.Scheduled {
	return backend.Scheduled{
		ScheduledID: backend.ScheduledID{Due: due, MessageID: [16]byte{id, 15: 1}}, Shard: shard, Topic: topic,
		PublishedAt: begin, TTL: 5, Traceparent: "tp", Body: []byte{0, id},
	}
}

// What a batch schedules is there for the next owner, up to a year ahead, in order; what a batch
// removes is gone, with that batch.
func testScheduled(t *testing.T, db Database) {
	b := db(t)
	need(t, b.MakeSlices(within(t), begin))
	w := writer(t, b, owner("a"), 1, 2, 3)
	year := after(366 * 24 * time.Hour)
	all := []backend.Scheduled{
		waiting(1, begin+5, 1, "a"), waiting(2, begin+5, 2, "b"), waiting(1, begin+6, 0, "a"), waiting(3, begin+7, 3, "c"), waiting(1, year, 9, "a"),
	}
	batch := &backend.Batch{ID: batchID(), At: begin, Commits: []backend.Commit{{Shard: 1, Number: 1}, {Shard: 2, Number: 1}, {Shard: 3, Number: 1}}, Scheduled: all}
	need(t, w.Commit(within(t), batch))
	closeNow(t, b)
	b = db(t)
	read := func(shards []int, from backend.ScheduledID, to uint64, limit int) []backend.Scheduled {
		page, err := b.ReadScheduled(within(t), shards, from, to, limit)
		need(t, err)
		return page
	}
	same := func(what string, got, want []backend.Scheduled) {
		t.Helper()
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	every := []int{1, 2, 3}
	same("all", read(every, backend.ScheduledID{}, year, 10), all)
	same("shards", read([]int{1, 3}, backend.ScheduledID{}, year, 10), []backend.Scheduled{all[0], all[2], all[3], all[4]})
	same("due so far", read(every, backend.ScheduledID{}, begin+5, 10), all[:2])
	same("a page", read(every, all[0].ScheduledID, year, 2), all[1:3])
	same("none", read(every, all[4].ScheduledID, year, 10), nil)
	found, err := b.FindScheduled(within(t), all[4].MessageID)
	need(t, err)
	want := all[4]
	want.Body = nil
	same("found", []backend.Scheduled{found}, []backend.Scheduled{want})
	if _, err := b.FindScheduled(within(t), [16]byte{77}); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("unknown id: %v, want ErrNotFound", err)
	}
	w = writer(t, b, owner("b"), 1, 2)
	gone := &backend.Batch{
		ID: batchID(), At: begin + 1, Commits: []backend.Commit{{Shard: 1, Number: 2}},
		Removed: []backend.ScheduledID{all[0].ScheduledID, all[4].ScheduledID, {Due: begin + 5, MessageID: [16]byte{88}}},
	}
	need(t, w.Commit(within(t), gone))
	same("after the removal", read(every, backend.ScheduledID{}, year, 10), all[1:4])
	// A batch that is refused takes nothing away and brings nothing.
	refused := &backend.Batch{
		ID: batchID(), At: begin + 2, Commits: []backend.Commit{{Shard: 3, Number: 2}},
		Scheduled: []backend.Scheduled{waiting(3, begin+9, 7, "c")}, Removed: []backend.ScheduledID{all[3].ScheduledID},
	}
	if err := w.Commit(within(t), refused); !errors.Is(err, backend.ErrLost) {
		t.Errorf("commit into another's shard: %v, want ErrLost", err)
	}
	same("after the refusal", read(every, backend.ScheduledID{}, year, 10), all[1:4])
}

// What was not delivered in time is kept, however late it gets.
func testScheduledSlices(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	need(t, b.MakeSlices(within(t), begin))
	w := writer(t, b, owner("a"), 1)
	late := waiting(1, begin+5, 1, "a")
	need(t, w.Commit(within(t), &backend.Batch{ID: batchID(), At: begin, Commits: []backend.Commit{{Shard: 1, Number: 1}}, Scheduled: []backend.Scheduled{late}}))
	muchLater := after(60 * 24 * time.Hour)
	drop := func() {
		for {
			n, err := b.DropSlices(within(t), muchLater)
			need(t, err)
			if n == 0 {
				return
			}
		}
	}
	drop()
	page, err := b.ReadScheduled(within(t), []int{1}, backend.ScheduledID{}, muchLater, 10)
	need(t, err)
	if len(page) != 1 {
		t.Fatalf("%d messages are left, want the late one", len(page))
	}
	need(t, w.Commit(within(t), &backend.Batch{ID: batchID(), At: muchLater, Commits: []backend.Commit{{Shard: 1, Number: 2}}, Removed: []backend.ScheduledID{late.ScheduledID}}))
	drop()
	need(t, w.Commit(within(t), &backend.Batch{ID: batchID(), At: muchLater, Commits: []backend.Commit{{Shard: 1, Number: 3}}, Scheduled: []backend.Scheduled{waiting(1, muchLater+5, 2, "a")}}))
}
