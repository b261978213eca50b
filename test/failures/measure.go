package failures

import (
	"time"
)

// lateAfter is how late a durable message may come, from its offer on, without counting as one that
// a fault held up.
const lateAfter = 500 * time.Millisecond

// cost is what one fault cost.
type cost struct {
	Fault  string
	Lasted time.Duration
	// Durable messages offered in the time; Failed ones were answered with an error.
	Durable, Failed int
	// Ephemeral messages offered, refused or unanswered, and how many of those accepted a
	// subscriber missed: in the mean and the worst.
	Ephemeral, Refused int
	LostMean           float64
	LostMost           int
	// Longest wait for the answer to a durable message, of producers that the fault met and of
	// others; -1: there are none.
	WaitHit, WaitOthers time.Duration
	// Retried plain calls, at most for one message.
	Tries int
	// Longest time without a message of one topic at one subscriber, of which either was met by the
	// fault, and of the others; -1: there are none.
	GapHit, GapOthers time.Duration
	// Level is when, from the fault's beginning on, the last message came that came late.
	Level time.Duration
}

// window is the time of a fault and whom it met.
type window struct {
	from, healed, to time.Time
	producers        map[int]bool
	subscribers      map[string]bool
}

func longer(a *time.Duration, b time.Duration) { *a = max(*a, b) }

func (w *world) measure(name string, in window) cost {
	c := cost{Fault: name, Lasted: in.healed.Sub(in.from), WaitHit: -1, WaitOthers: -1, GapHit: -1, GapOthers: -1}
	owners := map[string]bool{} // topic → its producer was met
	offered := map[uint64]offer{}
	for _, p := range w.producers {
		owners[p.durable()] = in.producers[p.number]
		for _, o := range p.list(in.from.Add(-time.Second), in.to) {
			offered[o.id] = o
			c.offer(o, in)
		}
	}
	c.gaps(w, in, owners)
	c.late(w, in, offered)
	return c
}

func (c *cost) offer(o offer, in window) {
	if !o.durable {
		c.Ephemeral++
		if o.err != nil || o.answer.IsZero() {
			c.Refused++
		}
		return
	}
	c.Durable++
	if o.err != nil {
		c.Failed++
	}
	wait := &c.WaitOthers
	if in.producers[producerOf(o.id)] {
		wait = &c.WaitHit
	}
	longer(wait, o.answer.Sub(o.at))
	c.Tries = max(c.Tries, o.tries)
}

func (c *cost) gaps(w *world, in window, owners map[string]bool) {
	for _, d := range w.diaries {
		last := map[string]time.Time{}
		for _, a := range d.list(in.from.Add(-time.Second)) {
			if a.seq == 0 || a.at.After(in.to) {
				continue
			}
			if before, ok := last[a.topic]; ok {
				gap := &c.GapOthers
				if in.subscribers[d.name] || owners[a.topic] {
					gap = &c.GapHit
				}
				longer(gap, a.at.Sub(before))
			}
			last[a.topic] = a.at
		}
	}
}

// late finds what came late, and what never came of ephemeral messages.
func (c *cost) late(w *world, in window, offered map[uint64]offer) {
	missed := 0
	for _, d := range w.diaries {
		came := map[uint64]bool{}
		for _, a := range d.list(in.from.Add(-time.Second)) {
			o, ours := offered[a.id]
			if !ours || came[a.id] {
				continue
			}
			came[a.id] = true
			if o.durable && a.at.Sub(o.at) > lateAfter {
				longer(&c.Level, a.at.Sub(in.from))
			}
		}
		lost := 0
		for id, o := range offered {
			if !o.durable && o.err == nil && !o.answer.IsZero() && !came[id] {
				lost++
			}
		}
		missed += lost
		c.LostMost = max(c.LostMost, lost)
	}
	c.LostMean = float64(missed) / float64(len(w.diaries))
}
