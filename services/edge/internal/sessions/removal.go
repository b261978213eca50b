package sessions

import (
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Removal takes a filter out of a session, and then those positions that no other filter of it
// wants. The filter goes first: a session that ends in the middle of this has positions in store
// that are of no use, and none is missing.
type Removal struct {
	// that only the filter's subscription had a position at, and were not looked at
	topics  []string
	removed bool // the session does not have the filter any more
	search  walk.Search
	added   int             // what the session had added when the search began
	heads   []exchange.Head // of further topics, whose positions are stored as they are
	// Stored says that the positions that stay are stored as they are.
	Stored bool
}

// RemovalOf is about topics with which a subscription was to begin. Where another filter wants one,
// nothing has changed. Topics that are added come first, and have positions that are not stored.
func RemovalOf(heads []exchange.Head) Removal { return Removal{heads: heads} }

// Add notes topics that the subscription alone had a position at.
func (r *Removal) Add(topics ...string) { r.topics = append(r.topics, topics...) }

// Begun reports whether the filter was removed.
func (r *Removal) Begun() bool { return r.removed }

// Begin removes the filter.
func (r *Removal) Begin(s *Session, filter string, w *meshv1.SessionWrite) {
	r.removed = true
	name := strings.Clone(filter)
	s.Filters = slices.DeleteFunc(s.Filters, func(f string) bool { return f == name })
	w.RemoveFilters = []string{name}
}

// Step looks at some of the topics, about as many as were said, and reports whether these were the
// last. coming are filters that the session is about to have.
func (r *Removal) Step(s *Session, w *meshv1.SessionWrite, coming []string, most int) (done bool) {
	for n := 0; n < most && len(r.topics)+len(r.heads) > 0; n++ {
		if len(r.topics) == 0 {
			r.topics, r.heads, r.Stored = append(r.topics, r.heads[0].Topic), r.heads[1:], true
		}
		at := r.topics[0]
		if !s.Has(at) { // another position has taken it up
			r.topics, r.search = r.topics[1:], walk.Search{}
			continue
		}
		if r.search == (walk.Search{}) {
			r.added = s.added
		}
		wanted, done, cost := r.search.Step(len(s.Filters), func(i int) bool { return topic.Match(s.Filters[i], at) })
		if n += cost; !done {
			continue
		}
		if !wanted { // the search has not seen what was added since, nor what comes
			since := s.Filters[len(s.Filters)-min(s.added-r.added, len(s.Filters)):]
			n += (len(since) + len(coming)) / walk.SearchedPerUnit
			matches := func(filter string) bool { return topic.Match(filter, at) }
			wanted = slices.ContainsFunc(since, matches) || slices.ContainsFunc(coming, matches)
		}
		r.topics = r.topics[1:]
		switch cur := s.cursors[at]; {
		case wanted && r.Stored:
		case wanted:
			w.Cursors = append(w.Cursors, cur) // another filter of the session goes on from here
		default:
			delete(s.cursors, at)
			w.RemoveTopics = append(w.RemoveTopics, at)
		}
	}
	return len(r.topics)+len(r.heads) == 0
}
