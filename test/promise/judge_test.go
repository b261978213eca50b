package promise

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// indices of diaries
const (
	session = iota // with ACKs
	plain
	member // the first of two
)

func unlucky(id uint64) bool { return id%7 == 0 }

// kept draws a history in which every promise was kept.
func kept(t *rapid.T) *History {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)) // #nosec G404 -- rapid's
	topics := []string{"room/a", "room/b", "room/c"}
	h := &History{Log: map[string][]Stored{}, Poison: unlucky, MaxAttempts: maxAttempts}
	for id := uint64(1); id <= 60; id++ {
		topic := topics[r.IntN(len(topics))]
		at := Stored{Epoch: 7, Seq: uint64(len(h.Log[topic])) + 1, ID: id, Intact: true}
		h.Log[topic] = append(h.Log[topic], at)
		h.Published = append(h.Published, Published{ID: id, Topic: topic, Answered: r.IntN(9) > 0, Epoch: at.Epoch, Seq: at.Seq})
	}
	h.Diaries = []*Diary{
		{Name: "session", Topics: topics, Acks: true, Window: 4},
		{Name: "plain", Topics: topics},
		{Name: "a", Topics: topics, Acks: true, Window: 4, Group: "team", Sticky: true},
		{Name: "b", Topics: topics, Acks: true, Window: 4, Group: "team", Sticky: true},
	}
	w := writer{h: h, r: r, now: time.Unix(1_800_000_000, 0)}
	for _, d := range h.Diaries {
		d.Edges = []string{"edge-1"}
	}
	for _, d := range h.Diaries[:member] {
		w.connection(d, topics, d.Name)
	}
	w.connection(h.Diaries[member], topics[:1], "team")
	w.connection(h.Diaries[member+1], topics[1:], "team")
	return h
}

// writer writes diaries.
type writer struct {
	h   *History
	r   *rand.Rand
	now time.Time
}

// connection in which everything of the topics comes to one who ACKs it or, if it is unlucky,
// refuses it until it is a dead letter of whose.
func (w *writer) connection(d *Diary, topics []string, whose string) {
	note := func(e Event) {
		w.now = w.now.Add(time.Millisecond)
		e.At, e.Conn = w.now, 1
		d.Events = append(d.Events, e)
	}
	note(Event{Kind: Connected})
	for _, topic := range topics {
		for _, m := range w.h.Log[topic] {
			tell := func(kind Kind, attempt uint32) {
				note(Event{Kind: kind, Attempt: attempt, Topic: topic, Epoch: m.Epoch, Seq: m.Seq, ID: m.ID, Intact: true})
			}
			tell(Delivered, 0)
			switch {
			case !d.Acks:
			case unlucky(m.ID):
				for attempt := range uint32(maxAttempts - 1) {
					tell(Nacked, 0)
					tell(Delivered, attempt+1)
				}
				tell(Nacked, 0)
				note(Event{Kind: Skipped, Topic: topic, Epoch: m.Epoch, From: m.Seq, Seq: m.Seq, Code: wirev1.Code_CODE_ATTEMPTS_EXHAUSTED})
				w.h.Letters = append(w.h.Letters, Letter{Session: whose, Topic: topic, Epoch: m.Epoch, Seq: m.Seq, Attempts: maxAttempts})
			case w.r.IntN(5) == 0:
				tell(Delivered, 1)
				tell(Acked, 0)
			default:
				tell(Acked, 0)
			}
		}
	}
	note(Event{Kind: Ended})
}

// good is any delivery of a message that is no poison.
func good(h *History, diary int) int {
	return slices.IndexFunc(h.Diaries[diary].Events, func(e Event) bool { return e.Kind == Delivered && e.Seq > 1 && !unlucky(e.ID) })
}

