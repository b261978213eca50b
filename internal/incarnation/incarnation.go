// Package incarnation tells the processes apart that bear one id after each other.
//
// An incarnation is a random number, of which only equality says anything: no clock orders two of
// them, since a host's clock may go back. So a number that was not heard before is taken for a new
// process, and a Memory of those that are over keeps what an earlier process said late from
// bringing it back.
package incarnation

import (
	"math/rand/v2"
	"time"
)

// New makes the incarnation of a process: random, never 0.
func New() uint64 { return rand.Uint64()>>1 + 1 }

// Bounds of a Memory.
const (
	// kept is how many processes that are over are remembered of one id.
	kept = 8
	// mostIDs are remembered: ids come from outside. Beyond that all are forgotten.
	mostIDs = 4096
	// twinAfter is how long a process may be heard after another took its place: later its words
	// are no stragglers, and it lives.
	twinAfter = 3 * time.Second
	// twinFor is how long a process that lives beside another of its id, and says nothing more, is
	// still named.
	twinFor = 10 * time.Second
)

// Memory of processes that are over, by id. It is not safe for concurrent use. The zero Memory is
// empty and ready to use.
type Memory struct {
	ids map[string][]over
}

// over is a process that another took the place of, that said goodbye, or that is not heard any
// more.
type over struct {
	incarnation uint64
	at          time.Time // when it was over
	left        bool      // it said so itself
	quiet       bool      // it was not heard, and nobody took its place at that time
	heard       time.Time // last, after that
}

// Replaced notes that another process took the place of id's incarnation.
func (m *Memory) Replaced(now time.Time, id string, incarnation uint64) {
	m.add(id, over{incarnation: incarnation, at: now})
}

// Quiet notes that id's incarnation was not heard for so long that it counts as gone. It may come
// back, unless another has come meanwhile.
func (m *Memory) Quiet(now time.Time, id string, incarnation uint64) {
	m.add(id, over{incarnation: incarnation, at: now, quiet: true})
}

// Left notes that id's incarnation said goodbye: it never comes back.
func (m *Memory) Left(now time.Time, id string, incarnation uint64) {
	m.add(id, over{incarnation: incarnation, at: now, left: true})
}

func (m *Memory) add(id string, o over) {
	if m.ids == nil {
		m.ids = map[string][]over{}
	}
	all := m.ids[id]
	if all == nil && len(m.ids) >= mostIDs {
		clear(m.ids)
	}
	for i := range all {
		if all[i].incarnation == o.incarnation {
			all[i].left, all[i].quiet = all[i].left || o.left, all[i].quiet && o.quiet
			return
		}
	}
	if len(all) >= kept {
		all = append(all[:0], all[1:]...)
	}
	m.ids[id] = append(all, o)
}

// Late reports whether id's incarnation is over, so that what it says comes late and is to be
// dropped. alone: no other incarnation of the id is heard now. One that was replaced, says
// something longer after that than silence, and is alone, lives: it is no longer over. That is the
// case where a straggler was taken for a new process, and where two processes have one id and one
// of them ends.
func (m *Memory) Late(now time.Time, id string, incarnation uint64, alone bool, silence time.Duration) bool {
	all := m.ids[id]
	for i := range all {
		o := &all[i]
		if o.incarnation != incarnation {
			continue
		}
		if alone && !o.left && (o.quiet || now.Sub(o.at) >= silence) {
			m.ids[id] = append(all[:i], all[i+1:]...)
			return false
		}
		o.heard = now
		return true
	}
	return false
}

// Twins are the ids that two processes use at the same time: one goes on speaking although another
// took its place.
func (m *Memory) Twins(now time.Time) (ids []string) {
	for id, all := range m.ids {
		for _, o := range all {
			if o.heard.Sub(o.at) >= twinAfter && now.Sub(o.heard) <= twinFor {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}
