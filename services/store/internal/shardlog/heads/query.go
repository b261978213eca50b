package heads

import (
	"slices"
	"sort"
	"strings"

	"github.com/pushmesh/pushmesh/internal/topic"
)

// Query finds the topics that match one of some filters, a shard's after another's. It is one
// goroutine's.
type Query struct {
	filters []filter
	all     topic.Index[int]
	met     []int
	lists   [][]uint32
	alone   [][1]uint32
}

// Len is how many different filters there are.
func (q *Query) Len() int { return len(q.filters) }

// filter is one of a query, which must be valid.
type filter struct {
	text string
	// words are the hashes that the topics have which it matches; none: they may be any.
	words []uint32
	exact bool
}

// NewQuery prepares filters, which must be valid.
func NewQuery(filters []string) *Query {
	q := &Query{}
	for i, text := range slices.Compact(slices.Sorted(slices.Values(filters))) {
		q.all.Add(text, i)
		q.filters = append(q.filters, newFilter(text))
	}
	return q
}

func newFilter(text string) filter {
	f := filter{text: text, exact: !topic.IsFilter(text)}
	level, whole := 0, true
	for rest, more := text, true; more; level++ {
		var word string
		word, rest, more = strings.Cut(rest, "/")
		switch word {
		case "#":
			whole = false
		case "+":
		default:
			f.words = append(f.words, wordHash(level, word))
		}
	}
	if whole {
		f.words = append(f.words, countHash(level))
	}
	return f
}

// Cursor is how far a query is with a table: filters before filter are done, and so are numbers up
// to topic. Whole: the table is searched name by name, for all filters at once.
type Cursor struct {
	filter int
	topic  uint32
	whole  bool
	begun  bool
	ended  bool
}

// Stopped reports whether visit wanted no more.
func (c *Cursor) Stopped() bool { return c.ended }

// Match visits topics that match, behind what a cursor has passed, until visit returns false or
// most topics were looked at, at least one. more says that there is something left; not where visit
// returned false. Names that several filters match may come more than once; they are visit's to
// keep.
func (t *Table) Match(q *Query, at *Cursor, most int, visit func(name string, t *Topic) bool) (more bool) {
	if t == nil || t.n == 0 {
		return false
	}
	if !at.begun {
		at.begun = true
		at.whole = t.cheaperWhole(q)
	}
	if at.whole {
		return t.matchWhole(q, at, most, visit)
	}
	for ; at.filter < len(q.filters); at.filter++ {
		if most <= 0 {
			return true
		}
		looked, how := t.matchOne(q, &q.filters[at.filter], at, most, visit)
		if how != finished {
			at.ended = how == stopped
			return how == paused
		}
		most -= looked
		at.topic = 0
	}
	return false
}

// outcome of a step.
type outcome int

const (
	finished outcome = iota
	paused           // there is more to look at
	stopped          // visit wants no more
)

// lookUp is about what finding a word costs by what comparing a name does.
const lookUp = 2

// cheaperWhole reports whether looking at every name once costs less than what filter by filter
// would be.
func (t *Table) cheaperWhole(q *Query) bool {
	if len(q.filters) == 1 {
		return false
	}
	cost := lookUp * len(q.filters)
	for i := range q.filters {
		if cost += t.least(&q.filters[i]); cost > t.n {
			return true
		}
	}
	return false
}

// Cost is about how many topics are looked at for a query.
func (t *Table) Cost(q *Query) (n int) {
	for i := range q.filters {
		if n += t.least(&q.filters[i]); n >= t.n {
			return t.n
		}
	}
	return n
}

// least is the number of topics that have a filter's rarest word.
func (t *Table) least(f *filter) int {
	if f.exact {
		return 1
	}
	n := t.n
	var alone [1]uint32
	for _, h := range f.words {
		n = min(n, len(t.levels.having(h, &alone)))
	}
	return n
}

func (t *Table) matchWhole(q *Query, at *Cursor, most int, visit func(name string, t *Topic) bool) (more bool) {
	end := min(uint32(t.n), at.topic+uint32(most))
	for at.topic < end {
		at.topic++
		found := t.at(at.topic)
		name := t.names.view(found.name)
		if found.epoch == 0 {
			continue
		}
		if q.met = q.all.Match(q.met[:0], name); len(q.met) > 0 && !visit(strings.Clone(name), found) {
			at.ended = true
			return false
		}
	}
	return at.topic < uint32(t.n)
}

// matchOne is Match of one filter. looked is how many topics it has looked at, or what else that
// cost.
func (t *Table) matchOne(q *Query, f *filter, at *Cursor, most int, visit func(name string, t *Topic) bool) (looked int, how outcome) {
	if f.exact {
		if found := t.Get(f.text); found != nil && !visit(f.text, found) {
			return 1, stopped
		}
		return 1, finished
	}
	visitOne := func(n uint32) bool {
		found := t.at(n)
		name := t.names.view(found.name)
		return found.epoch == 0 || !topic.Match(f.text, name) || visit(strings.Clone(name), found)
	}
	if len(f.words) == 0 {
		for ; at.topic < uint32(t.n); looked++ {
			if looked == most {
				return looked, paused
			}
			if at.topic++; !visitOne(at.topic) {
				return looked, stopped
			}
		}
		return looked, finished
	}
	sorted := q.listsOf(f, t, at.topic) // a topic that matches is in all of them
	if sorted == nil {
		return lookUp, finished
	}
	slices.SortFunc(sorted, func(a, b []uint32) int { return len(a) - len(b) })
next:
	for _, n := range sorted[0] {
		if looked == most {
			return looked, paused
		}
		looked++
		at.topic = n
		for i := range sorted[1:] {
			list := &sorted[1+i]
			*list = (*list)[behind(*list, n-1):]
			if len(*list) == 0 {
				return looked, finished
			}
			if (*list)[0] != n {
				continue next
			}
		}
		if !visitOne(n) {
			return looked, stopped
		}
	}
	return looked + lookUp, finished
}

// listsOf are the topics that have each word of a filter, behind a number; nil: of one word there
// is none.
func (q *Query) listsOf(f *filter, t *Table, n uint32) [][]uint32 {
	q.lists = q.lists[:0]
	if len(q.alone) < len(f.words) {
		q.alone = make([][1]uint32, len(f.words))
	}
	for i, h := range f.words {
		list := t.levels.having(h, &q.alone[i])
		if list = list[behind(list, n):]; len(list) == 0 {
			return nil
		}
		q.lists = append(q.lists, list)
	}
	return q.lists
}

// behind is how many numbers of a list are at most n: near ones are found soonest.
func behind(list []uint32, n uint32) int {
	end := 1
	for end <= len(list) && list[end-1] <= n {
		end *= 2
	}
	begin := end / 2
	end = min(end-1, len(list))
	return begin + sort.Search(end-begin, func(i int) bool { return list[begin+i] > n })
}
