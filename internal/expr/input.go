package expr

import (
	"iter"
	"slices"
	"strings"
	"time"
)

// Input is what expressions are evaluated over: a message, or a candidate. One goroutine at a time
// uses it; programs share it one after the other, and so the payload that was parsed for one of
// them. It is not copied after its first use.
type Input struct {
	Features, Profile Table[float64]
	Headers           Table[string]
	Priority          int64
	Topic, ID, From   string
	Age               float64 // seconds
	Now               time.Time

	payload []byte
	read    bool
	json    document

	names names // what cel-go sees

	// Of the evaluation under way, where it is compiled.
	bad   bool // there is no value
	cost  uint64
	limit uint64
}

// SetPayload gives the message's payload, of which JSON is parsed when the first expression asks
// for it. It must not change until the next call.
func (in *Input) SetPayload(payload []byte) {
	in.payload, in.read = payload, false
	in.json.clear()
}

func (in *Input) document() *document {
	if !in.read {
		in.read = true
		in.json.parse(in.payload)
	}
	return &in.json
}

func (in *Input) begin(limit uint64) {
	in.bad, in.cost, in.limit = false, 0, limit
	in.names.in = in
}

// Table is named values: Map, or where it is nil, Pairs in order of their names without repetition.
type Table[V float64 | string] struct {
	Map   map[string]V
	Pairs []Pair[V]
}

// Pair is one value and its name.
type Pair[V float64 | string] struct {
	Name  string
	Value V
}

// few are found quicker by looking at each.
const few = 12

// Get is the value of a name, and whether there is one.
func (t *Table[V]) Get(name string) (V, bool) {
	if t.Map != nil {
		v, ok := t.Map[name]
		return v, ok
	}
	if len(t.Pairs) <= few {
		for i := range t.Pairs {
			if t.Pairs[i].Name == name {
				return t.Pairs[i].Value, true
			}
		}
	} else if i, ok := slices.BinarySearchFunc(t.Pairs, name, func(p Pair[V], name string) int { return strings.Compare(p.Name, name) }); ok {
		return t.Pairs[i].Value, true
	}
	var none V
	return none, false
}

// All entries, in the order of their names where they are Pairs.
func (t *Table[V]) All() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for name, v := range t.Map {
			if !yield(name, v) {
				return
			}
		}
		if t.Map != nil {
			return
		}
		for i := range t.Pairs {
			if !yield(t.Pairs[i].Name, t.Pairs[i].Value) {
				return
			}
		}
	}
}

// InOrder sorts by name and keeps the last of each, as maps do, in place.
func InOrder[V float64 | string](pairs []Pair[V]) []Pair[V] {
	byName := func(a, b Pair[V]) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(pairs, byName) {
		slices.SortStableFunc(pairs, byName)
	}
	n := 0
	for i, p := range pairs {
		if i+1 < len(pairs) && pairs[i+1].Name == p.Name {
			continue
		}
		pairs[n] = p
		n++
	}
	return pairs[:n]
}

// Len counts the entries.
func (t *Table[V]) Len() int {
	if t.Map != nil {
		return len(t.Map)
	}
	return len(t.Pairs)
}

// sortedNames of all entries, so that comprehensions take them in one order.
func (t *Table[V]) sortedNames() []string {
	names := make([]string, 0, t.Len())
	for name := range t.Map {
		names = append(names, name)
	}
	if t.Map == nil {
		for i := range t.Pairs {
			names = append(names, t.Pairs[i].Name)
		}
	}
	slices.Sort(names)
	return names
}
