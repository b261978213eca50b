// Package wildcards finds the subscriptions of a loop whose filters have wildcards: those that
// match a topic, some at a time, and those that became active since a topic looked last.
package wildcards

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// Filter is one filter and those who subscribed to it on this loop.
type Filter[S any] struct {
	Name          string
	Subscriptions slab.List[S]
}

// Filters are those that somebody on the loop subscribed to, by name and by the topics they match.
type Filters[S any] struct {
	byName map[string]*Filter[S]
	index  topic.Index[*Filter[S]]
	pool   slab.Pool[Filter[S]]
}

// NewFilters makes an empty set.
func NewFilters[S any]() Filters[S] { return Filters[S]{byName: map[string]*Filter[S]{}} }

// Add is the filter of a name, which is made where there is none.
func (f *Filters[S]) Add(name string) *Filter[S] {
	w := f.byName[name]
	if w == nil {
		w = f.pool.Take()
		w.Name = name
		f.byName[w.Name] = w
		f.index.Add(w.Name, w)
	}
	return w
}

// Drop forgets a filter that nobody has subscribed to any more.
func (f *Filters[S]) Drop(w *Filter[S]) {
	f.index.Remove(w.Name, w)
	delete(f.byName, w.Name)
	f.pool.Give(w)
}

// Find is the filter of a name; nil where there is none.
func (f *Filters[S]) Find(name string) *Filter[S] { return f.byName[name] }

// Len is how many filters there are. Taken is how many are in use of the pool that they come from.
func (f *Filters[S]) Len() int { return len(f.byName) }

// Taken is how many filters were taken from the pool.
func (f *Filters[S]) Taken() int { return f.pool.Taken() }

// Match appends the filters to dst that match a topic.
func (f *Filters[S]) Match(dst []*Filter[S], topic string) []*Filter[S] {
	return f.index.Match(dst, topic)
}

// Fits reports whether a filter may be added without making matches dear.
func (f *Filters[S]) Fits(filter string) bool { return f.index.Fits(filter) }

// Forget takes a filter out of those that a walk goes over.
func Forget[S any](walk []*Filter[S], f *Filter[S]) {
	if i := slices.Index(walk, f); i >= 0 {
		walk[i] = nil
	}
}

// Walk goes over the subscriptions of some filters, as far as it is asked to.
type Walk[S any] struct {
	filters []*Filter[S] // nil: nobody has that one any more
	nth, at int          // the filter in hand, and the next of its subscriptions
}

// Begin begins a walk over the subscriptions that match a topic, and reports whether there are any.
func (w *Walk[S]) Begin(f *Filters[S], topic string) bool {
	w.filters, w.nth, w.at = f.Match(w.filters[:0], topic), 0, 0
	return len(w.filters) > 0
}

// End ends it.
func (w *Walk[S]) End() {
	clear(w.filters)
	w.filters, w.nth, w.at = w.filters[:0], 0, 0
}

// Next is the next subscription; nil once there are no more.
func (w *Walk[S]) Next() *S {
	for ; w.nth < len(w.filters); w.nth, w.at = w.nth+1, 0 {
		if f := w.filters[w.nth]; f != nil && w.at < f.Subscriptions.Len() {
			w.at++
			return f.Subscriptions.At(w.at - 1)
		}
	}
	return nil
}

// StepBack is for whoever takes the subscription at a place out of a filter: where the walk has
// passed that place, the last one that it has passed has to take it, and is at last. moves reports
// whether that is so.
func (w *Walk[S]) StepBack(f *Filter[S], at int) (last int, moves bool) {
	if w.nth == len(w.filters) || w.filters[w.nth] != f || at >= w.at {
		return at, false
	}
	w.at--
	return w.at, true
}

// Forget has the walk pass over a filter that nobody has any more.
func (w *Walk[S]) Forget(f *Filter[S]) { Forget(w.filters, f) }
