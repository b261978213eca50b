package backendtest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func keyed(topic, key string) *meshv1.AppendItem {
	item := Item(topic, "of "+key)
	item.DedupeKey = key
	return item
}

// same says that b repeats a's result as a duplicate.
func same(t *testing.T, a, b *meshv1.AppendResult) {
	t.Helper()
	wantOK(t, a, b)
	if a.GetDuplicate() || !b.GetDuplicate() || a.GetSeq() != b.GetSeq() || a.GetEpoch() != b.GetEpoch() || !bytes.Equal(a.GetMessageId(), b.GetMessageId()) ||
		a.GetPublishedAt() != b.GetPublishedAt() {
		t.Errorf("%v is no duplicate of %v", b, a)
	}
}

func testDedupe(t *testing.T, db Database) {
	clock := NewClock()
	l, _ := openLog(t, db, clock)
	first := l.Append(t, keyed("room/1", "k1"), keyed("room/1", "k2"), keyed("room/2", "k1"), keyed("room/1", "k1"))
	same(t, first[0], first[3])
	if first[1].GetSeq() != 2 || first[2].GetSeq() != 1 || first[2].GetDuplicate() {
		t.Errorf("other keys and topics: %v", first)
	}
	clock.Add(time.Minute)
	same(t, first[0], l.Append(t, keyed("room/1", "k1"))[0])
	clock.Add(time.Minute) // the window of two minutes is over
	if r := l.Append(t, keyed("room/1", "k1"))[0]; r.GetDuplicate() || r.GetSeq() != 3 {
		t.Errorf("after the window: %v", r)
	}
	if got := len(l.Bodies(t, "room/1")); got != 3 {
		t.Errorf("%d messages in the log, want 3", got)
	}
}

// The second request waits for the first, and has the same end.
func testDedupeConcurrent(t *testing.T, db Database) {
	gate := NewGate(db(t))
	l := OpenLog(t, gate, owner("a"), 1, NewClock().Now)
	l.WaitReady(t)
	one, two := NewSink(), NewSink()
	a, b := keyed("room/1", "k"), keyed("room/1", "k")
	a.Ref, b.Ref = 1, 1
	l.Log.Append([]*meshv1.AppendItem{a}, one)
	<-gate.Entered
	l.Log.Append([]*meshv1.AppendItem{b}, two)
	two.mu.Lock()
	early := len(two.by)
	two.mu.Unlock()
	if early != 0 {
		t.Error("the second request was answered before the first was committed")
	}
	gate.Leave <- fmt.Errorf("%w: by the test", backend.ErrNotCommitted)
	if r := one.Wait(t, 1); r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 {
		t.Errorf("the first, not committed: %v", r)
	}
	<-gate.Entered // now the second is the first
	c := keyed("room/1", "k")
	c.Ref = 2
	l.Log.Append([]*meshv1.AppendItem{c}, two)
	gate.Leave <- nil
	first := two.Wait(t, 1)
	same(t, first, two.Wait(t, 2))
	if first.GetSeq() != 1 {
		t.Errorf("seq %d after a commit that failed, want 1", first.GetSeq())
	}
}

func testDedupeReopen(t *testing.T, db Database) {
	clock := NewClock()
	l, b := openLog(t, db, clock)
	first := l.Append(t, keyed("room/1", "k1"), keyed("user/1/x", "k2"))
	l.Close(t)
	closeNow(t, b)
	l, _ = openLog(t, db, clock)
	again := l.Append(t, keyed("room/1", "k1"), keyed("room/1", "new"), keyed("user/1/x", "k2"), keyed("room/1", "new"))
	same(t, first[0], again[0])
	same(t, first[1], again[2])
	same(t, again[1], again[3])
}

func ordered(producer byte, topic string, n uint64) *meshv1.AppendItem {
	item := Item(topic, fmt.Sprintf("%d:%d", producer, n))
	item.ProducerId, item.ProducerSeq = bytes.Repeat([]byte{producer}, 16), n
	return item
}

func testOrdered(t *testing.T, db Database) {
	l, _ := openLog(t, db, NewClock())
	first := l.Append(t, ordered(1, "room/1", 1), ordered(2, "room/1", 1), ordered(1, "room/1", 2), ordered(1, "room/2", 1), ordered(1, "room/1", 2))
	wantOK(t, first...)
	same(t, first[2], first[4])
	again := l.Append(t, ordered(1, "room/1", 1), ordered(1, "room/1", 2), ordered(1, "room/1", 3), ordered(2, "room/1", 1))
	same(t, first[0], again[0])
	same(t, first[2], again[1])
	same(t, first[1], again[3])
	if again[2].GetSeq() != 4 {
		t.Errorf("the next one: %v", again[2])
	}
	// 5 is missing: it and all later ones are refused until it comes.
	late := l.Append(t, ordered(1, "room/1", 5), ordered(1, "room/1", 6), ordered(1, "room/2", 2), ordered(3, "room/1", 2))
	for i, want := range []wirev1.Code{wirev1.Code_CODE_OUT_OF_ORDER, wirev1.Code_CODE_OUT_OF_ORDER, wirev1.Code_CODE_OK, wirev1.Code_CODE_OUT_OF_ORDER} {
		if late[i].GetCode() != want {
			t.Errorf("late %d: %v, want %s", i, late[i], want)
		}
	}
	wantOK(t, l.Append(t, ordered(1, "room/1", 4), ordered(1, "room/1", 5), ordered(1, "room/1", 6))...)
	want := []string{"1:1", "2:1", "1:2", "1:3", "1:4", "1:5", "1:6"}
	if diff := cmp.Diff(want, l.Bodies(t, "room/1")); diff != "" {
		t.Error(diff)
	}
}

