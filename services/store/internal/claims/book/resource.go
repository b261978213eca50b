package book

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/book/line"
)

// shard is one that was loaded.
type shard struct {
	n int
	// next number that was not used, and the first that may not be.
	next, most uint64
	resources  map[string]*resource
	places     map[placeID]*place
	// calls that prepare, by token.
	calls map[uint64]*resource
}

type placeID struct {
	r     *resource
	owner string
}

// resource is one that somebody holds, waits for or watches.
type resource struct {
	name  string
	shard *shard
	// rules at the last operation or event.
	rules *policy.Claims
	// holds in the order of their tokens.
	holds []*place
	line  *line.Line[*place] // nil: nobody waited so far
	// prepared are next, in the order of their tokens. Each has a slot as if it held.
	prepared   []prepared
	watch      *watch        // nil: nobody has watched it
	afterFirst *laterNotices // nil: nobody after the first was to be notified
	timerAt    int32
	tied       int32 // who wait and have a tie
	moved      bool  // in Book.moved
	shifted    bool  // somebody's position is another since it was notified
	gone       bool  // not in the book any more
}

func (r *resource) timer() *int32 { return &r.timerAt }

// inLine is how many wait and are not prepared.
func (r *resource) inLine() int {
	if r.line == nil {
		return 0
	}
	return r.line.Len()
}

// waiting counts the prepared too, but for those who have left.
func (r *resource) waiting() int {
	n := r.inLine()
	for _, a := range r.prepared {
		if a.p != nil {
			n++
		}
	}
	return n
}

// room is how many more may hold it.
func (r *resource) room() int { return r.rules.Holders - len(r.holds) - len(r.prepared) }

// taken reports whether anybody has it or is just about to.
func (r *resource) taken() bool { return len(r.holds)+len(r.prepared) > 0 }

func (r *resource) unused() bool {
	return !r.taken() && r.inLine() == 0 && (r.watch == nil || len(r.watch.nodes) == 0)
}

// position of one who waits, from 1.
func (r *resource) position(p *place) int {
	before := 0
	for _, a := range r.prepared {
		switch a.p {
		case nil:
		case p:
			return before + 1
		default:
			before++
		}
	}
	return before + r.line.Position(p.priority, p)
}

// firstEnd is when the first of the holds ends; 0: there is none.
func (r *resource) firstEnd() (at uint64) {
	for _, p := range r.holds {
		if at == 0 || p.expires < at {
			at = p.expires
		}
	}
	return at
}

func (r *resource) join(p *place) {
	if r.line == nil {
		r.line = &line.Line[*place]{}
	}
	r.line.Add(p.priority, p)
	if p.node != nil {
		r.tied++
	}
	if r.line.Position(p.priority, p) != r.line.Len() {
		r.shifted = true
	}
}

// leave takes one out of the line who waits there.
func (r *resource) leave(p *place) {
	r.line.Remove(p.priority, p)
	if p.node != nil {
		r.tied--
	}
	r.shifted = true
}

// drop ends a hold.
func (r *resource) drop(p *place) {
	i := slices.Index(r.holds, p)
	r.holds = slices.Delete(r.holds, i, i+1)
}

func (s *shard) number() uint64 {
	s.next++
	return s.next - 1
}

// short reports whether numbers for a place and its hold are not left.
func (s *shard) short() bool { return s.next+2 > s.most }