// breaks says, for each promise, ways in which a history can break it.
var breaks = map[string][]func(h *History){
	Durable: {
		func(h *History) { // answered, and gone from the end of the log
			m := h.Published[len(h.Published)-1]
			h.Published[len(h.Published)-1].Answered = true
			h.Log[m.Topic] = h.Log[m.Topic][:len(h.Log[m.Topic])-1]
		},
		func(h *History) { h.Published[10].Answered, h.Published[10].Seq = true, 999 },
	},
	Once: {func(h *History) {
		log := h.Log["room/a"]
		h.Log["room/a"] = append(log, Stored{Epoch: 7, Seq: uint64(len(log)) + 1, ID: log[0].ID, Intact: true})
	}},
	Numbered: {
		func(h *History) { h.Log["room/a"] = slices.Delete(h.Log["room/a"], 1, 2) },
		func(h *History) { h.Log["room/a"][1].Epoch++ },
	},
	InOrder: {func(h *History) {
		log := h.Log["room/a"]
		log[0].ID, log[1].ID = log[1].ID, log[0].ID
	}},
	Authentic: {
		func(h *History) { h.Log["room/b"][0].Intact = false },
		func(h *History) { h.Log["room/b"][0].ID = 1 << 40 },
		func(h *History) { h.Diaries[plain].Events[good(h, plain)].ID++ },
		func(h *History) { h.Diaries[session].Events[good(h, session)].Intact = false },
		func(h *History) { h.Diaries[member].Events[good(h, member)].ID++ },
		func(h *History) { h.Diaries[plain].Topics = h.Diaries[plain].Topics[:2] },
	},
	Complete: {
		func(h *History) { drop(h, plain, Delivered) },
		func(h *History) { drop(h, session, Delivered) },
		func(h *History) { drop(h, session, Acked) },
		func(h *History) { drop(h, member, Delivered) },
		func(h *History) { drop(h, member, Acked) },
		func(h *History) {
			skip := Event{Kind: Skipped, Topic: "room/a", From: 1, Seq: 1, Code: wirev1.Code_CODE_RETENTION, Conn: 1}
			h.Diaries[plain].Events = append(h.Diaries[plain].Events, skip)
		},
		func(h *History) {
			h.Diaries[plain].Events = append(h.Diaries[plain].Events, Event{Kind: Missed, Seq: 1, Conn: 1})
		},
	},
	FirstInOrder: {
		func(h *History) {
			events := h.Diaries[plain].Events
			i := good(h, plain)
			events[i-1], events[i] = events[i], events[i-1]
		},
		func(h *History) { // the last of a topic comes first, to another member
			e := h.Diaries[member].Events[good(h, member)]
			e.At = h.Diaries[member].Events[0].At
			h.Diaries[member+1].Events = append(h.Diaries[member+1].Events, e)
		},
	},
	Redelivery: {
		func(h *History) { repeat(h, plain, 1, 1) },
		func(h *History) { repeat(h, session, 1, 0) },
		func(h *History) { repeat(h, member, 2, 0) },
		func(h *History) { // long after its ACK
			repeat(h, member, 2, 1)
			last := &h.Diaries[member].Events[len(h.Diaries[member].Events)-1]
			last.At = last.At.Add(2 * teamGrace)
		},
		func(h *History) { // its edge was killed too late to be the reason
			repeat(h, member, 2, 1)
			last := &h.Diaries[member].Events[len(h.Diaries[member].Events)-1]
			last.At = last.At.Add(3 * teamGrace)
			h.Killed = map[string][]time.Time{"edge-1": {last.At.Add(-teamGrace)}, "edge-2": {last.At.Add(-3 * teamGrace)}}
		},
		func(h *History) { // on a second connection, long after the ACK was due to be stored
			d := h.Diaries[session]
			end := &d.Events[len(d.Events)-1]
			end.At = end.At.Add(2 * ackGrace)
			repeat(h, session, 2, 0)
		},
	},
	Windowed: {
		func(h *History) { overflow(h, session) },
		func(h *History) { overflow(h, member) },
	},
	DeadLetters: {
		func(h *History) { h.Letters = h.Letters[1:] },
		func(h *History) { h.Letters = append(h.Letters, h.Letters[0]) },
		func(h *History) { h.Letters[0].Attempts = 1 },
		func(h *History) { h.Letters[0].Seq = 999 },
		func(h *History) {
			e := h.Diaries[session].Events[good(h, session)]
			h.Letters = append(h.Letters, Letter{Session: "session", Topic: e.Topic, Epoch: e.Epoch, Seq: e.Seq, Attempts: 3})
		},
	},
}

// drop removes whatever of this kind was said of one message.
func drop(h *History, diary int, kind Kind) {
	d := h.Diaries[diary]
	gone := d.Events[good(h, diary)]
	d.Events = slices.DeleteFunc(d.Events, func(e Event) bool { return e.Kind == kind && e.Topic == gone.Topic && e.Seq == gone.Seq })
}

// repeat delivers one message once more.
func repeat(h *History, diary int, conn, attempt uint32) {
	d := h.Diaries[diary]
	e := d.Events[good(h, diary)]
	e.Conn, e.Attempt, e.At = conn, attempt, d.Events[len(d.Events)-1].At
	d.Events = append(d.Events, e)
}

// overflow lets the window be one and two messages be un-ACKed.
func overflow(h *History, diary int) {
	d := h.Diaries[diary]
	d.Window = 1
	i := good(h, diary)
	other := slices.IndexFunc(d.Events, func(e Event) bool { return e.Kind == Delivered && e.ID != d.Events[i].ID && !unlucky(e.ID) })
	more := d.Events[other]
	more.At = d.Events[i].At
	d.Events = slices.Insert(d.Events, i+1, more)
}

func TestTheJudgeIsContentWithPromisesKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if v := Judge(kept(t)); !v.OK() {
			t.Fatal(v, v.Breaches)
		}
	})
}

func TestTheJudgeNoticesEveryBreach(t *testing.T) {
	for promise, ways := range breaks {
		for i, way := range ways {
			t.Run(fmt.Sprintf("%s/%d", promise, i), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					h := kept(t)
					way(h)
					if v := Judge(h); v.Counts[promise] == 0 {
						t.Fatalf("not noticed: %v %v", v, v.Breaches)
					}
				})
			})
		}
	}
}

// A machine that was three times slower has three times as long for what is a matter of time, and
// no more.
func TestTheJudgeGivesASlowMachineTime(t *testing.T) {
	for after, breaches := range map[time.Duration]int{2 * teamGrace: 0, 4 * teamGrace: 1} {
		rapid.Check(t, func(t *rapid.T) {
			h := kept(t)
			h.Slowness = 3
			repeat(h, member, 2, 1)
			last := &h.Diaries[member].Events[len(h.Diaries[member].Events)-1]
			last.At = last.At.Add(after)
			if v := Judge(h); v.Counts[Redelivery] != breaches {
				t.Errorf("a message that came again %s after its ACK: %v, want %d breaches", after, v, breaches)
			}
		})
	}
}

// An ACK that was lost with its edge may be of any age when its message comes again: for as long as
// nothing runs, nothing does.
func TestTheJudgeKnowsWhoseEdgeWasKilled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := kept(t)
		repeat(h, member, 2, 1)
		last := &h.Diaries[member].Events[len(h.Diaries[member].Events)-1]
		killed := last.At.Add(teamGrace / 2)
		last.At = last.At.Add(10 * teamGrace)
		h.Killed = map[string][]time.Time{"edge-1": {killed, last.At.Add(-time.Second)}}
		if v := Judge(h); !v.OK() || v.Forgotten > teamGrace {
			t.Fatal(v, v.Breaches)
		}
	})
}
