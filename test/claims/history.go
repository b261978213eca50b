// Package claims records what many owners do with resources over the public API, while processes
// die, and looks whether it could have happened: whether each resource behaved as one line and one
// set of holders that every operation met at a moment between its call and its answer
// (linearizability, with porcupine).
package claims

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Kind of an operation.
type Kind uint8

// Kinds; Told is a grant that came by push, which says what was so at a moment since the owner last
// knew that it waits.
const (
	Acquire Kind = iota
	Renew
	Release
	Leave
	Check
	Told
)

func (k Kind) String() string {
	return [...]string{"acquire", "renew", "release", "leave", "check", "told"}[k]
}

// Never is when an answer came that never did.
const Never = math.MaxInt64

// Op is one operation: what was asked, and what was answered. Times are µs on the recorder's clock.
type Op struct {
	Kind      Kind
	Owner     string
	Token     uint64
	Priority  uint32
	NoWait    bool
	Successor string

	// Call and Return; Return is Never where the outcome is unknown: it may have happened, also
	// long after.
	Call, Return int64
	Answer       Answer
}

// Unknown reports whether nobody knows if it happened.
func (o *Op) Unknown() bool { return o.Return == Never }

// Answer of an operation.
type Answer struct {
	// NotHeld: Renew was refused, and Release released nothing.
	NotHeld  bool
	State    wirev1.ClaimState_State
	Token    uint64
	Position uint32
	Holder   string
	Holding  uint32
	Waiting  uint32
}

func (o *Op) String() string {
	what := fmt.Sprintf("%s %s", o.Owner, o.Kind)
	if o.Token != 0 {
		what += fmt.Sprintf(" token %d", o.Token)
	}
	if o.Priority != 0 {
		what += fmt.Sprintf(" priority %d", o.Priority)
	}
	if o.NoWait {
		what += " without waiting"
	}
	if o.Successor != "" {
		what += " to " + o.Successor
	}
	if o.Unknown() {
		return fmt.Sprintf("%8d …        %s: unknown", o.Call, what)
	}
	return fmt.Sprintf("%8d %8d %s: %s", o.Call, o.Return, what, o.Answer)
}

func (a Answer) String() string {
	s := a.State.String()[len("STATE_"):]
	if a.NotHeld {
		s += " NOT_HELD"
	}
	if a.Token != 0 {
		s += fmt.Sprintf(" token %d", a.Token)
	}
	if a.Position != 0 {
		s += fmt.Sprintf(" position %d", a.Position)
	}
	if a.Holder != "" {
		s += " holder " + a.Holder
	}
	return s + fmt.Sprintf(" (%d hold, %d wait)", a.Holding, a.Waiting)
}

// History of all resources. Many owners write it.
type History struct {
	began time.Time

	mu     sync.Mutex
	ops    map[string][]*Op
	errors map[string]int // by code
}

// NewHistory begins one.
func NewHistory() *History {
	return &History{began: time.Now(), ops: map[string][]*Op{}, errors: map[string]int{}}
}

// Now is the recorder's clock.
func (h *History) Now() int64 { return time.Since(h.began).Microseconds() }

// Add adds an operation that is over, or was given up.
func (h *History) Add(resource string, op *Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops[resource] = append(h.ops[resource], op)
}

// Of is what was done with a resource, by time of the call.
func (h *History) Of(resource string) []*Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := slices.Clone(h.ops[resource])
	slices.SortStableFunc(ops, func(a, b *Op) int { return int(a.Call - b.Call) })
	return ops
}

// Resources that anything was done with.
func (h *History) Resources() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range h.ops {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// count takes note of what a call was answered with.
func (h *History) count(err error) {
	if err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errors[code.Name(code.Of(err))]++
}

// Errors that calls were answered with, by their codes.
func (h *History) Errors() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.errors)
}

// Count of operations, and of those with an unknown outcome.
func (h *History) Count() (ops, unknown int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, list := range h.ops {
		ops += len(list)
		for _, op := range list {
			if op.Unknown() {
				unknown++
			}
		}
	}
	return ops, unknown
}
