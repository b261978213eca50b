package book

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Op is an operation of a node that NodeUp announced. Ref comes back in its answer.
type Op struct {
	Node        string
	Incarnation uint64
	*meshv1.ClaimOp
	Ref any
}

// Answer to an Op: the fields of a meshv1.ClaimResult. State is set where Code is OK.
type Answer struct {
	Ref        any
	Code       wirev1.Code
	Error      string
	RetryAfter time.Duration
	State      *wirev1.ClaimState
}

// Push is a notice to a node. Its State may be that of other pushes too: it must not be changed.
type Push struct {
	Node string
	*meshv1.ClaimPush
	// After so many of the step's Answers it happened: a node is notified after these and before
	// the others, that of the operation that led to it among them. A LOST that came after the
	// answer to an ACQUIRE would be taken for one of the new place.
	After int
}

// Prepare asks to get a resource ready for who is next there. Whoever makes the call says
// Book.Prepared once, with the same Key and Token, however it ends.
type Prepare struct {
	Key             backend.ClaimKey
	Token           uint64
	Resource, Owner string
	*policy.Prepare
}

// Counts of a step, for metrics.
type Counts struct {
	// Waits are the seconds that those who were granted something had waited.
	Waits []float64
	// Ended counts places by why they ended; OK: released, or left.
	Ended map[wirev1.Code]int
	// Refused counts answers by code; NOT_HELD is also that of a RELEASE that released nothing.
	Refused map[wirev1.Code]int
}

// Step is what has happened since the last one. Nothing of it may be sent before its Changes are
// committed.
type Step struct {
	Answers []Answer
	Changes backend.ClaimChanges
	// Pushes of a place are in the order of what happened to it.
	Pushes  []Push
	Prepare []Prepare
	Counts  Counts
}

// Empty reports whether nothing has happened.
func (s *Step) Empty() bool {
	return len(s.Answers)+len(s.Changes.Put)+len(s.Changes.Delete)+len(s.Pushes)+len(s.Prepare) == 0
}

// Take returns what has happened since the last Take. What it has of a place is final: nothing that
// happened before comes in a later one, but for positions after the first, and states of a
// resource that were notified less than 100 ms ago.
func (b *Book) Take() *Step {
	b.notifyMoved()
	s := b.step
	for _, p := range b.dirty {
		p.dirty = false
		switch {
		case p.ended && p.stored:
			s.Changes.Delete = append(s.Changes.Delete, p.key())
		case !p.ended:
			p.stored = true
			s.Changes.Put = append(s.Changes.Put, p.row())
		}
	}
	clear(b.dirty)
	b.dirty = b.dirty[:0]
	b.step = &Step{}
	return s
}

// changed has a place written with the step.
func (b *Book) changed(p *place) {
	b.users.note(p)
	if !p.dirty {
		p.dirty = true
		b.dirty = append(b.dirty, p)
	}
}

func (c *Counts) ended(why wirev1.Code) {
	if c.Ended == nil {
		c.Ended = map[wirev1.Code]int{}
	}
	c.Ended[why]++
}

func (c *Counts) refused(why wirev1.Code) {
	if c.Refused == nil {
		c.Refused = map[wirev1.Code]int{}
	}
	c.Refused[why]++
}
