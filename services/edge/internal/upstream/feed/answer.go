package feed

import "slices"

// Basing says that the topics of filters with wildcards are being asked for. What comes of it is
// given in this order, and anything may happen in between: the heads to Head; for each filter its
// askers are answered, the first of them as it is given to Based; and BasingDone, with what Basing
// returned.
func (f *Feed) Basing() (since uint64) {
	since = f.forgot + uint64(len(f.appeared))
	f.basing = append(f.basing, since)
	return since
}

// BasingDone ends a Basing.
func (f *Feed) BasingDone(since uint64) {
	if i := slices.Index(f.basing, since); i >= 0 {
		f.basing = slices.Delete(f.basing, i, i+1)
	}
	if len(f.basing) == 0 {
		f.forgot, f.appeared = f.forgot+uint64(len(f.appeared)), nil
		return
	}
	n := slices.Min(f.basing) - f.forgot
	f.forgot, f.appeared = f.forgot+n, slices.Delete(f.appeared, 0, int(n))
}

// Appeared calls found with topics that came to have messages for loops since at, which is what
// Basing or Appeared returned, until there are no more or found returns false: a question that was
// asked before may know nothing of them. It returns where to go on, and whether there are more. A
// topic may be found more than once.
func (f *Feed) Appeared(at uint64, found func(topic string) (goOn bool)) (next uint64, more bool) {
	news := f.appeared[at-f.forgot:]
	for i, st := range news {
		if !found(st.topic) {
			n := i + 1
			return at + uint64(n), n < len(news)
		}
	}
	return at + uint64(len(news)), false
}

// Generation of a filter's joins: another one where it was left by all and joined anew; 0 where
// nobody wants it.
func (f *Feed) Generation(filter string) uint64 {
	if w := f.filters[filter]; w != nil {
		return w.gen
	}
	return 0
}

// Based says that every topic of a filter was given to Head that existed when the filter had that
// generation. Of one that was left since it says nothing.
func (f *Feed) Based(filter string, generation uint64) {
	if w := f.filters[filter]; w != nil && w.gen == generation && !w.based {
		w.based = true
		f.based.Add(filter, true)
	}
}

// IsBased reports whether the topics of a filter were all asked for since its first join.
func (f *Feed) IsBased(filter string) bool {
	w := f.filters[filter]
	return w != nil && w.based
}
