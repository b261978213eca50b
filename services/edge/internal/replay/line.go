package replay

import "github.com/pushmesh/pushmesh/services/edge/internal/walk"

// usual is how many positions a connection may have and stand in line with each of them.
const usual = 64

// mostRead is how many ranges are read at a time, for one loop, for connections with very many
// positions. Reads of a log wait in one line at the edge and at its store: without this bound those
// of others would wait behind all that such a connection asks for.
const mostRead = 128

// Line is who is behind and able to go on. Connections with very many positions take turns among
// themselves, and have every second place of the line: who has 100,000 holds up the others by one.
// While as many ranges as may are read for them, they have none. The zero value is ready.
type Line[T any] struct {
	few   walk.FIFO[T]
	many  walk.Turns[uint32, T] // by slot
	later bool                  // one of few is next, if there is one
}

// Len is how many there are.
func (l *Line[T]) Len() int { return l.few.Len() + l.many.Len() }

// Ready reports whether Pop has one, where so many ranges are read for connections with very many
// positions.
func (l *Line[T]) Ready(read int) bool { return l.few.Len() > 0 || l.many.Len() > 0 && read < mostRead }

// Push adds one of the connection in a slot that has so many positions.
func (l *Line[T]) Push(slot uint32, positions int, v T) {
	if positions <= usual {
		l.few.Push(v)
	} else {
		l.many.Push(slot, v)
	}
}

// Pop takes the next one; ok is false where there is none. read is as Ready has it.
func (l *Line[T]) Pop(read int) (v T, ok bool) {
	if l.later = !l.later; (l.later || l.few.Len() == 0) && read < mostRead {
		if v, ok = l.many.Pop(); ok {
			return v, true
		}
	}
	return l.few.Pop()
}
