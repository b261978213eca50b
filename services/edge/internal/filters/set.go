package filters

import (
	"cmp"
	"slices"
)

// set of the programs for messages of one topic. It is immutable.
type set struct {
	ids      []uint32 // ascending
	programs []*program
}

// match are the programs of a topic, each once.
func (r *Registry) match(name string) []*program {
	all := r.wild.Match(nil, name)
	for p := range r.filters[name] {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *program) int { return cmp.Compare(a.id, b.id) })
	return slices.Compact(all)
}

// of is the set of a topic; nil where nobody filters it.
func (r *Registry) of(name string) *set {
	if r.stats.Subscriptions.Load() == 0 {
		return nil
	}
	r.mu.RLock()
	s, known := r.sets[name]
	r.mu.RUnlock()
	if known {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if programs := r.match(name); len(programs) > 0 {
		s = &set{programs: programs, ids: make([]uint32, len(programs))}
		for i, p := range programs {
			s.ids[i] = p.id
		}
	}
	if len(r.sets) >= maxSets {
		clear(r.sets)
	}
	r.sets[name] = s
	return s
}
