// Package crew orders what waits for several goroutines: that of different topics at once, that of
// one topic in order.
package crew

import "slices"

// Crew is what waits of all topics. Its caller guards it.
type Crew[T any] struct {
	// Most goroutines at once; 0: whoever asks takes what waits, and More tells of it.
	Most int
	// Working are how many there are.
	Working int

	topics  map[string]*Post[T] // with something that waits, or is being handled
	ready   []*Post[T]          // with something that waits, and nothing that is being handled
	waiting int
	bytes   int
	more    chan struct{} // closed and replaced when something is ready
}

// Post is what waits of one topic.
type Post[T any] struct {
	topic string
	queue []entry[T]
}

type entry[T any] struct {
	it   T
	size int
}

// New is an empty crew.
func New[T any](most int) *Crew[T] {
	return &Crew[T]{Most: most, topics: map[string]*Post[T]{}, more: make(chan struct{})}
}

// Waiting is how many wait, and their bytes.
func (c *Crew[T]) Waiting() (n, bytes int) { return c.waiting, c.bytes }

// More is closed once more is ready than now.
func (c *Crew[T]) More() <-chan struct{} { return c.more }

// Put leaves something behind all else of its topic.
func (c *Crew[T]) Put(topic string, it T, size int) {
	p := c.topics[topic]
	if p == nil {
		p = &Post[T]{topic: topic}
		c.topics[topic] = p
		defer c.offer(p)
	}
	p.queue = append(p.queue, entry[T]{it, size})
	c.waiting++
	c.bytes += size
}

// Next takes what is next of a topic of which nothing is being handled; a nil Post: there is
// nothing. Handled says that it was dealt with.
func (c *Crew[T]) Next() (p *Post[T], it T) {
	if len(c.ready) == 0 {
		return nil, it
	}
	p = c.ready[0]
	c.ready = c.ready[1:]
	if len(c.ready) == 0 {
		c.ready = nil
	}
	e := p.queue[0]
	p.queue[0] = entry[T]{}
	p.queue = p.queue[1:]
	c.waiting--
	c.bytes -= e.size
	return p, e.it
}

// Handled has what waits of the topic be next.
func (c *Crew[T]) Handled(p *Post[T]) {
	if len(p.queue) == 0 {
		delete(c.topics, p.topic)
		return
	}
	c.offer(p)
}

func (c *Crew[T]) offer(p *Post[T]) {
	c.ready = append(c.ready, p)
	if c.Most == 0 {
		close(c.more)
		c.more = make(chan struct{})
	}
}

// Drop forgets what waits and is gone.
func (c *Crew[T]) Drop(gone func(it T) bool) {
	for _, p := range c.topics {
		p.queue = slices.DeleteFunc(p.queue, func(e entry[T]) bool {
			if !gone(e.it) {
				return false
			}
			c.waiting--
			c.bytes -= e.size
			return true
		})
	}
	c.ready = slices.DeleteFunc(c.ready, func(p *Post[T]) bool {
		if len(p.queue) > 0 {
			return false
		}
		delete(c.topics, p.topic)
		return true
	})
}
