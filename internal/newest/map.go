package newest

import (
	"iter"
	"maps"
)

// Map is a map that does not change: With makes another one. What changed lately lies apart from
// what did before that, so that a change copies the first, which is small. The zero Map is empty.
// It is safe for concurrent use.
type Map[K comparable, V any] struct{ recent, settled map[K]V }

// SettleAt is how many recent changes become a part of what is settled.
const SettleAt = 1024

// Get is the value of a key. It looks into two maps.
func (m Map[K, V]) Get(key K) (V, bool) {
	if v, is := m.recent[key]; is {
		return v, true
	}
	v, is := m.settled[key]
	return v, is
}

// With is the map after changes. Values that are over may go, with those keys.
func (m Map[K, V]) With(changes map[K]V, over func(V) bool) Map[K, V] {
	if len(changes) == 0 {
		return m
	}
	next := Map[K, V]{recent: make(map[K]V, len(m.recent)+len(changes)), settled: m.settled}
	maps.Copy(next.recent, m.recent)
	maps.Copy(next.recent, changes)
	if len(next.recent) >= SettleAt {
		return next.Settled(over)
	}
	return next
}

// Settled is the map without what is recent and what is over: all is in one place.
func (m Map[K, V]) Settled(over func(V) bool) Map[K, V] {
	all := make(map[K]V, len(m.settled)+len(m.recent))
	maps.Copy(all, m.settled)
	maps.Copy(all, m.recent)
	maps.DeleteFunc(all, func(_ K, v V) bool { return over(v) })
	return Map[K, V]{settled: all}
}

// Recent is how many changes a further one copies.
func (m Map[K, V]) Recent() int { return len(m.recent) }

// All is each key with its value, those that are over among them.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for key, v := range m.recent {
			if !yield(key, v) {
				return
			}
		}
		for key, v := range m.settled {
			if _, again := m.recent[key]; !again && !yield(key, v) {
				return
			}
		}
	}
}
