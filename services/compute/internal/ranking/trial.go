package ranking

import (
	"sync/atomic"
	"time"
)

// trial is a call that a roll-out has given to a version. What it is told of the new version
// counts, but for what its caller made it do.
type trial struct {
	all    *rollouts
	of     *rollout
	next   bool
	failed atomic.Bool
	ran    bool // told of; by one goroutine at a time
}

// began says that the new version is tried for the call.
func (t *trial) began() {
	t.all.mu.Lock()
	t.of.began()
	t.all.mu.Unlock()
}

// took says that the version has scored some pairs of a candidate and a profile.
func (t *trial) took(d time.Duration, scored int) {
	call := !t.ran
	t.ran = true
	t.all.judged(t.of, func() string { return t.of.ran(t.next, call, d, scored) })
}

// erred says that the new version failed what the pinned one does.
func (t *trial) erred(err error) {
	if t.failed.Swap(true) {
		return
	}
	t.all.errs.Inc()
	t.all.judged(t.of, func() string { return t.of.erred(err) })
}
