package hook

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/internal/recent"
)

// hash of a question: all that the backend is told. What clients show is not kept.
type hash [sha256.Size]byte

// hash is computed on event loops: a Hello has 12 KiB at most.
func (q *Question) hash() (sum hash) {
	all := make([]byte, 0, 512)
	for _, text := range [...]string{q.Token, q.Client, q.Session, q.Address, q.Edge, q.Cookie} {
		all = binary.AppendUvarint(all, uint64(len(text)))
		all = append(all, text...)
	}
	return sha256.Sum256(all)
}

type kept struct {
	who   *identity.Principal
	until time.Time
}

// cache keeps answers for as long as they say, up to a number of bytes; the one that was not asked
// for the longest goes first. It is safe for concurrent use.
type cache struct {
	mu  sync.Mutex
	all *recent.Cache[hash, kept]
}

func newCache(most int) *cache { return &cache{all: recent.New[hash, kept](most)} }

func (c *cache) get(of hash, now time.Time) *identity.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.all.Get(of)
	if !ok {
		return nil
	}
	if !now.Before(k.until) {
		c.all.Remove(of)
		return nil
	}
	return k.who
}

func (c *cache) put(of hash, a *token.Answer, now time.Time) {
	k := kept{who: a.Who, until: now.Add(a.Cache)}
	if k.until.After(a.Who.Expires) {
		k.until = a.Who.Expires
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Put(of, k, token.KeptBytes(a.Who, a.Bytes))
}
