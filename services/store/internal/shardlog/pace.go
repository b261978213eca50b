package shardlog

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/cores"
)

const (
	// paceMessages and paceBytes are read without a look at the appends.
	paceMessages = 256
	paceBytes    = 64 << 10
	// paceWait is the longest that a reader steps back each time: readers go on, slowly, beside
	// appends that never end.
	paceWait = 2 * time.Millisecond
	paceLook = 200 * time.Microsecond
	// paceLately is how long after an append readers leave processors free for the next one.
	paceLately = 50 * time.Millisecond
	// paceRest is the longest rest.
	paceRest = 10 * time.Millisecond
)

// pace lets appends go first: reading a long log keeps a processor busy, and an append needs one
// for moments, several times, until it is answered. It is safe for concurrent use.
//
// Appends come from the network, which Go looks at when a processor has nothing to run, or else
// every 10 ms. So readers, who always have something to run, take half of the processors at most
// while there are appends: each rests in proportion to what it worked and to how many they are.
type pace struct {
	unanswered atomic.Int64
	readers    atomic.Int64
	last       atomic.Int64 // append taken, Unix nanoseconds
}

func (p *pace) taken(n int) {
	p.unanswered.Add(int64(n))
	p.last.Store(time.Now().UnixNano())
}

func (p *pace) answered(n int) { p.unanswered.Add(-int64(n)) }

// reader of a log. It belongs to one goroutine; done ends it.
type reader struct {
	pace            *pace
	messages, bytes int
	since           time.Time // it works again
}

func (p *pace) reader() *reader {
	p.readers.Add(1)
	return &reader{pace: p, since: time.Now()}
}

func (r *reader) done() { r.pace.readers.Add(-1) }

// read notes what was read, and steps back while appends are unanswered, or came lately.
func (r *reader) read(ctx context.Context, messages, bytes int) {
	r.messages += messages
	r.bytes += bytes
	if r.messages < paceMessages && r.bytes < paceBytes {
		return
	}
	r.messages, r.bytes = 0, 0
	begun := time.Now()
	rest := time.Duration(0)
	if begun.UnixNano()-r.pace.last.Load() < int64(paceLately) {
		rest = restAfter(begun.Sub(r.since), int(r.pace.readers.Load()), cores.Usable())
	}
	for ctx.Err() == nil {
		stepped := time.Since(begun)
		if stepped >= rest && (stepped >= paceWait || r.pace.unanswered.Load() <= 0) {
			break
		}
		time.Sleep(max(paceLook, rest-stepped))
	}
	r.since = time.Now()
}

// restAfter is how long one of several readers rests after work, so that together they keep half of
// the processors busy.
func restAfter(worked time.Duration, readers, processors int) time.Duration {
	share := max(1, processors/2)
	return min(worked*time.Duration(max(0, readers-share))/time.Duration(share), paceRest)
}
