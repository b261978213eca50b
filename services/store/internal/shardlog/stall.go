package shardlog

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// DefaultStall is how long the database may take for a step of a lane before what waits behind it
// is refused instead.
const DefaultStall = time.Second

var errStalled = code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the database does not answer")

// watch begins a step that waits for the database; end it with what it returns. While the step
// takes longer than the lane bears, what is queued and what comes is refused at once, with a time
// to come back: none of it was sent to the database, so nothing is left to guess. The step itself
// goes on to its own end.
func (l *lane) watch() (end func()) {
	l.mu.Lock()
	l.step++
	step := l.step
	l.mu.Unlock()
	timer := time.AfterFunc(l.stall, func() { l.stalls(step) })
	return func() {
		timer.Stop()
		l.mu.Lock()
		l.step++ // a timer that fires meanwhile finds that it is late
		l.stalled = false
		l.mu.Unlock()
	}
}

func (l *lane) stalls(step uint64) {
	l.mu.Lock()
	if l.step != step {
		l.mu.Unlock()
		return
	}
	l.stalled = true
	refused := l.queue
	l.queue, l.bytes = nil, 0
	l.metrics.queued(l.name, 0)
	l.metrics.stalls.Inc()
	l.mu.Unlock()
	l.log.Warn("the database does not answer; appends are refused until it does", "lane", l.name, "since", l.stall, "refused", len(refused))
	l.refuse(refused, func(*entry) error { return errStalled })
}
