// Package recent keeps what was used last, up to what it may cost.
package recent

import (
	"container/list"
	"iter"
)

// Cache holds values by key until together they cost more than most; then those go that were asked
// for longest ago. Costs are in a unit of the caller's: bytes, or 1 for each. It is not safe for
// concurrent use.
type Cache[K comparable, V any] struct {
	most, cost int
	order      list.List // of *entry, the last used in front
	at         map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
	cost  int
}

// New makes a cache.
func New[K comparable, V any](most int) *Cache[K, V] {
	return &Cache[K, V]{most: most, at: map[K]*list.Element{}}
}

// Get returns a value, which counts as used then.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	at, ok := c.at[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(at)
	return at.Value.(*entry[K, V]).value, true
}

// Put keeps a value in place of what the key had. It says how many others had to go, and false
// where the value costs too much by itself: then the key has none.
func (c *Cache[K, V]) Put(key K, value V, cost int) (gone int, ok bool) {
	c.Remove(key)
	if cost > c.most {
		return 0, false
	}
	for c.cost+cost > c.most {
		c.Remove(c.order.Back().Value.(*entry[K, V]).key)
		gone++
	}
	c.at[key] = c.order.PushFront(&entry[K, V]{key, value, cost})
	c.cost += cost
	return gone, true
}

// Has reports whether a value is kept, and does not use it.
func (c *Cache[K, V]) Has(key K) bool { return c.at[key] != nil }

// Remove forgets a value, if there is one.
func (c *Cache[K, V]) Remove(key K) {
	if at, ok := c.at[key]; ok {
		c.cost -= c.order.Remove(at).(*entry[K, V]).cost
		delete(c.at, key)
	}
}

// Len counts what is kept.
func (c *Cache[K, V]) Len() int { return len(c.at) }

// Cost is that of all that is kept.
func (c *Cache[K, V]) Cost() int { return c.cost }

// Most is what all that is kept may cost.
func (c *Cache[K, V]) Most() int { return c.most }

// All has what is kept, in no order, and uses none of it; what is seen may be removed meanwhile.
func (c *Cache[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, at := range c.at {
			if !yield(k, at.Value.(*entry[K, V]).value) {
				return
			}
		}
	}
}
