package sessions

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// pending is what waits to be written for one session: many Saves merged, of which the last word on
// each topic and filter counts.
type pending struct {
	generation uint64
	cursors    map[string]*meshv1.SessionCursor // nil: to be removed
	filters    map[string]bool                  // false: to be removed
	dead       []*meshv1.DeadLetter
	detach     bool
	refs       []ref
	size       int // bytes of what was merged, an upper bound
	tries      int
}

// ref is a Save that wants an answer.
type ref struct {
	conn exchange.Conn
	ref  uint32
}

func newPending(generation uint64) *pending {
	return &pending{generation: generation, cursors: map[string]*meshv1.SessionCursor{}, filters: map[string]bool{}}
}

// merge adds a newer write.
func (p *pending) merge(w *meshv1.SessionWrite) {
	for _, t := range w.GetRemoveTopics() {
		p.cursors[t] = nil
	}
	for _, c := range w.GetCursors() {
		p.cursors[c.GetTopic()] = c
	}
	for _, f := range w.GetRemoveFilters() {
		p.filters[f] = false
	}
	for _, f := range w.GetAddFilters() {
		p.filters[f] = true
	}
	p.dead = append(p.dead, w.GetDeadLetters()...)
	p.detach = p.detach || w.GetDetach()
	p.size += proto.Size(w)
}

// before puts an older one, whose write failed, under p.
func (p *pending) before(older *pending) {
	maps.Copy(older.cursors, p.cursors)
	maps.Copy(older.filters, p.filters)
	p.cursors, p.filters = older.cursors, older.filters
	p.dead = append(older.dead, p.dead...)
	p.detach = p.detach || older.detach
	p.refs = append(older.refs, p.refs...)
	p.size += older.size
	p.tries = older.tries
}

// bare says that nothing but the end of the hold is to be written.
func (p *pending) bare() bool { return p.detach && len(p.cursors)+len(p.filters)+len(p.dead) == 0 }

// write makes the request of it, in a stable order.
func (p *pending) write(user, name string) *meshv1.SessionWrite {
	w := &meshv1.SessionWrite{User: user, Name: name, Generation: p.generation, DeadLetters: p.dead, Detach: p.detach}
	for _, t := range slices.Sorted(maps.Keys(p.cursors)) {
		if c := p.cursors[t]; c != nil {
			w.Cursors = append(w.Cursors, c)
		} else {
			w.RemoveTopics = append(w.RemoveTopics, t)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(p.filters)) {
		if p.filters[f] {
			w.AddFilters = append(w.AddFilters, f)
		} else {
			w.RemoveFilters = append(w.RemoveFilters, f)
		}
	}
	return w
}
