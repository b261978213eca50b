package token

import (
	"container/list"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity"
)

// verified is a token that was found good.
type verified struct {
	hash  tokenHash
	who   *identity.Principal
	keys  *keyring
	print string // of the key that signed it
	cost  int
}

// cache keeps verified tokens by their hash, up to a number of bytes; the one that was not asked
// for the longest goes first. It is safe for concurrent use.
type cache struct {
	mu    sync.Mutex
	most  int
	cost  int
	of    map[tokenHash]*list.Element // of *verified
	order list.List                   // the last used first
}

// What an entry takes beside the text of the token: itself, each rule and each number of a profile.
// The decoded claims take no more than their text twice.
const (
	entryCost  = 1 << 10
	ruleCost   = 96
	numberCost = 64
)

func newCache(most int) *cache {
	return &cache{most: most, of: map[tokenHash]*list.Element{}}
}

// get returns who a token is of, where it still holds: its time is not over, and its key is still
// one of its issuer's.
func (c *cache) get(hash tokenHash, now time.Time) *identity.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.of[hash]
	if at == nil {
		return nil
	}
	v := at.Value.(*verified)
	set := v.keys.keys(now)
	if now.Before(v.who.NotBefore) { // the clock was set back
		return nil
	}
	if set == nil || !set.prints[v.print] || !now.Before(v.who.Expires) {
		c.drop(at)
		return nil
	}
	c.order.MoveToFront(at)
	return v.who
}

func (c *cache) put(v *verified, length int) {
	v.cost = entryCost + 2*length + ruleCost*v.who.Grants.Len() + numberCost*len(v.who.Profile)
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.of[v.hash]; at != nil {
		c.drop(at)
	}
	c.of[v.hash] = c.order.PushFront(v)
	c.cost += v.cost
	for c.cost > c.most {
		c.drop(c.order.Back())
	}
}

func (c *cache) drop(at *list.Element) {
	v := c.order.Remove(at).(*verified)
	delete(c.of, v.hash)
	c.cost -= v.cost
}
