package models

import (
	"github.com/pushmesh/pushmesh/internal/recent"
	"github.com/pushmesh/pushmesh/internal/trees"
)

// cache holds models until together they take more than some bytes.
type cache struct {
	*recent.Cache[key, *trees.Model]
}

func newCache(most int) cache { return cache{recent.New[key, *trees.Model](most)} }

// newest version of a name that is here; nil: none is.
func (c cache) newest(name string) (found *trees.Model, version uint64) {
	for k := range c.All() {
		if k.name == name && k.version > version {
			version = k.version
		}
	}
	found, _ = c.Get(key{name, version})
	return found, version
}

// keep removes all that f refuses.
func (c cache) keep(f func(key) bool) {
	for k := range c.All() {
		if !f(k) {
			c.Remove(k)
		}
	}
}
