package slab

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// None makes a zero value that stands for "has none" and must never be written to. Builds that
// scribble keep it on a page that can't be written, so that a write ends the test; others save the
// system call.
func None[T any]() *T {
	if !Scribbles {
		return new(T)
	}
	var one T
	mem, err := unix.Mmap(-1, 0, int(unsafe.Sizeof(one)), unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(fmt.Errorf("slab: no memory: %w", err))
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(mem)))
}
