package interest

import "time"

// turns says which edges are asked for snapshots now, and which ones next.
type turns struct {
	asked []*edge
	line  []*edge
}

// ask wants a snapshot of e, and says so unless that was just done, or others come first: who
// stands in the line is asked in its turn, and so is whoever did not answer.
func (t *Table) ask(now time.Time, e *edge) {
	if e.want && now.Sub(e.asked) < askAgain {
		return
	}
	if !e.want {
		e.want, e.asked = true, time.Time{}
	}
	if e.waits {
		return
	}
	if len(t.turns.line) > 0 || !t.turn(now, e) {
		e.waits = true
		t.turns.line = append(t.turns.line, e)
		return
	}
	t.say(now, e)
}

// say asks e, which has a place.
func (t *Table) say(now time.Time, e *edge) {
	e.asked = now
	t.answer(e)
	t.events[len(t.events)-1].Want = true
}

// turn gives e one of maxAsked places, which those lose that are silent for askAgain.
func (t *Table) turn(now time.Time, e *edge) bool {
	kept := t.turns.asked[:0]
	for _, a := range t.turns.asked {
		if a != e && a.want && t.edges[a.ID] == a && now.Sub(a.asked) < askAgain {
			kept = append(kept, a)
		}
	}
	clear(t.turns.asked[len(kept):])
	t.turns.asked = kept
	if len(kept) == maxAsked {
		return false
	}
	t.turns.asked = append(t.turns.asked, e)
	return true
}

// askNext asks those whose turn it is.
func (t *Table) askNext(now time.Time) {
	for len(t.turns.line) > 0 {
		e := t.turns.line[0]
		if e.want && t.edges[e.ID] == e && now.Sub(e.asked) >= askAgain {
			if !t.turn(now, e) {
				return
			}
			t.say(now, e)
		}
		e.waits = false
		t.turns.line[0] = nil
		t.turns.line = t.turns.line[1:]
	}
	t.turns.line = nil
}
