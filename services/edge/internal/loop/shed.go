package loop

import (
	"slices"
	"time"
)

// shedSamples of lag decide, those of the last second: a single pause, however long, is one of them
// and sheds nothing.
const shedSamples = 10

// shed reports whether the loop is late for so long that it refuses newcomers, before these make it
// later still for those that it has.
type shed struct {
	limit  time.Duration // 0: never
	recent [shedSamples]time.Duration
	taken  int
	on     bool
}

// add takes a sample. Shedding begins where the median is above the limit, and ends where it is
// below half of it.
func (s *shed) add(lag time.Duration) {
	if s.limit <= 0 {
		return
	}
	s.recent[s.taken%shedSamples] = lag
	s.taken++
	sorted := s.recent
	slices.Sort(sorted[:])
	switch median := sorted[shedSamples/2]; {
	case median > s.limit:
		s.on = true
	case median < s.limit/2:
		s.on = false
	}
}

// judge has the hub refuse newcomers, or take them again, as the last samples say.
func (l *Loop) judge(lag time.Duration) {
	before := l.shed.on
	l.shed.add(lag)
	if l.shed.on == before {
		return
	}
	if l.stats.Shedding = l.shed.on; l.shed.on {
		l.stats.Sheds++
	}
	l.hub.Shed(l.shed.on)
}