func testOrderedReopen(t *testing.T, db Database) {
	for _, abrupt := range []bool{false, true} { // with a checkpoint of everything, and without
		name := fmt.Sprintf("room/%v", abrupt)
		l, b := openLog(t, db, NewClock())
		var items []*meshv1.AppendItem
		for n := uint64(1); n <= 2500; n++ {
			items = append(items, ordered(1, name, n))
		}
		first := l.Append(t, items...)
		wantOK(t, first...)
		if !abrupt {
			l.Close(t)
		}
		closeNow(t, b)
		l.Close(t)
		l, b = openLog(t, db, NewClock())
		again := l.Append(t, ordered(1, name, 2500), ordered(1, name, 17), ordered(1, name, 2502), ordered(1, name, 2501))
		same(t, first[2499], again[0])
		same(t, first[16], again[1])
		if again[2].GetCode() != wirev1.Code_CODE_OUT_OF_ORDER {
			t.Errorf("a number too high after the reopen: %v", again[2])
		}
		if again[3].GetSeq() != 2501 || again[3].GetDuplicate() {
			t.Errorf("the next number after the reopen: %v", again[3])
		}
		l.Close(t)
		closeNow(t, b)
	}
}

// A new producer repeats, by dedupe key, what another one published: its numbers go on, and are
// known after a reopen.
func testOrderedByKey(t *testing.T, db Database) {
	l, b := openLog(t, db, NewClock())
	both := func(producer byte, n uint64, key string) *meshv1.AppendItem {
		item := ordered(producer, "room/1", n)
		item.DedupeKey = key
		return item
	}
	first := l.Append(t, both(1, 1, "k1"), both(1, 2, "k2"))
	again := l.Append(t, both(2, 1, "k1"), both(2, 2, "k2"), both(2, 3, "k3"))
	same(t, first[0], again[0])
	same(t, first[1], again[1])
	if again[2].GetSeq() != 3 || again[2].GetDuplicate() {
		t.Errorf("a new key: %v", again[2])
	}
	same(t, first[0], l.Append(t, both(3, 1, "k1"))[0])
	closeNow(t, b)
	l.Close(t)
	l, _ = openLog(t, db, NewClock())
	r := l.Append(t, both(3, 3, "k5"), both(3, 2, "k4"))
	if r[0].GetCode() != wirev1.Code_CODE_OUT_OF_ORDER || r[1].GetSeq() != 4 {
		t.Errorf("after the reopen: %v", r)
	}
	if got := len(l.Bodies(t, "room/1")); got != 4 {
		t.Errorf("%d messages, want 4", got)
	}
}

// A number that no record of the log holds (its message waits for its time, or was a duplicate by
// its key) is known to every later owner, whatever the owners in between appended and stored.
func testOrderedMarks(t *testing.T, db Database) {
	clock := NewClock()
	l, b := openLog(t, db, clock)
	need(t, b.MakeSlices(within(t), begin))
	waits := ordered(1, "room/1", 1)
	waits.DeliverAt = after(time.Hour)
	repeats := ordered(1, "room/2", 1)
	repeats.DedupeKey = "k"
	wantOK(t, l.Append(t, waits, keyed("room/2", "k"))...)
	wantOK(t, l.Append(t, repeats)...)
	closeNow(t, b) // abruptly: no checkpoint
	l.Close(t)
	for range 2 {
		l, b = openLog(t, db, clock)
		wantOK(t, l.Append(t, Item("room/1", "of another"), Item("room/2", "of another"))...)
		l.Close(t) // with a checkpoint of everything
		closeNow(t, b)
	}
	l, _ = openLog(t, db, clock)
	again := l.Append(t, ordered(1, "room/1", 1), ordered(1, "room/2", 1), ordered(1, "room/1", 2), ordered(1, "room/2", 2))
	wantOK(t, again...)
	if !again[0].GetDuplicate() || !again[1].GetDuplicate() || again[2].GetDuplicate() || again[3].GetDuplicate() {
		t.Errorf("%v", again)
	}
}
