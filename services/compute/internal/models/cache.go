package models

import (
	"container/list"

	"github.com/pushmesh/pushmesh/internal/trees"
)

// cache holds models until together they take more than most bytes; then those go that were asked
// for longest ago.
type cache struct {
	most, bytes int
	order       *list.List // of *entry, the latest first
	at          map[key]*list.Element
}

type entry struct {
	key
	model *trees.Model
	bytes int
}

func newCache(most int) cache {
	return cache{most: most, order: list.New(), at: map[key]*list.Element{}}
}

func (c *cache) get(k key) *trees.Model {
	e := c.at[k]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry).model
}

// newest version of a name that is here; nil: none is.
func (c *cache) newest(name string) (found *trees.Model, version uint64) {
	for k := range c.at {
		if k.name == name && k.version > version {
			version = k.version
		}
	}
	return c.get(key{name, version}), version
}

// add says how many had to go, and false where the model is too large by itself.
func (c *cache) add(k key, m *trees.Model, bytes int) (gone int, ok bool) {
	c.remove(k)
	if bytes > c.most {
		return 0, false
	}
	for c.bytes+bytes > c.most {
		c.remove(c.order.Back().Value.(*entry).key)
		gone++
	}
	c.at[k] = c.order.PushFront(&entry{k, m, bytes})
	c.bytes += bytes
	return gone, true
}

func (c *cache) remove(k key) {
	if e := c.at[k]; e != nil {
		c.order.Remove(e)
		delete(c.at, k)
		c.bytes -= e.Value.(*entry).bytes
	}
}

// keep removes all that f refuses.
func (c *cache) keep(f func(key) bool) {
	for k := range c.at {
		if !f(k) {
			c.remove(k)
		}
	}
}
