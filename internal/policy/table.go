package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Table finds the policy of a topic. It never changes, so it is safe for concurrent use.
type Table struct {
	byPrefix map[string]*Policy
	fallback *Policy
	// refused are those with a Refusal; unknown is that of the whole table.
	refused   []*Policy
	unknown   *code.Error
	keepsLast bool // some policy does
	// barred are those with Barred, historyBarred those with HistoryBarred.
	barred, historyBarred []*Policy
}

// NewTable makes a table of namespaces, over the built-in ones. One that does not pass Check has
// topics under its prefix refused: it came from a newer program, and what it says of its topics, if
// only that they are durable, would be lost by any other policy.
func NewTable(namespaces []*pushmeshv1.Namespace, rules ...Rule) *Table {
	t := &Table{byPrefix: map[string]*Policy{}}
	for _, ns := range Builtin() {
		t.byPrefix[ns.GetPrefix()] = of(ns)
	}
	for _, ns := range namespaces {
		if err := Check(ns, rules...); err != nil {
			t.refused = append(t.refused, notUnderstood(ns, err))
			continue
		}
		t.byPrefix[ns.GetPrefix()] = of(ns)
	}
	for _, p := range t.refused {
		t.byPrefix[p.Prefix] = p
	}
	t.fallback = t.byPrefix[Default]
	for _, prefix := range slices.Sorted(maps.Keys(t.byPrefix)) {
		p := t.byPrefix[prefix]
		t.keepsLast = t.keepsLast || p.KeepLast
		if p.Barred != nil {
			t.barred = append(t.barred, p)
		}
		if p.HistoryBarred != nil {
			t.historyBarred = append(t.historyBarred, p)
		}
	}
	return t
}

// Known is nil for a table of namespaces, and the refusal of every topic while they are not known.
func (t *Table) Known() *code.Error { return t.unknown }

// Refuses is the refusal of a topic, or of a valid filter that may match a topic that is refused;
// nil: none. It costs more than For only where a namespace is not understood.
func (t *Table) Refuses(filter string) *code.Error {
	if len(t.refused) == 0 {
		return nil
	}
	if !topic.IsFilter(filter) {
		return t.For(filter).Refusal
	}
	for _, p := range t.refused {
		if covers(filter, p.Prefix) {
			return p.Refusal
		}
	}
	return nil
}

// Refused are the policies with a Refusal.
func (t *Table) Refused() []*Policy { return t.refused }

// For is the policy of topic: that of the longest prefix of whole levels, else the one of Default;
// never nil. Its cost grows with the topic's levels alone, and it allocates nothing.
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

// AnyDurable reports whether a valid filter may match a topic whose policy is durable.
func (t *Table) AnyDurable(filter string) bool {
	return t.any(filter, func(p *Policy) bool { return p.Durable })
}

// KeepsLast reports whether topics of any namespace keep their last message.
func (t *Table) KeepsLast() bool { return t.keepsLast }

// AnyKeepLast reports whether a valid filter may match a topic that keeps its last message.
func (t *Table) AnyKeepLast(filter string) bool {
	return t.keepsLast && t.any(filter, func(p *Policy) bool { return p.KeepLast })
}

// Nested are the policies of the namespaces right under a prefix: those that no other one between
// covers. Under Default these are all that stand under none.
func (t *Table) Nested(prefix string) (nested []*Policy) {
	for other, p := range t.byPrefix {
		if other == prefix || other == Default || prefix != Default && !topic.Under(prefix, other) {
			continue
		}
		if t.above(other) == prefix {
			nested = append(nested, p)
		}
	}
	return nested
}

// above is the namespace that covers another one's prefix.
func (t *Table) above(prefix string) string {
	for {
		end := strings.LastIndexByte(prefix, '/')
		if end < 0 {
			return Default
		}
		if prefix = prefix[:end]; t.byPrefix[prefix] != nil {
			return prefix
		}
	}
}

// AnyPresence reports whether a valid filter may match a topic whose policy has presence.
func (t *Table) AnyPresence(filter string) bool {
	return t.any(filter, func(p *Policy) bool { return p.Presence })
}

func (t *Table) any(filter string, has func(*Policy) bool) bool {
	if !topic.IsFilter(filter) {
		return has(t.For(filter))
	}
	for prefix, p := range t.byPrefix {
		if has(p) && covers(filter, prefix) {
			return true
		}
	}
	return false
}

// covers reports whether a valid filter with wildcards may match a topic of the namespace with this
// prefix.
func covers(filter, prefix string) bool {
	if prefix[0] == '$' && (filter[0] == '+' || filter[0] == '#') {
		return false // no wildcard there matches the mesh's own
	}
	return prefix == Default || meets(filter, prefix)
}

// DurableEvents are the kinds of events of which some topic is durable: they are published whoever
// listens.
func (t *Table) DurableEvents() (m events.Mask) {
	for _, k := range events.All() {
		if t.For(k.Topic()).Durable {
			m |= events.Of(k)
		}
	}
	for prefix, p := range t.byPrefix {
		if p.Durable && prefix != Events && events.IsEvent(prefix) {
			m |= events.KindsOf(prefix)
		}
	}
	return m
}

// meets reports whether a filter may match a topic under prefix.
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
