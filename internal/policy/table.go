package policy

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Table finds the policy of a topic. It never changes, so it is safe for concurrent use.
type Table struct {
	byPrefix map[string]*Policy
	fallback *Policy
}

// NewTable makes a table of namespaces that passed Check, over the built-in ones.
func NewTable(namespaces []*pushmeshv1.Namespace) *Table {
	t := &Table{byPrefix: map[string]*Policy{}}
	for _, ns := range Builtin() {
		t.byPrefix[ns.GetPrefix()] = of(ns)
	}
	for _, ns := range namespaces {
		t.byPrefix[ns.GetPrefix()] = of(ns)
	}
	t.fallback = t.byPrefix[Default]
	return t
}

// For is the policy of topic: that of the longest prefix of whole levels, else the one of Default; never nil.
// Its cost grows with the topic's levels alone, and it allocates nothing.
func (t *Table) For(topic string) *Policy {
	for prefix := topic; ; {
		if p := t.byPrefix[prefix]; p != nil {
			return p
		}
		end := strings.LastIndexByte(prefix, '/')
		if end < 0 {
			return t.fallback
		}
		prefix = prefix[:end]
	}
}

// Of is the policy of exactly this namespace; nil: there is none.
func (t *Table) Of(prefix string) *Policy { return t.byPrefix[prefix] }

// Len is the number of namespaces.
func (t *Table) Len() int { return len(t.byPrefix) }

// AnyDurable says whether a valid filter may match a topic whose policy is durable.
func (t *Table) AnyDurable(filter string) bool {
	return t.any(filter, func(p *Policy) bool { return p.Durable })
}

// AnyPresence says whether a valid filter may match a topic whose policy has presence.
func (t *Table) AnyPresence(filter string) bool {
	return t.any(filter, func(p *Policy) bool { return p.Presence })
}

func (t *Table) any(filter string, has func(*Policy) bool) bool {
	if !topic.IsFilter(filter) {
		return has(t.For(filter))
	}
	for prefix, p := range t.byPrefix {
		if prefix[0] == '$' && (filter[0] == '+' || filter[0] == '#') {
			continue // no wildcard there matches the mesh's own
		}
		if has(p) && (prefix == Default || meets(filter, prefix)) {
			return true
		}
	}
	return false
}

// DurableEvents are the kinds of events of which some topic is durable: they are published whoever listens.
func (t *Table) DurableEvents() (m events.Mask) {
	for _, k := range events.All() {
		if t.For(k.Topic()).Durable {
			m |= events.Of(k)
		}
	}
	for prefix, p := range t.byPrefix {
		if p.Durable && prefix != Events && events.Own(prefix) {
			m |= events.Wanted(prefix)
		}
	}
	return m
}

// meets says whether a filter may match a topic under prefix.
func meets(filter, prefix string) bool {
	for {
		f, frest, fmore := strings.Cut(filter, "/")
		p, prest, pmore := strings.Cut(prefix, "/")
		switch {
		case f == "#":
			return true
		case f != "+" && f != p:
			return false
		case !pmore:
			return true
		case !fmore:
			return false
		}
		filter, prefix = frest, prest
	}
}
