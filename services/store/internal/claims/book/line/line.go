// Package line is a line in which everybody's position is known: whoever has the higher priority is
// before the others, and of the same priority whoever came first. Joining, leaving from anywhere, a
// position and who has it cost O(log n).
package line

import (
	"iter"
	"sort"
)

// Item waits in a line. Slot is the line's: it must not be changed.
type Item interface {
	comparable
	Slot() *int32
}

// Line of items; the zero value is empty. It has one user at a time, and must not be changed in a
// walk.
type Line[P Item] struct {
	of []*priority[P] // the highest first
	n  int
}

type priority[P Item] struct {
	level uint8
	fifo[P]
}

// Len is how many wait.
func (l *Line[P]) Len() int { return l.n }

// Add puts one at the end of its priority's line.
func (l *Line[P]) Add(level uint8, p P) {
	l.at(level).add(p)
	l.n++
}

func (l *Line[P]) at(level uint8) *priority[P] {
	i := sort.Search(len(l.of), func(i int) bool { return l.of[i].level <= level })
	if i == len(l.of) || l.of[i].level != level {
		l.of = append(l.of, nil)
		copy(l.of[i+1:], l.of[i:])
		l.of[i] = &priority[P]{level: level}
	}
	return l.of[i]
}

// Remove takes one out who is in it with that priority.
func (l *Line[P]) Remove(level uint8, p P) {
	l.at(level).remove(p)
	l.n--
}

// Position of one who is in it with that priority, from 1.
func (l *Line[P]) Position(level uint8, p P) int {
	before := 0
	for _, f := range l.of {
		if f.level == level {
			return before + f.rank(p)
		}
		before += f.n
	}
	panic("line: no such priority")
}

// First is who is next; there must be one.
func (l *Line[P]) First() P {
	for _, f := range l.of {
		if f.n > 0 {
			return f.first()
		}
	}
	panic("line: nobody waits")
}

// From walks from a position on.
func (l *Line[P]) From(position int) iter.Seq2[int, P] {
	return func(yield func(int, P) bool) {
		at, skip := position, position-1
		for _, f := range l.of {
			if skip >= f.n {
				skip -= f.n
				continue
			}
			if !f.walk(skip+1, func(p P) bool { at++; return yield(at-1, p) }) {
				return
			}
			skip = 0
		}
	}
}

// Search is the position of the first one of a priority for whom after is true, or of a lower
// priority; after must be true of everybody behind one for whom it is.
func (l *Line[P]) Search(level uint8, after func(P) bool) int {
	before := 0
	for _, f := range l.of {
		if f.level < level {
			break
		}
		if f.level == level {
			return before + 1 + sort.Search(f.n, func(i int) bool { return after(f.items[f.slot(i+1)]) })
		}
		before += f.n
	}
	return before + 1
}
