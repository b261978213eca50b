package expr

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/pushmesh/pushmesh/internal/recent"
)

// Cache keeps programs by text and kind, those that were used last, and refusals like them. Who
// asks for what is being compiled waits for it.
type Cache struct {
	limits Limits

	mu      sync.Mutex
	entries *recent.Cache[cacheKey, *cacheEntry]
}

// errUnfinished is what remains of a compilation that panicked.
var errUnfinished = errors.New("the expression was not compiled")

type cacheKey struct {
	text string
	kind Kind
}

type cacheEntry struct {
	once    sync.Once
	done    atomic.Bool // once has been
	program *Program
	err     error
}

// NewCache makes a cache of at most size programs. One of 4 KiB of text holds about 200 KiB of
// memory, usual ones a few.
func NewCache(size int, limits Limits) *Cache {
	return &Cache{limits: limits, entries: recent.New[cacheKey, *cacheEntry](max(size, 1))}
}

// Compile is the function Compile, once for equal expressions.
func (c *Cache) Compile(text string, kind Kind) (*Program, error) {
	if len(text) > MaxText {
		return Compile(text, kind, c.limits) // refused, and not kept
	}
	e := c.entry(cacheKey{text, kind})
	e.once.Do(func() {
		defer e.done.Store(true)
		e.program, e.err = Compile(text, kind, c.limits)
	})
	return e.program, e.err
}

// Ready reports whether Compile answers at once. Otherwise it takes up to some hundred
// milliseconds, for texts that are made to.
func (c *Cache) Ready(text string, kind Kind) bool {
	if len(text) > MaxText {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// so that it is still there when it is asked for
	found, ok := c.entries.Get(cacheKey{text, kind})
	return ok && found.done.Load()
}

// Len counts what is kept.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Len()
}

func (c *Cache) entry(key cacheKey) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.entries.Get(key); ok {
		return found
	}
	e := &cacheEntry{err: errUnfinished}
	c.entries.Put(key, e, 1)
	return e
}
