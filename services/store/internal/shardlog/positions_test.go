package shardlog_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
	"github.com/pushmesh/pushmesh/services/store/internal/sqlite"
)

// database is one that can be opened again.
func database(t *testing.T) backendtest.Database {
	path := filepath.Join(t.TempDir(), "store.db")
	return func(t *testing.T) backend.Backend {
		b, err := sqlite.Open(context.Background(), path)
		need(t, err)
		t.Cleanup(func() { need(t, b.Close()) })
		return b
	}
}

func number(producer byte, topic string, n uint64) *meshv1.AppendItem {
	item := backendtest.Item(topic, fmt.Sprintf("%d:%d", producer, n))
	item.ProducerId, item.ProducerSeq = bytes.Repeat([]byte{producer}, 16), n
	return item
}

// again is an item that was first sent some time ago.
func again(item *meshv1.AppendItem, since time.Duration) *meshv1.AppendItem {
	item.SentMsAgo = uint64(since.Milliseconds())
	return item
}

func small(r *prometheus.Registry) func(*shardlog.Config) {
	return func(cfg *shardlog.Config) {
		cfg.Positions, cfg.PositionWindow, cfg.Metrics = 200, 5*time.Minute, shardlog.NewMetrics(r)
	}
}

func counted(t *testing.T, r *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := r.Gather()
	need(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name {
				continue
			}
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					return m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return 0
}

// A producer that publishes to another topic each time costs the mesh nothing but what it did
// within the window: hours later its messages are taken, and so are those of a backend that starts
// anew, also after a takeover. What is sent again within the window gets its first result. Later
// nobody knows, and that is said.
func TestDistinctTopicsForHours(t *testing.T) {
	db, clock, r := database(t), backendtest.NewClock(), prometheus.NewRegistry()
	b := db(t)
	l := backendtest.OpenLog(t, b, me, 1, clock.Now, small(r))
	l.WaitReady(t)
	const pieces, each = 250, 10 // three and a half hours
	var last []*meshv1.AppendResult
	for piece := range pieces {
		var items []*meshv1.AppendItem
		for i := range each {
			items = append(items, number(1, fmt.Sprintf("user/%d/%d", piece, i), 1))
		}
		last = l.Append(t, items...)
		for _, r := range last {
			if r.GetCode() != wirev1.Code_CODE_OK {
				t.Fatalf("after %s: %v", time.Duration(piece)*50*time.Second, r)
			}
		}
		clock.Add(50 * time.Second)
	}
	check := func(newcomer byte) {
		t.Helper()
		if r := l.Append(t, number(newcomer, "room/1", 1))[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetDuplicate() {
			t.Errorf("a backend that was restarted: %v", r)
		}
		soon := fmt.Sprintf("user/%d/3", pieces-1)
		if r := l.Append(t, again(number(1, soon, 1), time.Minute))[0]; !r.GetDuplicate() || r.GetSeq() != 1 || !bytes.Equal(r.GetMessageId(), last[3].GetMessageId()) {
			t.Errorf("again within the window: %v, want the first result %v", r, last[3])
		}
		const late = "user/3/3"
		if r := l.Append(t, again(number(1, late, 1), (pieces-3)*50*time.Second))[0]; r.GetCode() != wirev1.Code_CODE_OUT_OF_ORDER || !strings.Contains(r.GetError(), "new producer_id") {
			t.Errorf("again after hours: %v, want a refusal that says what to do", r)
		}
		if got := l.Bodies(t, late); len(got) != 1 {
			t.Errorf("%s: %v", late, got)
		}
	}
	check(2)
	if held, gone := counted(t, r, "pushmesh_store_producer_positions", "0"), counted(t, r, "pushmesh_store_producer_positions_forgotten_total", "room"); held > 200 || held+gone < pieces*each {
		t.Errorf("%v positions are held and %v were forgotten, of %d", held, gone, pieces*each)
	}
	if got := counted(t, r, "pushmesh_store_producer_refusals_total", "forgotten"); got != 1 {
		t.Errorf("%v refusals are counted, want 1", got)
	}
	for i, abrupt := range []bool{false, true} {
		// with a checkpoint of everything, and with what came since the last
		if !abrupt {
			l.Close(t)
		}
		need(t, b.Close())
		l.Close(t)
		a := audit(db(t))
		b = a
		l = backendtest.OpenLog(t, a, me, 1, clock.Now, small(prometheus.NewRegistry()))
		l.WaitReady(t)
		if got := a.positions.Load(); got > 200 {
			t.Errorf("a takeover loads %d positions, most of which were forgotten", got)
		}
		check(byte(3 + i))
	}
	// Who was silent goes on with its numbers, if it says that it has the answers.
	next := number(1, "user/3/3", 2)
	if r := l.Append(t, next)[0]; r.GetCode() != wirev1.Code_CODE_OUT_OF_ORDER || !strings.Contains(r.GetError(), "settled_seq") {
		t.Errorf("the next number without more: %v", r)
	}
	next.SettledSeq = 1
	if r := l.Append(t, next)[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 2 {
		t.Errorf("the next number, all before it settled: %v", r)
	}
}

// Within the window nothing is forgotten. A producer that wants more than its share is refused, and
// told what to do; others are not, and it goes on as the window passes.
func TestAProducerBeyondItsShareHoldsUpNobody(t *testing.T) {
	clock, r := backendtest.NewClock(), prometheus.NewRegistry()
	l := backendtest.OpenLog(t, open(t), me, 1, clock.Now, small(r))
	l.WaitReady(t)
	greedy := func(n int) (taken int) {
		t.Helper()
		for i := range n {
			r := l.Append(t, number(1, fmt.Sprintf("user/%d/%d", clock.Now().UnixMicro(), i), 1))[0]
			switch r.GetCode() {
			case wirev1.Code_CODE_OK:
				taken++
			case wirev1.Code_CODE_RATE_LIMITED:
				if r.GetRetryAfterMs() == 0 || !strings.Contains(r.GetError(), "fewer topics") {
					t.Errorf("%v does not say what to do", r)
				}
			default:
				t.Fatalf("%v", r)
			}
		}
		return taken
	}
	if taken := greedy(150); taken != 100 {
		t.Errorf("%d taken, want half of all there are", taken)
	}
	if got := counted(t, r, "pushmesh_store_producer_refusals_total", "share"); got != 50 {
		t.Errorf("%v refusals are counted, want 50", got)
	}
	for producer := byte(2); producer < 40; producer++ {
		if r := l.Append(t, number(producer, "room/1", 1))[0]; r.GetCode() != wirev1.Code_CODE_OK {
			t.Fatalf("producer %d: %v", producer, r)
		}
	}
	clock.Add(5*time.Minute + time.Second)
	if taken := greedy(50); taken != 50 {
		t.Errorf("%d taken after the window, want all", taken)
	}
}

// Any number of numbers in one topic is one position; those of other topics go on beside it.
func TestNumbersOfOneTopicAreOnePosition(t *testing.T) {
	clock, r := backendtest.NewClock(), prometheus.NewRegistry()
	l := backendtest.OpenLog(t, open(t), me, 1, clock.Now, small(r))
	l.WaitReady(t)
	for n := uint64(1); n <= 100; n++ {
		clock.Add(10 * time.Second)
		if r := l.Append(t, number(1, "room/1", n))[0]; r.GetSeq() != n {
			t.Fatalf("%d: %v", n, r)
		}
	}
	if held := counted(t, r, "pushmesh_store_producer_positions", "0"); held != 1 {
		t.Errorf("%v positions, want 1", held)
	}
}

// Numbers that a producer has given up, and says so, hold up nothing; one of them that comes late
// is not published.
func TestSettledNumbersNeverCome(t *testing.T) {
	l, _ := start(t)
	if r := l.Append(t, number(1, "room/1", 1))[0]; r.GetSeq() != 1 {
		t.Fatal(r)
	}
	after := number(1, "room/1", 4)
	if r := l.Append(t, after)[0]; r.GetCode() != wirev1.Code_CODE_OUT_OF_ORDER {
		t.Errorf("2 and 3 are missing: %v", r)
	}
	after.SettledSeq = 3
	rs := l.Append(t, after, number(1, "room/1", 3), number(2, "room/1", 1))
	if rs[0].GetSeq() != 2 || !rs[1].GetDuplicate() || rs[2].GetSeq() != 3 {
		t.Errorf("%v", rs)
	}
	fresh, late := number(3, "room/2", 9), number(3, "room/2", 2)
	fresh.SettledSeq = 8
	if rs := l.Append(t, fresh, late); rs[0].GetSeq() != 1 || !rs[1].GetDuplicate() {
		t.Errorf("in one commit: %v", rs)
	}
	if got := len(l.Bodies(t, "room/1")) + len(l.Bodies(t, "room/2")); got != 4 {
		t.Errorf("%d messages, want 4", got)
	}
	after.SettledSeq = 4
	if r := l.Append(t, after)[0]; r.GetCode() != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("a number that is said to be settled: %v", r)
	}
}
