package filters

import (
	"iter"
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
)

// steps is how finely topics are told apart by what their programs take.
const steps = 64

// times is what the programs of topics and of filters with wildcards take, with topics sorted by
// it, since very few of very many take much.
type times struct {
	of   map[string]time.Duration
	step time.Duration
	// topics, by their time in steps, rounded up; the last is of all above
	dear [steps]map[string]bool
}

func newTimes(budget time.Duration) times {
	return times{of: map[string]time.Duration{}, step: max((budget+steps-1)/steps, 1)}
}

// place of a time in dear; -1: it is no time at all.
func (t *times) place(d time.Duration) int { return min(int((d+t.step-1)/t.step), steps) - 1 }

// add changes what the programs of a topic or filter take.
func (t *times) add(filter string, d time.Duration) {
	was := t.of[filter]
	is := was + d
	if t.of[filter] = is; is == 0 {
		delete(t.of, filter)
	}
	from, to := t.place(was), t.place(is)
	if from == to || topic.IsFilter(filter) {
		return
	}
	if from >= 0 {
		if delete(t.dear[from], filter); len(t.dear[from]) == 0 {
			t.dear[from] = nil // a map keeps the room of what is gone
		}
	}
	if to >= 0 {
		if t.dear[to] == nil {
			t.dear[to] = map[string]bool{}
		}
		t.dear[to][filter] = true
	}
}

// above are the topics whose programs take more than d, the dearest first, and a few more.
func (t *times) above(d time.Duration) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := steps - 1; i >= max(t.place(d), 0); i-- {
			for name := range t.dear[i] {
				if !yield(name) {
					return
				}
			}
		}
	}
}
