package hook

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/token"
)

// hash of a question: all that the backend is told.
type hash [sha256.Size]byte

func (q *Question) hash() hash {
	text, _ := json.Marshal(q) // strings alone
	return sha256.Sum256(text)
}

// What an answer takes beside its text, which is there twice at most: itself, each rule and each
// number of a profile.
const (
	answerCost = 1 << 10
	ruleCost   = 96
	numberCost = 64
)

type kept struct {
	of    hash
	who   *identity.Principal
	until time.Time
	cost  int
}

// cache keeps answers for as long as they say, up to a number of bytes; the one that was not asked
// for the longest goes first.
type cache struct {
	mu    sync.Mutex
	most  int
	cost  int
	all   map[hash]*list.Element // of *kept
	order list.List              // the last used first
}

func newCache(most int) *cache { return &cache{most: most, all: map[hash]*list.Element{}} }

func (c *cache) get(of hash, now time.Time) *identity.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.all[of]
	if at == nil {
		return nil
	}
	k := at.Value.(*kept)
	if !now.Before(k.until) {
		c.drop(at)
		return nil
	}
	c.order.MoveToFront(at)
	return k.who
}

func (c *cache) put(of hash, a *token.Answer, now time.Time) {
	k := &kept{of: of, who: a.Who, until: now.Add(a.Cache), cost: answerCost + 2*a.Bytes + ruleCost*a.Who.Grants.Len() + numberCost*len(a.Who.Profile)}
	if k.until.After(a.Who.Expires) {
		k.until = a.Who.Expires
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.all[of]; at != nil {
		c.drop(at)
	}
	c.all[of] = c.order.PushFront(k)
	for c.cost += k.cost; c.cost > c.most; {
		c.drop(c.order.Back())
	}
}

func (c *cache) drop(at *list.Element) {
	k := c.order.Remove(at).(*kept)
	delete(c.all, k.of)
	c.cost -= k.cost
}
