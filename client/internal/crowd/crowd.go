// Package crowd is who is in a topic, as edges have told.
package crowd

import (
	"bytes"
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Crowd knows nothing at first.
type Crowd struct {
	// Known: something was told.
	Known bool
	// States of users by name; none where CountsOnly.
	States     map[string][]byte
	Count      int
	CountsOnly bool
}

// Change is what is different from what was told before.
type Change struct {
	// All: whatever was told before holds no more.
	All bool
	// Joined, Changed and Left are users: new ones, those with another state, and those that are
	// gone. None where All.
	Joined, Changed, Left []string
}

// Take takes what an edge tells, the whole or what has changed; differs: it is different.
func (w *Crowd) Take(m *wirev1.Presence) (c Change, differs bool) {
	named := w.Known && !w.CountsOnly
	differs = !w.Known || w.Count != int(m.GetCount()) || w.CountsOnly != m.GetCountsOnly()
	w.Known, w.Count, w.CountsOnly = true, int(m.GetCount()), m.GetCountsOnly()
	if w.CountsOnly {
		w.States = nil
		return c, differs
	}
	was := w.States
	if m.GetSnapshot() || was == nil {
		w.States = make(map[string][]byte, len(m.GetMembers()))
	}
	for _, one := range m.GetMembers() {
		state, had := was[one.GetUser()]
		w.States[one.GetUser()] = one.GetState()
		switch {
		case !had:
			c.Joined = append(c.Joined, one.GetUser())
		case !bytes.Equal(state, one.GetState()):
			c.Changed = append(c.Changed, one.GetUser())
		}
	}
	for _, user := range m.GetLeft() {
		if _, had := w.States[user]; had {
			delete(w.States, user)
			c.Left = append(c.Left, user)
		}
	}
	if m.GetSnapshot() {
		for user := range was {
			if _, has := w.States[user]; !has {
				c.Left = append(c.Left, user)
			}
		}
	}
	if !named {
		return Change{All: true}, true
	}
	slices.Sort(c.Left)
	return c, differs || len(c.Joined)+len(c.Changed)+len(c.Left) > 0
}
