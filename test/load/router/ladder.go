package router

import "math"

const (
	// finer is the ratio between neighbouring steps of a ladder.
	finer = 1.1
	// enough tries of a kind decide on a step: two of three.
	enough = 2
	// mostTries ends a search that finds nothing.
	mostTries = 20
)

// ladder is the search for the highest rate that holds, in steps of a tenth. It goes up from a try
// that held and down from one that did not, so that the steps around the limit are tried in turns,
// and ends where a step that held twice lies below one that failed twice.
type ladder struct {
	first   float64 // rate of step 0
	at      int     // step to be tried
	tries   int
	yes, no map[int]int
}

func newLadder(first float64) *ladder {
	return &ladder{first: first, yes: map[int]int{}, no: map[int]int{}}
}

func (l *ladder) rate(step int) float64 { return l.first * math.Pow(finer, float64(step)) }

// next is the rate to try.
func (l *ladder) next() float64 { return l.rate(l.at) }

// tried says how next went.
func (l *ladder) tried(held bool) {
	l.tries++
	switch {
	case held:
		if l.yes[l.at]++; l.no[l.at+1] < enough {
			l.at++
		}
	default:
		if l.no[l.at]++; l.yes[l.at-1] < enough {
			l.at--
		}
	}
}

func (l *ladder) done() bool {
	for step, n := range l.yes {
		if n >= enough && l.no[step+1] >= enough {
			return true
		}
	}
	return l.tries >= mostTries
}

// best is the highest rate that held; 0: none did.
func (l *ladder) best() (rate float64) {
	for step, n := range l.yes {
		if n >= enough {
			rate = max(rate, l.rate(step))
		}
	}
	return rate
}
