// Package caller says which goroutine calls, and on whose behalf.
package caller

import (
	"bytes"
	"reflect"
	"runtime"
	"strconv"
)

// ID is the calling goroutine's: no other one that lives has it. It takes some microseconds.
func ID() uint64 {
	var buf [64]byte
	text := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(text, []byte(" "))
	// 0, which is none, where stacks look otherwise
	id, _ := strconv.ParseUint(string(digits), 10, 64)
	return id
}

// Name is what stacks call a function.
func Name(f any) string { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name() }

// Under is which of the functions of these names the calling goroutine is in, as an index: of
// several, the one that was called last; -1: in none.
func Under(names ...string) int {
	pcs := make([]uintptr, 64)
	for skip := 1; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			for i, name := range names {
				if f.Function == name {
					return i
				}
			}
		}
		if n < len(pcs) {
			return -1
		}
	}
}

// Site is where a call comes from.
type Site int

// The sites.
const (
	Elsewhere Site = iota
	// InCrew is a handler that runs beside others.
	InCrew
	// InQueue is a handler that all others wait for, or a callback like that.
	InQueue
	// OnReader is a handler or a callback that all that comes over the connection waits for.
	OnReader
)

// Goroutines of a Subscriber, as far as they are in functions of the program. Their Subscriber
// guards them.
type Goroutines struct {
	Reader              uint64 // the one that reads
	Inline              bool   // it runs the handlers
	Handlers, Callbacks int    // that run
}

// OnReader reports whether the calling goroutine is the one that reads.
func (g *Goroutines) OnReader() bool {
	return (g.Callbacks > 0 || g.Inline && g.Handlers > 0) && ID() == g.Reader
}

// Site is where the call comes from, where it is not on the reader: on goroutines of the function
// queue all wait for each other, on those of crew they do not.
func (g *Goroutines) Site(queue, crew string) Site {
	if g.Callbacks+g.Handlers == 0 {
		return Elsewhere
	}
	switch Under(queue, crew) {
	case 0:
		return InQueue
	case 1:
		return InCrew
	}
	return Elsewhere
}
