package history

import (
	"container/list"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Cache keeps ranges that were read lately, so that subscribers that are behind on one topic have
// it read about once, wherever each of them is. It does no I/O and is not safe for concurrent use.
type Cache struct {
	most   int
	bytes  int
	topics map[string][]*span // in order
	used   list.List          // of spans, the one used last in front
}

// Bounds of what is kept: cacheBytes together, for as long as somebody has come for it within
// cacheFor.
const (
	cacheBytes = 32 << 20
	cacheFor   = 5 * time.Second
)

// span is a range that was read. It holds what the log had from first to last.
type span struct {
	r           exchange.Range
	first, last uint64
	bytes       int
	at          *list.Element
	usedAt      time.Time
}

// NewCache makes an empty one for so many bytes; 0: 32 MiB.
func NewCache(most int) *Cache {
	if most == 0 {
		most = cacheBytes
	}
	return &Cache{most: most, topics: map[string][]*span{}}
}

// Put keeps a range that was read, which holds everything from its From to its last message.
func (c *Cache) Put(now time.Time, r exchange.Range) {
	if r.Err != nil || len(r.Messages) == 0 {
		return
	}
	s := &span{r: r, first: r.From, last: r.Messages[len(r.Messages)-1].Seq, usedAt: now}
	for _, m := range r.Messages {
		s.bytes += m.Size()
	}
	if s.bytes > c.most {
		return
	}
	spans := c.topics[r.Topic]
	if len(spans) > 0 && spans[0].r.Epoch != r.Epoch {
		if spans[0].r.Epoch > r.Epoch {
			return
		}
		for len(c.topics[r.Topic]) > 0 {
			c.drop(c.topics[r.Topic][0])
		}
	}
	i, found := c.find(r.Topic, s.first)
	if found { // one that began there too
		c.drop(c.topics[r.Topic][i])
	}
	c.topics[r.Topic] = slices.Insert(c.topics[r.Topic], i, s)
	s.at = c.used.PushFront(s)
	for c.bytes += s.bytes; c.bytes > c.most; {
		c.drop(c.used.Back().Value.(*span))
	}
}

// find is where a span that begins at from is, or belongs.
func (c *Cache) find(topic string, from uint64) (i int, found bool) {
	return slices.BinarySearchFunc(c.topics[topic], from, func(s *span, from uint64) int {
		switch {
		case s.first < from:
			return -1
		case s.first > from:
			return 1
		}
		return 0
	})
}

// Get answers a read to the head, of at most about maxBytes, from what is kept. Where that is not
// possible, next is the first seq behind from that is kept; 0: none is.
func (c *Cache) Get(now time.Time, topic string, epoch, from uint64, maxBytes int) (r exchange.Range, next uint64, ok bool) {
	spans := c.topics[topic]
	if len(spans) == 0 || epoch != 0 && spans[0].r.Epoch != epoch {
		return r, 0, false
	}
	i, found := c.find(topic, from)
	if !found {
		if i < len(spans) {
			next = spans[i].first
		}
		if i--; i < 0 || spans[i].last < from {
			return r, next, false
		}
	}
	s := spans[i]
	s.usedAt = now
	c.used.MoveToFront(s.at)
	r = s.r
	r.From = from
	at, _ := slices.BinarySearchFunc(r.Messages, from, func(m *exchange.Message, from uint64) int {
		if m.Seq < from {
			return -1
		}
		return 1
	})
	end, size := at, 0
	for ; end < len(r.Messages) && (size == 0 || size+r.Messages[end].Size() <= maxBytes); end++ {
		size += r.Messages[end].Size()
	}
	r.Messages = r.Messages[at:end]
	return r, 0, true
}

// Expire lets go of what nobody came for.
func (c *Cache) Expire(now time.Time) {
	for e := c.used.Back(); e != nil && now.Sub(e.Value.(*span).usedAt) > cacheFor; e = c.used.Back() {
		c.drop(e.Value.(*span))
	}
}

func (c *Cache) drop(s *span) {
	c.used.Remove(s.at)
	c.bytes -= s.bytes
	spans := c.topics[s.r.Topic]
	i := slices.Index(spans, s)
	if spans = slices.Delete(spans, i, i+1); len(spans) == 0 {
		delete(c.topics, s.r.Topic)
		return
	}
	c.topics[s.r.Topic] = spans
}
