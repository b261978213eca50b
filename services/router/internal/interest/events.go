package interest

import "github.com/pushmesh/pushmesh/internal/events"

// eventFilters counts a view's filters that ask for events, by kind.
type eventFilters struct {
	counts [events.Kinds]uint32
	kinds  events.Mask
}

// note that a filter came (by is 1) or went (-1).
func (f *eventFilters) note(filter string, by int) {
	if !events.IsEvent(filter) {
		return
	}
	for _, k := range events.All() {
		if !events.KindsOf(filter).Has(k) {
			continue
		}
		if f.counts[k] += uint32(by); f.counts[k] > 0 {
			f.kinds |= events.Of(k)
		} else {
			f.kinds &^= events.Of(k)
		}
	}
}

// EventKinds are the kinds of events that any edge has a subscriber for.
func (t *Table) EventKinds() (kinds events.Mask) {
	for _, e := range t.edges {
		if e.active != nil {
			kinds |= e.active.events.kinds
		}
	}
	return kinds
}
