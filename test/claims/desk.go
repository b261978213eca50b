package claims

import (
	"fmt"
	"slices"
	"sync"
)

// Bounds of one resource's history: beyond them owners go on with another, for the longer it is,
// and the more of it is unknown, the harder it is to judge.
const (
	mostOps     = 250
	mostUnknown = 10
)

// desk is a place where some owners meet: at one resource after the other.
type desk struct {
	prefix string

	mu           sync.Mutex
	n            int // of the resource
	ops, unknown int
	old          []grant // tokens that were told at the present resource, each with its owner
}

// grant that was told to somebody.
type grant struct {
	owner string
	token uint64
}

// mostOld is how many tokens are remembered, to be tried again when they are void.
const mostOld = 8

// resource of the moment.
func (d *desk) resource() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.name()
}

func (d *desk) name() string { return fmt.Sprintf("%s-%d", d.prefix, d.n) }

// did counts an operation, and moves everybody on where it was enough.
func (d *desk) did(resource string, op *Op, o outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if resource != d.name() {
		return
	}
	d.ops++
	if o == unknown && op.Kind != Check {
		d.unknown++
	}
	if t := op.Answer.Token; t != 0 && !slices.Contains(d.old, grant{op.Owner, t}) {
		d.old = append(d.old, grant{op.Owner, t})
		d.old = d.old[max(0, len(d.old)-mostOld):]
	}
	if d.ops >= mostOps || d.unknown >= mostUnknown {
		d.n++
		d.ops, d.unknown, d.old = 0, 0, nil
	}
}

// stale is some token that was told to somebody; false: there is none so far.
func (d *desk) stale(pick func(n int) int) (grant, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.old) == 0 {
		return grant{}, false
	}
	return d.old[pick(len(d.old))], true
}
