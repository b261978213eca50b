package policy

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func barred(ns *pushmeshv1.Namespace) *code.Error {
	if ns.GetPolicy().GetClientSubscribe() != pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE {
		return nil
	}
	return code.New(wirev1.Code_CODE_FORBIDDEN, "no client may subscribe here (rule namespace:"+ns.GetPrefix()+", client_subscribe none)")
}

func historyBarred(ns *pushmeshv1.Namespace) *code.Error {
	if ns.GetPolicy().GetClientHistory() != pushmeshv1.ClientHistory_CLIENT_HISTORY_NONE {
		return nil
	}
	return code.New(wirev1.Code_CODE_FORBIDDEN, "clients may not read here what was published before they subscribed (rule namespace:"+ns.GetPrefix()+
		", client_history none): subscribe with start LIVE, without positions and without group")
}

// Bars is why clients may not subscribe to a topic, or to a valid filter that matches a topic of a
// namespace that no client may subscribe to; nil: they may. A filter with wildcards costs a look at
// each such namespace.
func (t *Table) Bars(filter string) *code.Error {
	return t.bars(t.barred, filter, func(p *Policy) *code.Error { return p.Barred })
}

// BarsHistory is why clients may not read what was published before they subscribed, as Bars is.
func (t *Table) BarsHistory(filter string) *code.Error {
	return t.bars(t.historyBarred, filter, func(p *Policy) *code.Error { return p.HistoryBarred })
}

// Barred is how many namespaces no client may subscribe to.
func (t *Table) Barred() int { return len(t.barred) }

func (t *Table) bars(among []*Policy, filter string, why func(*Policy) *code.Error) *code.Error {
	if len(among) == 0 {
		return nil
	}
	if !topic.IsFilter(filter) {
		return why(t.For(filter))
	}
	for _, p := range among {
		if t.applies(p, filter) {
			return why(p)
		}
	}
	return nil
}

// applies reports whether p is the policy of some topic that a filter with wildcards matches. Where
// a longer prefix covers all of those that p covers, it isn't.
func (t *Table) applies(p *Policy, filter string) bool {
	if !covers(filter, p.Prefix) {
		return false
	}
	if p.Prefix == Default {
		return t.For(literal(filter)) == p
	}
	// What the filter matches under the prefix begins with the prefix, and then has the levels that
	// the filter has there.
	rest := filter
	for range 1 + strings.Count(p.Prefix, "/") {
		level, after, more := strings.Cut(rest, "/")
		if level == "#" {
			return true
		}
		if !more {
			return t.For(p.Prefix) == p
		}
		rest = after
	}
	if rest[0] == '+' || rest[0] == '#' {
		return true
	}
	return t.For(p.Prefix+"/"+literal(rest)) == p
}
