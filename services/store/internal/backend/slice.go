package backend

import "time"

// Class says how long a topic's messages may be needed, and so in which log table they lie.
type Class uint8

// Classes by the longest retention that they serve.
const (
	Hour Class = iota
	Day
	Week
	Month
	Year
	Classes // their number
)

var classes = [Classes]struct {
	name        string
	keep, width time.Duration
}{
	Hour:  {"hour", time.Hour, 10 * time.Minute},
	Day:   {"day", 24 * time.Hour, 3 * time.Hour},
	Week:  {"week", 7 * 24 * time.Hour, 24 * time.Hour},
	Month: {"month", 31 * 24 * time.Hour, 5 * 24 * time.Hour},
	Year:  {"year", 366 * 24 * time.Hour, 30 * 24 * time.Hour},
}

// ClassFor is the shortest class that keeps messages for retention (Year for more).
func ClassFor(retention time.Duration) Class {
	for c := Hour; c < Year; c++ {
		if retention <= classes[c].keep {
			return c
		}
	}
	return Year
}

// String is the class's name in table names.
func (c Class) String() string { return classes[c].name }

// Keep is how long after a slice's End its rows may be needed.
func (c Class) Keep() time.Duration { return classes[c].keep }

// Slice of a run committed at the time at.
func (c Class) Slice(at uint64) Slice { return sliceOf(at, classes[c].width) }

// Slice is a piece of time, [Start, End) in microseconds.
type Slice struct{ Start, End uint64 }

// Next slice of the same width.
func (s Slice) Next() Slice { return Slice{s.End, s.End + (s.End - s.Start)} }

func sliceOf(at uint64, width time.Duration) Slice {
	w := uint64(width.Microseconds())
	return Slice{at - at%w, at - at%w + w}
}

// KeyClass says in which table a dedupe key lies. A key's slice is that of its Until, so that a
// slice can be dropped at its End, and a lookup at a time looks at the slices that end after it.
type KeyClass uint8

// Classes of keys by their window.
const (
	ShortKey KeyClass = iota
	LongKey
	KeyClasses // their number
)

var keyClasses = [KeyClasses]struct {
	name          string
	window, width time.Duration
}{
	ShortKey: {"short", 10 * time.Minute, 10 * time.Minute},
	LongKey:  {"long", 24 * time.Hour, 12 * time.Hour},
}

// KeyClassFor is the class of keys remembered for window.
func KeyClassFor(window time.Duration) KeyClass {
	if window <= keyClasses[ShortKey].window {
		return ShortKey
	}
	return LongKey
}

// String is the class's name in table names.
func (c KeyClass) String() string { return keyClasses[c].name }

// Slice of a key that is remembered until a time.
func (c KeyClass) Slice(until uint64) Slice { return sliceOf(until, keyClasses[c].width) }

// Reach is the last slice that a key committed now may lie in.
func (c KeyClass) Reach(now uint64) Slice {
	return c.Slice(now + uint64(keyClasses[c].window.Microseconds()))
}
