package ranking

import (
	"fmt"
	"math"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

const (
	// leastCalls of a version, before which it is not judged.
	leastCalls = 20
	// recentCalls is how many calls of the new version the share of errors is of, about: at so
	// many, what was counted counts half.
	recentCalls = 1000
	// slowWindows one after the other freeze a roll-out: a node that stands still for a moment
	// makes one version slow in one of them.
	slowWindows = 3

	defaultErrorShare = 0.05
	defaultSlowdown   = 3
)

// plan is a roll-out as a policy has it.
type plan struct {
	name                              string
	version, next                     uint64
	output                            uint32
	share, maxErrorShare, maxSlowdown float64
}

func planOf(m *pushmeshv1.ModelScorer) plan {
	p := plan{
		name: m.GetName(), version: m.GetVersion(), next: m.GetNextVersion(), output: m.GetOutput(),
		share: m.GetNextShare(), maxErrorShare: m.GetMaxErrorShare(), maxSlowdown: m.GetMaxSlowdown(),
	}
	if p.maxErrorShare == 0 {
		p.maxErrorShare = defaultErrorShare
	}
	if p.maxSlowdown == 0 {
		p.maxSlowdown = defaultSlowdown
	}
	return p
}

// rollout is what this node has seen of a plan: it chooses, and judges. It is guarded by
// rollouts.mu.
type rollout struct {
	plan
	namespace string
	used      time.Time // by a call
	calls     uint64
	given     uint64 // of calls, to the new version
	frozen    bool

	tried, failed int     // calls of the new version
	times         [2]side // of this window: the pinned version, the new one
	slow          int     // windows, one after the other
}

// side is what a version did in a window.
type side struct {
	calls  int
	ran    time.Duration
	scored int // pairs of a candidate and a profile
}

// mean time of a pair, in seconds.
func (s *side) mean() float64 { return s.ran.Seconds() / float64(s.scored) }

// choose reports whether a call is the new version's: of any n calls one after the other, share·n
// are, to within one call.
func (r *rollout) choose() (next bool) {
	r.calls++
	// The share of decimals is a bit less than it says: a tenth of ten calls is 1 and not 0.
	next = math.Floor(float64(r.calls)*r.share+1e-9) > float64(r.given)
	if next {
		r.given++
	}
	return next
}

// began counts a call of the new version.
func (r *rollout) began() {
	if r.tried++; r.tried >= recentCalls {
		r.tried, r.failed = r.tried/2, r.failed/2
	}
}

// erred counts a call that the new version could not answer and the pinned one could, and says why
// that is too much; "": it isn't.
func (r *rollout) erred(err error) (why string) {
	r.failed++
	if r.tried < leastCalls || float64(r.failed) <= r.maxErrorShare*float64(r.tried) {
		return ""
	}
	return fmt.Sprintf("%d of its last %d calls failed, the last one with: %v", r.failed, r.tried, err)
}

// ran takes in what a version scored, and in which time; call: it is the first that is told of a
// call. It says why the new one is too slow; "": it isn't.
func (r *rollout) ran(next, call bool, took time.Duration, scored int) (why string) {
	s := &r.times[0]
	if next {
		s = &r.times[1]
	}
	if call {
		s.calls++
	}
	s.ran += took
	s.scored += scored
	if r.times[0].calls < leastCalls || r.times[1].calls < leastCalls {
		return ""
	}
	window := r.times
	r.times = [2]side{}
	if window[0].scored == 0 || window[1].scored == 0 {
		return ""
	}
	pinned, new := window[0].mean(), window[1].mean()
	if new <= r.maxSlowdown*pinned {
		r.slow = 0
		return ""
	}
	if r.slow++; r.slow < slowWindows {
		return ""
	}
	return fmt.Sprintf("it takes %.3g s for a candidate, version %d takes %.3g s", new, r.version, pinned)
}
