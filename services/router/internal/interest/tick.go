package interest

import (
	"errors"
	"fmt"
	"time"
)

// Tick does what time brings; it is called every 100 ms or so. connected reports whether the router
// can hear edges at all: while it can't, no edge counts as silent.
func (t *Table) Tick(now time.Time, connected bool) {
	if !connected {
		t.connectedAt, t.suspectSince = time.Time{}, time.Time{}
		return
	}
	if t.connectedAt.IsZero() {
		t.connect(now)
	}
	for _, e := range t.edges {
		t.chase(now, e)
	}
	t.askNext(now)
	t.silence(now)
	if !t.ready && t.unready(now) == nil {
		t.ready = true
	}
}

func (t *Table) connect(now time.Time) {
	t.connectedAt = now
	if t.firstAt.IsZero() {
		t.firstAt = now
	}
	for _, e := range t.edges {
		e.heard = now
	}
}

// chase asks again for what did not come.
func (t *Table) chase(now time.Time, e *edge) {
	if e.want && now.Sub(e.asked) >= askAgain {
		t.discard(e)
		t.ask(now, e)
	}
	if e.active != nil && e.behind > e.active.version && now.Sub(e.behindAt) >= behindFor {
		t.ask(now, e)
	}
}

// silence drops edges that say nothing, unless there are so many that the router itself may be the
// one that is cut off.
func (t *Table) silence(now time.Time) {
	var silent []*edge
	for _, e := range t.edges {
		if now.Sub(e.heard) >= SilentAfter {
			silent = append(silent, e)
		}
	}
	if len(silent)*3 < len(t.edges) || len(silent) == 0 {
		t.suspectSince = time.Time{}
	} else {
		if t.suspectSince.IsZero() {
			t.suspectSince = now
		}
		if now.Sub(t.suspectSince) < SuspectFor {
			return
		}
		t.suspectSince = time.Time{}
	}
	for _, e := range silent {
		t.past.Quiet(now, e.ID, e.Incarnation)
		t.drop(e, true)
	}
}

// Ready is nil once the table of every live edge is there. Later only a suspicion against itself,
// or having no connection, makes the router unready: an edge that comes anew is the edge's matter.
func (t *Table) Ready(now time.Time) error {
	if t.connectedAt.IsZero() {
		return errors.New("hears no edges: not connected")
	}
	if !t.suspectSince.IsZero() {
		return errors.New("a third or more of the edges fell silent together: this router may be cut off")
	}
	if t.ready {
		return nil
	}
	return t.unready(now)
}

func (t *Table) unready(now time.Time) error {
	if now.Sub(t.firstAt) < Hearing {
		return errors.New("listens for edges")
	}
	missing := 0
	for _, e := range t.edges {
		if e.active == nil {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("has not the interest of %d of %d edges yet", missing, len(t.edges))
	}
	return nil
}
