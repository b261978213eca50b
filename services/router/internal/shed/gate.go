// Package shed says what is refused while something can't keep up: low priorities first.
package shed

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Priorities there are, 0 to 9.
const Priorities = 10

// Messages of a priority are refused once the pressure reaches 0.5 (priority 0) to 0.95 (priority
// 9), and taken again when it has fallen by slack: otherwise every message that is done would let
// one in, and each priority would come and go with it.
const (
	first = 0.5
	step  = 0.05
	slack = 0.1
)

// below is how many priorities, from 0 on, a pressure refuses.
func below(pressure float64) int32 {
	if pressure < first {
		return 0
	}
	return int32(min((pressure-first)/step+1+1e-9, Priorities))
}

// next is how many priorities are refused, where level were until now.
func next(level int32, pressure float64) int32 {
	return max(below(pressure), min(level, below(pressure+slack)))
}

// Gate remembers which priorities are refused. It is safe for concurrent use, and takes no lock.
type Gate struct{ level atomic.Int32 }

// Admits reports whether a message of a priority may pass under a pressure: 0 is none, 1 as much as
// there may be.
func (g *Gate) Admits(pressure float64, priority uint32) bool {
	was := g.level.Load()
	level := next(was, pressure)
	if level != was {
		g.level.CompareAndSwap(was, level) // another one's is as new
	}
	return int32(min(priority, Priorities-1)) >= level
}

// Level is how many priorities, from 0 on, were refused when the gate was asked the last time.
func (g *Gate) Level() int { return int(g.level.Load()) }

var seed = maphash.MakeSeed()

// Passes is a gate without memory, for a pressure that is smooth by itself. Between two priorities
// it is the topic that decides: the same ones are refused as long as the pressure stays, so that a
// producer's numbered messages don't begin anew with every other one.
func Passes[T string | []byte](pressure float64, priority uint32, topic T) bool {
	if !Any(pressure) {
		return true
	}
	// of the topics that is refused
	share := (pressure-first)/step - float64(min(priority, Priorities-1))
	if share <= 0 || share >= 1 {
		return share <= 0
	}
	const parts = 1 << 20
	return float64(hash(topic)%parts) >= share*parts
}

func hash[T string | []byte](topic T) uint64 {
	switch t := any(topic).(type) {
	case string:
		return maphash.String(seed, t)
	case []byte:
		return maphash.Bytes(seed, t)
	}
	return 0
}

// Any reports whether a pressure refuses anything.
func Any(pressure float64) bool { return pressure >= first }

// What a refusal tells to wait.
const (
	shortest = 50 * time.Millisecond
	longest  = 2 * time.Second
)

// Wait is when to come back under a pressure: 50 ms at the least that refuses, 2 s at the most, and
// up to a half more or less by chance, so that those who were refused together don't come back
// together.
func Wait(pressure float64) time.Duration {
	over := min(max((pressure-first)/(1-first), 0), 1)
	wait := float64(shortest) * math.Pow(float64(longest)/float64(shortest), over)
	return Jitter(time.Duration(wait))
}

// Jitter is d, up to a half more or less.
func Jitter(d time.Duration) time.Duration { return time.Duration(float64(d) * (0.5 + rand.Float64())) }
