package appender

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/router/internal/shed"
)

const (
	// leastLimit of items that may wait for a store: so few wait for nothing but a commit.
	leastLimit = 1024
	// growth of the limit with every look while answers are quick.
	growth = 1.25
	// smoothing is over what time a store's rate is taken.
	smoothing = 250 * time.Millisecond
	// stallAfter is a store's silence that refuses everything, as a multiple of MaxWait.
	stallAfter = 20
)

// meter finds how many items may wait for one store so that they wait for maxWait: by Little's law,
// as many as it answers in that time. It does no I/O, and is not safe for concurrent use.
type meter struct {
	maxWait time.Duration
	most    int // the limit while the store is quick

	answered int           // items, since the last look
	answers  int           // and the responses that they came in
	waited   time.Duration // by the first item of each
	looked   time.Time
	rate     float64 // items a second
	limit    float64
}

// took notes a response to so many items, the first of which was submitted when.
func (m *meter) took(now time.Time, items int, first time.Time) {
	m.answered += items
	if !first.IsZero() {
		m.answers++
		m.waited += now.Sub(first)
	}
}

// look is called every few milliseconds, and returns the limit. While answers come within a quarter
// of maxWait, nothing is known of what the store could do, and the limit grows.
func (m *meter) look(now time.Time) int {
	if m.limit == 0 {
		m.limit, m.looked = float64(m.most), now
	}
	span := now.Sub(m.looked)
	if span <= 0 || m.answers == 0 {
		return int(m.limit)
	}
	wait := m.waited / time.Duration(m.answers)
	m.rate += min(float64(span)/float64(smoothing), 1) * (float64(m.answered)/span.Seconds() - m.rate)
	m.answered, m.answers, m.waited, m.looked = 0, 0, 0, now
	if wait < m.maxWait/4 {
		m.limit = min(m.limit*growth, float64(m.most))
	} else {
		m.limit = min(max(m.rate*m.maxWait.Seconds(), leastLimit), float64(m.most))
	}
	return int(m.limit)
}

// load of a stream, as those who want to submit see it.
type load struct {
	waiting atomic.Int64 // items without an answer
	limit   atomic.Int64
	silence atomic.Uint64 // of the store, as pressure: a float's bits
	gate    shed.Gate
}

func (l *load) pressure() float64 {
	waiting := l.waiting.Load()
	if waiting < leastLimit/2 { // as good as none, however slow the store is
		return 0
	}
	return max(float64(waiting)/float64(l.limit.Load()), math.Float64frombits(l.silence.Load()))
}

// measure is called with every tick. s.mu is held.
func (s *stream) measure(now time.Time) {
	s.load.limit.Store(int64(s.meter.look(now)))
	var silent time.Duration
	if len(s.sent) > 0 {
		silent = now.Sub(s.heard)
	}
	s.load.silence.Store(math.Float64bits(float64(silent) / float64(stallAfter*s.meter.maxWait)))
}

// Admits reports whether a message of a priority may be submitted for a topic, or is to be refused
// because what is before it at the topic's store, or in this appender, can't be stored in time. It
// takes no lock. The pressure is 0 where nothing waits and 1 where all that may.
func (a *Appender) Admits(name string, priority uint32) (pressure float64, ok bool) {
	all := max(float64(a.items.Load())/float64(a.cfg.MaxItems), float64(a.bytes.Load())/float64(a.cfg.MaxBytes))
	if !a.gate.Admits(all, priority) {
		return all, false
	}
	s := a.lanes[topic.Shard(name)].last.Load()
	if s == nil {
		return all, true
	}
	at := s.load.pressure()
	return max(all, at), s.load.gate.Admits(at, priority)
}
