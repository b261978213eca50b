package router

import (
	"testing"

	"pgregory.net/rapid"
)

// One try in ten that goes wrong either way moves what is found by a few steps at most.
func TestALadderFindsTheLimitInNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Float64Range(707, 1414).Draw(t, "limit")
		l := newLadder(1000)
		noise := -1
		for !l.done() {
			held := l.next() <= limit
			if noise < 0 && rapid.IntRange(0, 9).Draw(t, "noise") == 0 {
				held, noise = !held, l.tries
			}
			l.tried(held)
		}
		if best := l.best(); best > limit*finer || best < limit/finer/finer {
			t.Errorf("found %.0f, the limit is %.0f", best, limit)
		}
	})
}

func TestALadderWithoutGroundEnds(t *testing.T) {
	l := newLadder(1000)
	for !l.done() {
		l.tried(false)
	}
	if l.best() != 0 {
		t.Errorf("%.0f holds", l.best())
	}
}
