package shardlog

import (
	"crypto/sha256"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	// keysPerGeneration bounds memory: about 100 bytes a key, two generations a lane.
	keysPerGeneration = 250_000
	// keyGeneration is how long a generation takes keys: longer than the usual window, so that most
	// keys are decided by memory.
	keyGeneration = 5 * time.Minute
)

// hashKey stands for a topic and a dedupe key: 128 bits of SHA-256, so that no two publishes are
// taken for one by chance or on purpose.
func hashKey(topic, key string) (h backend.KeyHash) {
	b := make([]byte, 0, 320)
	b = append(b, topic...)
	b = append(b, 0) // no topic holds it
	b = append(b, key...)
	sum := sha256.Sum256(b)
	copy(h[:], sum[:])
	return h
}

// keyCache remembers the keys used since a time, which moves up as memory is short or a generation
// is over. For what it doesn't remember, the database is asked.
type keyCache struct {
	now, before        map[backend.KeyHash]backend.Key
	nowFrom, covers    uint64 // all keys used since covers are here
	newest             uint64 // when the newest was put; a later one may be of an earlier time
	keysMax            int    // of a generation; 0: keysPerGeneration
	generationDuration time.Duration
}

// since says that keys used before a time may not be here.
func (c *keyCache) since(at uint64) { c.covers = max(c.covers, at) }

// missing reports whether a key with this window may have been used without being here.
func (c *keyCache) missing(window time.Duration, now uint64) bool {
	return now-min(now, micros(window)) < c.covers
}

func (c *keyCache) get(h backend.KeyHash, now uint64) (backend.Key, bool) {
	k, ok := c.now[h]
	if !ok {
		k, ok = c.before[h]
	}
	return k, ok && k.Until > now
}

func (c *keyCache) put(k backend.Key, now uint64) {
	most, long := c.keysMax, c.generationDuration
	if most == 0 {
		most, long = keysPerGeneration, keyGeneration
	}
	if c.now == nil || len(c.now) >= most || now > c.nowFrom+micros(long) {
		if c.before != nil {
			c.since(c.nowFrom)
		}
		if c.now != nil {
			c.before = c.now
		}
		c.now, c.nowFrom = map[backend.KeyHash]backend.Key{}, max(now, c.newest)
	}
	c.now[k.Hash], c.newest = k, max(c.newest, now)
}

func micros(d time.Duration) uint64 { return uint64(d.Microseconds()) }
