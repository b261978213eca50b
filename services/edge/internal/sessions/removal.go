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
	heads   []exchange.Head // of further topics
	quiet   bool            // positions that stay are stored as they are
}

// RemovalOf is about topics with which a subscription was to begin. Where another filter wants one,
// nothing has changed.
func RemovalOf(heads []exchange.Head) Removal { return Removal{heads: heads, quiet: true} }

// Add notes a topic that the subscription alone had a position at.
func (r *Removal) Add(topic string) { r.topics = append(r.topics, topic) }

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
			r.topics, r.heads = append(r.topics, r.heads[0].Topic), r.heads[1:]
		}
		at := r.topics[0]
		if !s.Has(at) { // another position has taken it up
			r.topics, r.search = r.topics[1:], walk.Search{}
			continue
		}
		wanted, done, cost := r.search.Step(len(s.Filters)+len(coming), func(i int) bool {
			if i < len(coming) {
				return topic.Match(coming[i], at)
			}
			return topic.Match(s.Filters[i-len(coming)], at)
		})
		n += cost
		if !done {
			continue
		}
		r.topics = r.topics[1:]
		switch cur := s.cursors[at]; {
		case wanted && r.quiet:
		case wanted:
			w.Cursors = append(w.Cursors, cur) // another filter of the session goes on from here
		default:
			delete(s.cursors, at)
			w.RemoveTopics = append(w.RemoveTopics, at)
		}
	}
	return len(r.topics)+len(r.heads) == 0
}
