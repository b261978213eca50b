// Package lease keeps who may act for a session alone, and until when. It lives in the memory of
// the shard's owner: what outlasts the owner is the session's generation, which fences the writes
// of whoever acted before. Time is passed in, and monotonic.
package lease

import (
	"sync"
	"time"
)

// Key of a session.
type Key struct{ User, Name string }

// keptFor is how long a lease that ran out is remembered: it tells one that nobody took from one
// that another owner may have granted.
const keptFor = time.Minute

// sweepAt is how many leases make those that ran out long ago be looked for.
const sweepAt = 1024

type lease struct {
	ownership  uint64
	edge       string
	generation uint64
	until      time.Time
	granting   bool
}

// Table of leases, safe for concurrent use.
type Table struct {
	mu     sync.Mutex
	leases map[Key]*lease
	sweep  int // the number of leases at which they are swept next
}

// New makes an empty table.
func New() *Table { return &Table{leases: map[Key]*lease{}, sweep: sweepAt} }

// Verdict on an edge that wants a lease.
type Verdict int

const (
	// Free says that the caller may go on, and ends with Granted or Abort.
	Free Verdict = iota
	// OtherEdge by another edge, for now.
	OtherEdge
	// Busy says that it is being granted just now.
	Busy
)

// Begin asks for a lease. claim is that under which the shard is owned: what is known from an
// earlier one counts no more, since another owner may have granted or lengthened leases in between.
// Held names the holder; Free names the generation of the last lease known here, 0 where none is.
func (t *Table) Begin(now time.Time, k Key, edge string, claim uint64) (v Verdict, holder string, last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.leases[k]
	if l == nil {
		t.room(now)
	}
	if l == nil || l.ownership != claim && !l.granting {
		l = &lease{ownership: claim}
		t.leases[k] = l
	}
	switch {
	case l.granting:
		return Busy, "", 0
	case l.edge != "" && l.edge != edge && now.Before(l.until):
		return OtherEdge, l.edge, l.generation
	}
	l.granting = true
	return Free, "", l.generation
}

// Granted ends Begin: edge has the lease until a time.
func (t *Table) Granted(k Key, edge string, claim, generation uint64, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases[k] = &lease{ownership: claim, edge: edge, generation: generation, until: until}
}

// Abort ends Begin without a lease.
func (t *Table) Abort(k Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.leases[k]; l != nil {
		l.granting = false
	}
}

// Renew lengthens a lease; false where it is not known here under this claim and generation. One
// that ran out and that nobody took is good again.
func (t *Table) Renew(k Key, edge string, claim, generation uint64, until time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.leases[k]
	if l == nil || l.granting || l.ownership != claim || l.edge != edge || l.generation != generation {
		return false
	}
	l.until = until
	return true
}

// Release ends a lease of a generation before its time: who asks next has it.
func (t *Table) Release(k Key, generation uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.leases[k]; l != nil && !l.granting && l.generation == generation {
		delete(t.leases, k)
	}
}

// room drops what ran out long ago, now and then.
func (t *Table) room(now time.Time) {
	if len(t.leases) < t.sweep {
		return
	}
	for k, l := range t.leases {
		if !l.granting && now.Sub(l.until) > keptFor {
			delete(t.leases, k)
		}
	}
	t.sweep = max(sweepAt, 2*len(t.leases))
}
