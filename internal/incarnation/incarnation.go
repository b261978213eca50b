// Package incarnation distinguishes successive processes that have the same id.
//
// An incarnation is a random number, and two of them can only be compared for equality: no clock
// orders them, since a host's clock may go back. So an unknown number is taken for a new process,
// and a Memory of former processes prevents a late message of one of them from bringing it back.
package incarnation

import (
	"math/rand/v2"
	"time"
)

// New makes the incarnation of a process: random, never 0.
func New() uint64 { return rand.Uint64()>>1 + 1 }

// Bounds of a Memory.
const (
	// mostFormer is how many former processes of one id are remembered.
	mostFormer = 8
	// mostIDs is how many ids are remembered, since ids come from outside. Beyond that all are
	// forgotten.
	mostIDs = 4096
	// twinAfter is how long messages of a process may still arrive after another one replaced it.
	// Messages that arrive even later were not delayed: the process is alive.
	twinAfter = 3 * time.Second
	// twinFor is how long after its last message Twins still reports a process that is alive beside
	// another one of its id.
	twinFor = 10 * time.Second
)

// Memory remembers former processes by id. It is not safe for concurrent use. The zero Memory is
// empty and ready to use.
type Memory struct {
	ids map[string][]former
}

// former is a process that was replaced by another one, that announced its stop, or that is silent.
type former struct {
	incarnation uint64
	at          time.Time // when it became former
	departed    bool      // it announced its stop
	quiet       bool      // it became silent, and no other process had replaced it then
	lastHeard   time.Time // when it was last heard after that
}

// Replaced notes that another process has replaced id's incarnation.
func (m *Memory) Replaced(now time.Time, id string, incarnation uint64) {
	m.add(id, former{incarnation: incarnation, at: now})
}

// Quiet notes that id's incarnation was silent for so long that it counts as gone. It may come
// back, unless another one has replaced it meanwhile.
func (m *Memory) Quiet(now time.Time, id string, incarnation uint64) {
	m.add(id, former{incarnation: incarnation, at: now, quiet: true})
}

// Departed notes that id's incarnation announced its stop: it never comes back.
func (m *Memory) Departed(now time.Time, id string, incarnation uint64) {
	m.add(id, former{incarnation: incarnation, at: now, departed: true})
}

func (m *Memory) add(id string, o former) {
	if m.ids == nil {
		m.ids = map[string][]former{}
	}
	all := m.ids[id]
	if all == nil && len(m.ids) >= mostIDs {
		clear(m.ids)
	}
	for i := range all {
		if all[i].incarnation == o.incarnation {
			all[i].departed, all[i].quiet = all[i].departed || o.departed, all[i].quiet && o.quiet
			return
		}
	}
	if len(all) >= mostFormer {
		all = append(all[:0], all[1:]...)
	}
	m.ids[id] = append(all, o)
}

// Late reports whether id's incarnation is a former process, so that its message is late and must
// be dropped. alone says that no other incarnation of the id is alive now. If a process was
// replaced, sends a message later than silence after that, and is alone, then it is alive and no
// longer a former one. That happens if a late message was taken for a new process, or if one of two
// processes with the same id ends.
func (m *Memory) Late(now time.Time, id string, incarnation uint64, alone bool, silence time.Duration) bool {
	all := m.ids[id]
	for i := range all {
		o := &all[i]
		if o.incarnation != incarnation {
			continue
		}
		if alone && !o.departed && (o.quiet || now.Sub(o.at) >= silence) {
			m.ids[id] = append(all[:i], all[i+1:]...)
			return false
		}
		o.lastHeard = now
		return true
	}
	return false
}

// Twins returns the ids that two processes use at the same time: one continues to send although
// another one has replaced it.
func (m *Memory) Twins(now time.Time) (ids []string) {
	for id, all := range m.ids {
		for _, o := range all {
			if o.lastHeard.Sub(o.at) >= twinAfter && now.Sub(o.lastHeard) <= twinFor {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}
