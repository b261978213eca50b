package backendtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// Of the history's log: few positions, so that they are forgotten all the time.
const (
	fewPositions  = 12
	historyWindow = 5 * time.Minute
)

// sentNumber is a number whose answer the producer has not seen.
type sentNumber struct {
	n     uint64
	since time.Time
}

// numbered is what a producer that keeps the protocol knows of a topic, and what is true of it.
type numbered struct {
	settled uint64
	pending []sentNumber
	used    time.Time         // when a number was taken last
	seqs    map[uint64]uint64 // of the numbers that were taken
}

// history is a log with producers that lose answers, and the model of what it may do: all numbers
// that were ever taken.
type history struct {
	t     *testing.T
	r     *rand.Rand
	db    Database
	clock *Clock
	b     backend.Backend
	l     *Log
	ids   [4]byte
	next  byte
	known map[string]*numbered // by producer_id and topic
	takes map[string]int       // messages by topic
}

// testOrderedHistory has ordered producers publish to more topics than the log remembers, lose
// answers, send again soon or late, and go on where they were silent, with folds, stops and crashes
// between. Nothing is in a log twice; within the window a repetition gets its first result; later
// it gets that or is refused; and what is in order is taken as long as there is room.
func testOrderedHistory(t *testing.T, db Database) {
	seed := rand.Uint64() // #nosec G404 -- printed, to run it again
	t.Logf("seed %d", seed)
	h := &history{
		t: t, r: rand.New(rand.NewPCG(seed, 3)), db: db, clock: NewClock(), // #nosec G404
		known: map[string]*numbered{}, takes: map[string]int{},
	}
	for i := range h.ids {
		h.renew(i)
	}
	h.open()
	for range 400 {
		switch dice := h.r.IntN(100); {
		case dice < 55:
			h.publish()
		case dice < 75:
			h.repeat()
		case dice < 92:
			h.clock.Add(time.Duration(h.r.Int64N(int64(historyWindow))))
		case dice < 95:
			need(t, h.b.FoldCheckpoints(within(t), []backend.Fold{backend.FoldPack, backend.FoldAll}[h.r.IntN(2)]))
		case dice < 97:
			h.l.Close(t)
			closeNow(t, h.b)
			h.open()
		default: // a crash
			closeNow(t, h.b)
			h.l.Close(t)
			h.open()
		}
	}
	for topic, n := range h.takes {
		if got := h.l.Bodies(t, topic); len(got) != n {
			t.Errorf("%s has %d messages, want %d: %v", topic, len(got), n, got)
		}
	}
	h.l.Close(t)
	closeNow(t, h.b)
}

func (h *history) open() {
	h.b = h.db(h.t)
	h.l = OpenLog(h.t, h.b, owner("a"), 1, h.clock.Now, func(cfg *shardlog.Config) {
		cfg.Positions, cfg.PositionWindow = fewPositions, historyWindow
	})
	h.l.WaitReady(h.t)
}

// renew has a producer begin again with another id.
func (h *history) renew(producer int) {
	h.next++
	h.ids[producer] = h.next
}

func (h *history) pick() (producer int, topic string, at *numbered) {
	producer, topic = h.r.IntN(len(h.ids)), fmt.Sprintf("room/%d", h.r.IntN(12))
	key := fmt.Sprint(h.ids[producer], topic)
	if h.known[key] == nil {
		h.known[key] = &numbered{seqs: map[uint64]uint64{}}
	}
	return producer, topic, h.known[key]
}

// publish sends the next number; the answer may be lost.
func (h *history) publish() {
	producer, topic, at := h.pick()
	n := at.settled + uint64(len(at.pending)) + 1
	r := h.send(producer, topic, at, sentNumber{n, h.clock.Now()})
	switch c := r.GetCode(); {
	case c == wirev1.Code_CODE_RATE_LIMITED || c == wirev1.Code_CODE_OVERLOADED:
		if used := h.used(); used < fewPositions/2 {
			h.t.Fatalf("%v although only %d positions were used of late", r, used)
		}
	case c == wirev1.Code_CODE_OK && !r.GetDuplicate():
		if h.r.IntN(3) == 0 {
			at.pending = append(at.pending, sentNumber{n, h.clock.Now()})
		} else if len(at.pending) == 0 {
			at.settled = n
		} else {
			at.pending = append(at.pending, sentNumber{n, h.clock.Now()})
		}
	case c == wirev1.Code_CODE_OUT_OF_ORDER && len(at.pending) > 0:
		// what is before it may have been forgotten
	default:
		h.t.Fatalf("%s %d, new: %v", topic, n, r)
	}
}

// repeat sends what has no answer again, in order.
func (h *history) repeat() {
	producer, topic, at := h.pick()
	for len(at.pending) > 0 {
		first := at.pending[0]
		r := h.send(producer, topic, at, first)
		switch c := r.GetCode(); {
		case c == wirev1.Code_CODE_OK && r.GetDuplicate() && r.GetSeq() == at.seqs[first.n]:
			at.pending, at.settled = at.pending[1:], first.n
		case c == wirev1.Code_CODE_OUT_OF_ORDER && h.clock.Now().Sub(at.used) >= historyWindow:
			h.renew(producer)
			return
		default:
			h.t.Fatalf("%s %d again, sent %s ago, last used %s ago, seq %d: %v", topic, first.n,
				h.clock.Now().Sub(first.since), h.clock.Now().Sub(at.used), at.seqs[first.n], r)
		}
	}
}

func (h *history) send(producer int, topic string, at *numbered, s sentNumber) *meshv1.AppendResult {
	item := ordered(h.ids[producer], topic, s.n)
	item.SettledSeq, item.SentMsAgo = at.settled, uint64(h.clock.Now().Sub(s.since).Milliseconds())
	r := h.l.Append(h.t, item)[0]
	if r.GetCode() == wirev1.Code_CODE_OK && !r.GetDuplicate() {
		if at.seqs[s.n] != 0 {
			h.t.Fatalf("%s %d is published twice: at %d and %v", topic, s.n, at.seqs[s.n], r)
		}
		at.seqs[s.n], at.used = r.GetSeq(), h.clock.Now()
		h.takes[topic]++
	}
	return r
}

// used is how many positions were used within the window.
func (h *history) used() (n int) {
	for _, at := range h.known {
		if h.clock.Now().Sub(at.used) < historyWindow {
			n++
		}
	}
	return n
}
