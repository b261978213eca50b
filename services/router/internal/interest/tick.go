package interest

import (
	"errors"
	"fmt"
	"time"
)

// Tick does what is due; it is called every 100 ms or so. connected reports whether the router can
// receive from edges at all: while it can't, no edge counts as silent.
func (t *Table) Tick(now time.Time, connected bool) {
	if !connected {
		t.connectedAt, t.suspectSince = time.Time{}, time.Time{}
		return
	}
	if t.connectedAt.IsZero() {
		t.connect(now)
	}
	for _, e := range t.edges {
		t.askForMissing(now, e)
	}
	t.askNext(now)
	t.dropSilent(now)
	if !t.ready && t.missingInterest(now) == nil {
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

// askForMissing asks an edge again for parts that did not arrive.
func (t *Table) askForMissing(now time.Time, e *edge) {
	if e.want && now.Sub(e.asked) >= askAgain {
		t.discard(e)
		t.ask(now, e)
	}
	if e.active != nil && e.digestVersion > e.active.version && now.Sub(e.digestAt) >= digestLagAllowed {
		t.ask(now, e)
	}
}

// dropSilent drops edges that sent nothing for SilentAfter, unless they are so many that this
// router itself may be cut off.
func (t *Table) dropSilent(now time.Time) {
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
		t.formerProcesses.Quiet(now, e.ID, e.Incarnation)
		t.drop(e, true)
	}
}

// Ready is nil once the interest of every live edge is complete. Later the router is unready only
// if it suspects that it is cut off, or has no connection; a new edge does not make it unready.
func (t *Table) Ready(now time.Time) error {
	if t.connectedAt.IsZero() {
		return errors.New("not connected to NATS: no edges are known")
	}
	if !t.suspectSince.IsZero() {
		return errors.New("a third or more of the edges became silent at the same time: this router may be cut off")
	}
	if t.ready {
		return nil
	}
	return t.missingInterest(now)
}

// missingInterest returns why the interest of the edges is not complete; nil: it is.
func (t *Table) missingInterest(now time.Time) error {
	if now.Sub(t.firstAt) < Hearing {
		return errors.New("waits for the announcements of edges")
	}
	missing := 0
	for _, e := range t.edges {
		if e.active == nil {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("the interest of %d of %d edges is not complete yet", missing, len(t.edges))
	}
	return nil
}
