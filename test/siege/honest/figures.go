// Package honest is the well-behaved users of a mesh: subscribers, producers and newcomers that
// measure what they get all the time, for as long as somebody else attacks the mesh.
package honest

import (
	"math"
	"sync/atomic"
	"time"
)

// Kind of what is measured.
type Kind int

// What is measured, each in milliseconds from the moment at which it was due.
const (
	Live      Kind = iota // an ephemeral message until a subscriber has it
	Durable               // a durable one
	Subscribe             // Subscribe until Subscribed
	Publish               // the call of a durable publish until its answer
	Connect               // a connection until Welcome
	kinds
)

// String names a kind for people.
func (k Kind) String() string {
	return [...]string{"ephemeral delivery", "durable delivery", "Subscribe", "publish", "connect"}[k]
}

// Kinds are all of them.
func Kinds() []Kind { return []Kind{Live, Durable, Subscribe, Publish, Connect} }

// Buckets grow by 4 % from 10 µs on: the last one begins at 65 minutes.
const (
	buckets = 500
	growth  = 1.04
	least   = 10 * time.Microsecond
)

// times counts durations by bucket.
type times [buckets]atomic.Uint64

func (t *times) add(d time.Duration, n uint64) {
	at := 0
	if d > least {
		at = min(buckets-1, int(math.Log(float64(d)/float64(least))/math.Log(growth)))
	}
	t[at].Add(n)
}

// take returns the counts since the last take.
func (t *times) take() (n [buckets]uint64) {
	for i := range t {
		n[i] = t[i].Swap(0)
	}
	return n
}

// Figures are what was measured in a span.
type Figures struct {
	// P99 in ms and N, the number of samples, by kind.
	P99 [kinds]float64
	N   [kinds]uint64
	// Ends are connections that the edge ended, Refused what was answered by a Code, Garbled
	// messages that can't be decoded: all of honest users.
	Ends, Refused, Garbled uint64
}

// longWait is how long something takes that counts although it has not ended yet.
const longWait = 100 * time.Millisecond

// begin says that something was due, and end that it is there, or given up.
func (c *Crowd) begin(k Kind, due time.Time) (end func(there bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	n := c.last
	c.waits[n] = waiting{k, due}
	return func(there bool) {
		if there {
			c.times[k].add(time.Since(due), 1)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waits, n)
	}
}

type waiting struct {
	kind Kind
	due  time.Time
}

// countWaits counts what waits: whoever stops a mesh would otherwise stop the measuring. A message
// that is not published yet is late for all its subscribers.
func (c *Crowd) countWaits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waits {
		d := time.Since(w.due)
		if d < longWait {
			continue
		}
		if c.times[w.kind].add(d, 1); w.kind == Publish {
			c.times[Durable].add(d, uint64(max(1, c.cfg.Subscribers/c.cfg.Topics)))
		}
	}
}

// Take returns what was measured since the last Take, and what still waits.
func (c *Crowd) Take() (f Figures) {
	c.countWaits()
	for k := range kinds {
		n := c.times[k].take()
		var total, sum uint64
		for _, v := range n {
			total += v
		}
		f.N[k] = total
		for i, v := range n {
			if sum += v; total > 0 && float64(sum) >= 0.99*float64(total) {
				f.P99[k] = float64(least) * math.Pow(growth, float64(i+1)) / float64(time.Millisecond)
				break
			}
		}
	}
	f.Ends, f.Refused, f.Garbled = c.ends.Swap(0), c.refused.Swap(0), c.garbled.Swap(0)
	return f
}
