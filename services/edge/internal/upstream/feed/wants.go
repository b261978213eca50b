package feed

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
)

// Add says that loop has its first join of a topic or filter.
func (f *Feed) Add(loop int, name string) {
	bit := uint64(1) << loop
	if topic.IsFilter(name) {
		f.wild.Add(name, loop)
		w := f.filters[name]
		if w == nil {
			f.lastGen++
			w = &filter{gen: f.lastGen}
			f.filters[name] = w
		}
		w.loops |= bit
		f.wildGen++
		return
	}
	f.exact[name] |= bit
	if st := f.topics[name]; st != nil {
		st.mask |= bit
	}
}

// Remove says that loop has no join of a topic or filter left.
func (f *Feed) Remove(loop int, name string) {
	bit := uint64(1) << loop
	if topic.IsFilter(name) {
		f.wild.Remove(name, loop)
		f.wildGen++
		f.sweep = true
		if w := f.filters[name]; w != nil {
			if w.loops &^= bit; w.loops == 0 {
				delete(f.filters, name)
				f.based.Remove(name, true)
			}
		}
		return
	}
	if f.exact[name] &^= bit; f.exact[name] == 0 {
		delete(f.exact, name)
	}
	if st := f.topics[name]; st != nil {
		st.maskGen = 0
		f.dropUnwanted(st)
	}
}

// maskOf is the set of loops that want a topic.
func (f *Feed) maskOf(t string) uint64 {
	mask := f.exact[t]
	if f.wild.Len() > 0 && t != "" {
		f.scratch = f.wild.Match(f.scratch[:0], t)
		for _, loop := range f.scratch {
			mask |= 1 << loop
		}
	}
	return mask
}

// mask is maskOf, remembered until wildcards change.
func (f *Feed) mask(st *state) uint64 {
	if gen := f.wildGen + 1; st.maskGen != gen {
		st.mask, st.maskGen = f.maskOf(st.topic), gen
	}
	return st.mask
}

// covered says that a filter matches t whose topics were all given a state when it was joined: a
// topic unknown since appeared later, and is owed from its first message on.
func (f *Feed) covered(t string) bool {
	if f.based.Len() == 0 {
		return false
	}
	f.covering = f.based.Match(f.covering[:0], t)
	return len(f.covering) > 0
}

// Expect says that the head of a durable topic is being asked for because of a join: until Expected
// its messages are held, unless it is known.
func (f *Feed) Expect(t string) {
	st := f.topics[t]
	if st == nil {
		if f.maskOf(t) == 0 {
			return
		}
		st = f.add(t)
	}
	st.pending++
}

// Expected ends an Expect, after the head was given to Head or could not be had.
func (f *Feed) Expected(t string) {
	if st := f.topics[t]; st != nil && st.pending > 0 {
		st.pending--
	}
}

// Follows reports whether the head of a topic that is joined by name is to be compared with the
// store: it is durable.
func (f *Feed) Follows(t string) bool { return f.topics[t] != nil || f.cfg.Durable(t) }

// Known reports whether everything of a durable topic that comes from now on is owed to the loops.
func (f *Feed) Known(t string) bool {
	st := f.topics[t]
	return st != nil && st.known
}

// Wanted reports whether a loop wants t.
func (f *Feed) Wanted(t string) bool { return f.maskOf(t) != 0 }

// Takes reports whether a loop wants a topic, and counts where none does.
func (f *Feed) Takes(t []byte) bool {
	if f.exact[string(t)] != 0 || f.wild.Len() > 0 && f.maskOf(string(t)) != 0 {
		return true
	}
	f.stats.Unwanted.Add(1)
	return false
}

// Len is the number of durable topics that have a state.
func (f *Feed) Len() int { return len(f.topics) }

func (f *Feed) add(t string) *state {
	st := &state{topic: t, at: len(f.all)}
	f.topics[t] = st
	f.all = append(f.all, st)
	f.stats.Topics.Add(1)
	return st
}

// dropUnwanted forgets a topic that no loop wants any more. Its entries in queues find it gone.
func (f *Feed) dropUnwanted(st *state) {
	if f.mask(st) != 0 {
		return
	}
	f.recent.drop(st)
	for loop := range st.owed {
		f.settleDebt(loop, st)
	}
	st.gapAt = time.Time{}
	delete(f.topics, st.topic)
	last := len(f.all) - 1
	f.all[st.at], f.all[last].at = f.all[last], st.at
	f.all[last] = nil
	f.all = f.all[:last]
	f.stats.Topics.Add(-1)
}
