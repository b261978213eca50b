package token

import (
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/recent"
)

// verified is a token that was found good.
type verified struct {
	who   *identity.Principal
	keys  *keyring
	print string // of the key that signed it
}

// cache keeps verified tokens by their hash, up to a number of bytes; the one that was not asked
// for the longest goes first. It is safe for concurrent use.
type cache struct {
	mu  sync.Mutex
	all *recent.Cache[tokenHash, *verified]
}

func newCache(most int) *cache { return &cache{all: recent.New[tokenHash, *verified](most)} }

// get returns who a token is of, where it still holds: its time is not over, and its key is still
// one of its issuer's.
func (c *cache) get(hash tokenHash, now time.Time) *identity.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.all.Get(hash)
	if !ok || now.Before(v.who.NotBefore) { // the clock was set back
		return nil
	}
	if set := v.keys.keys(now); set == nil || !set.prints[v.print] || !now.Before(v.who.Expires) {
		c.all.Remove(hash)
		return nil
	}
	return v.who
}

func (c *cache) put(hash tokenHash, v *verified, length int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Put(hash, v, KeptBytes(v.who, length))
}

// What an entry of a cache takes beside the text of the token or answer: itself, each rule and each
// number of a profile. The decoded claims take no more than their text twice.
const (
	entryCost  = 1 << 10
	ruleCost   = 96
	numberCost = 64
)

// KeptBytes is what it takes to keep who was read from a text of so many bytes.
func KeptBytes(who *identity.Principal, text int) int {
	return entryCost + 2*text + ruleCost*who.Grants.Len() + numberCost*len(who.Profile)
}
