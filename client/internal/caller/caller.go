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
