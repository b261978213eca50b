// Package candidates packs what is ranked for its way to a compute node, and unpacks it there:
// lists of one kind of value each instead of a message with maps for each candidate, and only what
// the scoring looks at.
package candidates

import (
	"encoding/binary"
	"slices"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// noTime are the nanoseconds of a candidate without published_at.
const noTime = 1_000_000_000

// Pack what a scoring needs of candidates. One that a scorer would refuse is an error, even for
// what is left out.
func Pack(all []score.Candidate, needs *score.Needs) (*meshv1.PackedCandidates, error) {
	out := &meshv1.PackedCandidates{Count: uint32(len(all))}
	for i := range all {
		if err := all[i].Check(i); err != nil {
			return nil, err
		}
	}
	s := &sets{of: map[string]uint32{}}
	if needs.Features {
		out.FeatureSets, out.Features = packTables(s, all, needs.FeatureNames, func(c *score.Candidate) *expr.Table[float64] { return &c.Features })
	}
	if needs.Headers {
		which, values := packTables(s, all, nil, func(c *score.Candidate) *expr.Table[string] { return &c.Headers })
		out.HeaderSets, out.Headers = which, packTexts(len(values), func(i int) string { return values[i] })
	}
	out.Sets = s.all
	out.Priorities = packPriorities(all)
	if needs.PublishedAt {
		packTimes(out, all)
	}
	if needs.Vector {
		packVectors(out, all)
	}
	if needs.ID {
		out.Ids = packTexts(len(all), func(i int) string { return all[i].ID })
	}
	if needs.Topic {
		out.Topics = packTexts(len(all), func(i int) string { return all[i].Topic })
	}
	if needs.Payload {
		out.Payloads = packTexts(len(all), func(i int) []byte { return all[i].Payload })
	}
	return out, nil
}

// sets of names by their place. Most candidates have the set of the one before.
type sets struct {
	all  []*meshv1.NameSet
	of   map[string]uint32 // by the names, each behind its length
	last uint32
	key  []byte
}

// lastNames are those of the set that was found last.
func (s *sets) lastNames() []string {
	if len(s.all) == 0 {
		return nil
	}
	return s.all[s.last].GetNames()
}

// find the set of names, which are ascending, or make it.
func (s *sets) find(names []string) uint32 {
	if len(s.all) > 0 && slices.Equal(names, s.lastNames()) {
		return s.last
	}
	s.key = s.key[:0]
	for _, name := range names {
		s.key = append(binary.AppendUvarint(s.key, uint64(len(name))), name...)
	}
	at, known := s.of[string(s.key)]
	if !known {
		at = uint32(len(s.all))
		s.of[string(s.key)] = at
		s.all = append(s.all, &meshv1.NameSet{Names: slices.Clone(names)})
	}
	s.last = at
	return at
}

// packTables of all candidates: which set of names each has, and the values; none: no candidate has
// any. names are those wanted; nil: all.
func packTables[V float64 | string](s *sets, all []score.Candidate, names []string, of func(*score.Candidate) *expr.Table[V]) (which []uint32, values []V) {
	which, values = make([]uint32, len(all)), make([]V, 0, entries(all, names, of))
	var found []string
	for i := range all {
		found, values = appendEntries(of(&all[i]), names, s.lastNames(), found[:0], values)
		which[i] = s.find(found)
	}
	if len(values) == 0 {
		return nil, nil
	}
	return which, values
}

// entries is how many values the tables have at most. They are counted, not guessed from the first:
// what a request makes room for is bounded by its size.
func entries[V float64 | string](all []score.Candidate, names []string, of func(*score.Candidate) *expr.Table[V]) (n int) {
	for i := range all {
		t := of(&all[i])
		has := len(t.Map) + len(t.Pairs)
		if names != nil {
			has = min(has, len(names))
		}
		n += has
	}
	return n
}

// appendEntries of a table, by name. likely are names that it may have.
func appendEntries[V float64 | string](t *expr.Table[V], wanted, likely, names []string, values []V) ([]string, []V) {
	if wanted == nil && t.Map == nil {
		for i := range t.Pairs {
			names, values = append(names, t.Pairs[i].Name), append(values, t.Pairs[i].Value)
		}
		return names, values
	}
	if wanted == nil {
		if wanted = likely; !hasJust(t.Map, likely) {
			for name := range t.Map {
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				values = append(values, t.Map[name])
			}
			return names, values
		}
	}
	for _, name := range wanted {
		if v, ok := t.Get(name); ok {
			names, values = append(names, name), append(values, v)
		}
	}
	return names, values
}

// hasJust reports whether a map has these names and no other.
func hasJust[V any](m map[string]V, names []string) bool {
	if len(m) != len(names) {
		return false
	}
	for _, name := range names {
		if _, ok := m[name]; !ok {
			return false
		}
	}
	return true
}

// packTexts of so many, one after the other.
func packTexts[T string | []byte](n int, of func(i int) T) *meshv1.PackedTexts {
	size := 0
	for i := range n {
		size += len(of(i))
	}
	out := &meshv1.PackedTexts{Texts: make([]byte, 0, size), Lengths: make([]uint32, n)}
	for i := range n {
		out.Texts, out.Lengths[i] = append(out.GetTexts(), of(i)...), uint32(len(of(i)))
	}
	return out
}

func packPriorities(all []score.Candidate) []byte {
	if !slices.ContainsFunc(all, func(c score.Candidate) bool { return c.Priority != 0 }) {
		return nil
	}
	out := make([]byte, len(all))
	for i := range all {
		out[i] = byte(all[i].Priority)
	}
	return out
}

func packTimes(out *meshv1.PackedCandidates, all []score.Candidate) {
	if !slices.ContainsFunc(all, func(c score.Candidate) bool { return c.PublishedAt.Set }) {
		return
	}
	out.PublishedSeconds, out.PublishedNanos = make([]int64, len(all)), make([]uint32, len(all))
	for i := range all {
		t := all[i].PublishedAt
		if out.PublishedSeconds[i], out.PublishedNanos[i] = t.Seconds, uint32(t.Nanos); !t.Set {
			out.PublishedNanos[i] = noTime
		}
	}
}

func packVectors(out *meshv1.PackedCandidates, all []score.Candidate) {
	size := 0
	for i := range all {
		size += len(all[i].Vector)
	}
	if size == 0 {
		return
	}
	out.Dimensions, out.Vectors = make([]uint32, len(all)), make([]float32, 0, size)
	for i := range all {
		out.Dimensions[i], out.Vectors = uint32(len(all[i].Vector)), append(out.GetVectors(), all[i].Vector...)
	}
}
