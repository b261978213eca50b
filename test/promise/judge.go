package promise

import (
	"fmt"
	"time"
)

// Breach is a promise that was not kept.
type Breach struct {
	Promise string
	Detail  string
}

func (b Breach) String() string { return b.Promise + ": " + b.Detail }

// Names of the promises.
const (
	// Durable: what was answered OK is in the log where the answer said.
	Durable = "DURABLE"
	// Once: a message that was offered, however often, is in the log once.
	Once = "ONCE"
	// Numbered: a topic's log is 1, 2, 3, … under one epoch.
	Numbered = "NUMBERED"
	// InOrder: the log has a publisher's messages in the order they were offered.
	InOrder = "IN_ORDER"
	// Authentic: what is stored and delivered is what was published.
	Authentic = "AUTHENTIC"
	// Complete: every message of the log reaches every subscriber it is owed to, or is its dead
	// letter.
	Complete = "COMPLETE"
	// FirstInOrder: first deliveries come in seq order.
	FirstInOrder = "FIRST_IN_ORDER"
	// Redelivery: what comes again on a connection says so, what was ACKed long before comes no
	// more, and without ACKs nothing comes twice.
	Redelivery = "REDELIVERY"
	// Windowed: no more than the window is un-ACKed.
	Windowed = "WINDOWED"
	// DeadLetters: once for each message that could not be delivered, and for no other.
	DeadLetters = "DEAD_LETTERS"
)

// ackGrace is how old an ACK must be at the end of its connection to count as stored: the mesh
// gathers them for about a second, and an outage of the store lasts some more. A slow machine has
// more time.
const ackGrace = 15 * time.Second

// grace is d as it is on the machine of the history.
func (h *History) grace(d time.Duration) time.Duration {
	return time.Duration(float64(d) * max(1, h.Slowness))
}

// most breaches that are told of each promise.
const most = 5

// Verdict is what the judge found.
type Verdict struct {
	Breaches []Breach // the first few of each promise
	Counts   map[string]int

	Answered, Stored, Deliveries, Redeliveries, Connections, Letters int
	// Forgotten is how old the oldest ACK was that the mesh had not stored when its connection
	// ended, or its group's message came again.
	Forgotten time.Duration
}

func (v *Verdict) breach(promise, format string, args ...any) {
	v.Counts[promise]++
	if v.Counts[promise] <= most {
		v.Breaches = append(v.Breaches, Breach{promise, fmt.Sprintf(format, args...)})
	}
}

// forgot notes an ACK that was so old and did not keep its message from coming again.
func (v *Verdict) forgot(age time.Duration) { v.Forgotten = max(v.Forgotten, age) }

// OK reports whether every promise was kept.
func (v *Verdict) OK() bool { return len(v.Breaches) == 0 }

// String is one line of figures.
func (v *Verdict) String() string {
	return fmt.Sprintf("answered=%d stored=%d deliveries=%d redeliveries=%d connections=%d dead_letters=%d oldest_ack_forgotten=%s breaches=%v",
		v.Answered, v.Stored, v.Deliveries, v.Redeliveries, v.Connections, v.Letters, v.Forgotten.Round(time.Millisecond), v.Counts)
}

// place of a message.
type place struct {
	topic      string
	epoch, seq uint64
}

// placed is where an event's message lies.
func placed(h *History, e *Event) place {
	epoch := e.Epoch
	if log := h.Log[e.Topic]; epoch == 0 && len(log) > 0 {
		epoch = log[0].Epoch
	}
	return place{e.Topic, epoch, e.Seq}
}

// Judge compares what was published, stored and seen.
func Judge(h *History) *Verdict {
	v := &Verdict{Counts: map[string]int{}}
	log := judgeLog(h, v)
	letters := judgeLetters(h, v, log)
	teams := map[string]*team{}
	for _, d := range h.Diaries {
		if d.Group != "" {
			t := teams[d.Group]
			if t == nil {
				t = &team{
					v: v, h: h, name: d.Group, log: log, letters: letters[d.Group],
					seen: map[place]sight{}, fresh: map[place]bool{}, high: map[string]uint64{}, waiting: map[*Diary]map[place]bool{},
				}
				teams[d.Group] = t
			}
			t.members = append(t.members, d)
			continue
		}
		reader := &reader{v: v, h: h, d: d, log: log, letters: letters[d.Name], seen: map[place]sight{}, high: map[string]place{}}
		reader.read()
		reader.close()
	}
	for _, t := range teams {
		t.read()
		t.close()
	}
	return v
}

// judgeLog checks the logs against the answers, and returns which id lies where.
func judgeLog(h *History, v *Verdict) map[place]uint64 {
	at := map[place]uint64{}
	where := map[uint64]place{}
	for topic, log := range h.Log {
		for i, m := range log {
			p := place{topic, m.Epoch, m.Seq}
			if m.Seq != uint64(i)+1 || m.Epoch != log[0].Epoch {
				v.breach(Numbered, "%s: entry %d of the log is seq %d of epoch %d", topic, i+1, m.Seq, m.Epoch)
			}
			if !m.Intact {
				v.breach(Authentic, "%s seq %d: the payload stored is not that of id %d", topic, m.Seq, m.ID)
			}
			if twin, twice := where[m.ID]; twice {
				v.breach(Once, "id %d is in the log at %v and at %v", m.ID, twin, p)
			}
			at[p], where[m.ID] = m.ID, p
			v.Stored++
		}
	}
	last := map[string]uint64{}
	for _, m := range h.Published {
		p, stored := where[m.ID]
		if m.Answered {
			v.Answered++
			if want := (place{m.Topic, m.Epoch, m.Seq}); !stored || p != want {
				v.breach(Durable, "id %d was answered %v and lies at %v (in the log: %v)", m.ID, want, p, stored)
			}
		}
		if !stored {
			continue
		}
		delete(where, m.ID)
		if p.topic != m.Topic {
			v.breach(Authentic, "id %d was published to %s and lies at %v", m.ID, m.Topic, p)
		} else if p.seq < last[m.Topic] {
			v.breach(InOrder, "%s: id %d, offered later, is seq %d, before %d", m.Topic, m.ID, p.seq, last[m.Topic])
		} else {
			last[m.Topic] = p.seq
		}
	}
	for id, p := range where {
		v.breach(Authentic, "id %d at %v was never published", id, p)
	}
	return at
}

// judgeLetters checks the dead letters by themselves, and returns those of each session.
func judgeLetters(h *History, v *Verdict, log map[place]uint64) map[string]map[place]bool {
	of := map[string]map[place]bool{}
	for _, l := range h.Letters {
		p := place{l.Topic, l.Epoch, l.Seq}
		id, stored := log[p]
		switch {
		case !stored:
			v.breach(DeadLetters, "%s has one for %v, which is not in the log", l.Session, p)
		case of[l.Session][p]:
			v.breach(DeadLetters, "%s has two for %v", l.Session, p)
		case h.Poison == nil || !h.Poison(id):
			v.breach(DeadLetters, "%s has one for %v, which it did not refuse", l.Session, p)
		case l.Attempts < h.MaxAttempts:
			v.breach(DeadLetters, "%s: %v was given up after %d attempts of %d", l.Session, p, l.Attempts, h.MaxAttempts)
		}
		if of[l.Session] == nil {
			of[l.Session] = map[place]bool{}
		}
		of[l.Session][p] = true
		v.Letters++
	}
	return of
}
