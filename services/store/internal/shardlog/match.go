package shardlog

import (
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog/heads"
)

// matchedAtATime is how many names are compared under one lock: an append waits for no more.
const matchedAtATime = 1024

// matching visits the topics that match a query until visit returns false. mu is held for some of
// them at a time: topics that come or go meanwhile are visited or not.
func (s *state) matching(q *heads.Query, visit func(name string, t *heads.Topic) bool) {
	for _, n := range s.owned() {
		var at heads.Cursor
		topics := s.topicsOf(n)
		for more := topics != nil; more; {
			if more = s.matchingSome(n, topics, q, &at, visit); at.Stopped() {
				return
			}
		}
	}
}

// atMost reports whether no more topics than that are to be looked at for a query.
func (s *state) atMost(q *heads.Query, most int) bool {
	n := 0
	for _, shard := range s.owned() {
		s.mu.RLock()
		if sh := s.shards[shard]; sh != nil {
			n += sh.topics.Cost(q)
		}
		s.mu.RUnlock()
		if n > most {
			return false
		}
	}
	return true
}

// topicsOf are those of an owned shard; nil: it is not owned. A query looks at one table from its
// beginning to its end, also where another one takes its place meanwhile.
func (s *state) topicsOf(shard int) *heads.Table {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if sh := s.shards[shard]; sh != nil {
		return sh.topics
	}
	return nil
}

func (s *state) matchingSome(shard int, topics *heads.Table, q *heads.Query, at *heads.Cursor, visit func(name string, t *heads.Topic) bool) (more bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.shards[shard] == nil {
		return false
	}
	return topics.Match(q, at, matchedAtATime, visit)
}

// matcher finds the names that match filters among ordered ones. It looks only at those that begin
// as a filter does, up to its first wildcard.
type matcher struct {
	index  topic.Index[int]
	ranges []nameRange
	found  []int
}

// nameRange holds names from from on, below to ("": to the end).
type nameRange struct{ from, to string }

func newMatcher(filters []string) *matcher {
	m := &matcher{}
	var all []nameRange
	for i, f := range filters {
		m.index.Add(f, i)
		all = append(all, rangesOf(f)...)
	}
	slices.SortFunc(all, func(a, b nameRange) int { return strings.Compare(a.from, b.from) })
	for _, r := range all { // they overlap where one filter is under another
		if n := len(m.ranges); n > 0 && (m.ranges[n-1].to == "" || r.from < m.ranges[n-1].to) {
			if last := &m.ranges[n-1]; last.to != "" && (r.to == "" || r.to > last.to) {
				last.to = r.to
			}
			continue
		}
		m.ranges = append(m.ranges, r)
	}
	return m
}

// rangesOf are where the names lie that a filter may match.
func rangesOf(filter string) []nameRange {
	end := strings.IndexAny(filter, "+#")
	switch {
	case end < 0:
		return []nameRange{{filter, filter + "\x00"}}
	case end == 0:
		return []nameRange{{}}
	}
	prefix := filter[:end-1] // without the separator
	below := nameRange{prefix + "/", prefix + string(rune('/'+1))}
	if filter[end] == '#' { // it covers the level above, too
		return []nameRange{{prefix, prefix + "\x00"}, below}
	}
	return []nameRange{below}
}

// names visits the names behind after that match, in order, until visit returns false. mu is held
// for some of them at a time: names that come or go meanwhile are visited or not.
func (m *matcher) names(mu *sync.RWMutex, all *btree.Set[string], after string, visit func(name string) bool) {
	for _, r := range m.ranges {
		if r.to != "" && r.to <= after {
			continue
		}
		at := r.from
		if after != "" && at <= after {
			at = after + "\x00"
		}
		for next, more := at, true; more; {
			if next, more = m.some(mu, all, next, r.to, visit); !more && next != "" {
				return
			}
		}
	}
}

// some visits names from one on, and says where to go on. Without more it is "" where the range
// ended, and anything else where visit wanted no more.
func (m *matcher) some(mu *sync.RWMutex, all *btree.Set[string], from, to string, visit func(name string) bool) (next string, more bool) {
	mu.RLock()
	defer mu.RUnlock()
	n := 0
	all.Ascend(from, func(name string) bool {
		if to != "" && name >= to {
			return false
		}
		if n++; n > matchedAtATime {
			next, more = name, true
			return false
		}
		if m.found = m.index.Match(m.found[:0], name); len(m.found) > 0 && !visit(name) {
			next = name
			return false
		}
		return true
	})
	return next, more
}
