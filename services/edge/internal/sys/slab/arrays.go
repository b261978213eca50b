package slab

import (
	"fmt"
	"math/bits"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	wordSize = int(unsafe.Sizeof(uintptr(0)))
	// regionBytes is how much is mapped for arrays at a time; pages are the kernel's until they are
	// touched.
	regionBytes = 1 << 20
	arrayKinds  = 28
)

// Arrays is the memory of Lists: arrays of 2 to the n pointers, off the heap. It belongs to one
// goroutine.
type Arrays struct {
	regions []*region
	left    []byte                     // of the last region
	free    [arrayKinds]unsafe.Pointer // of each size, linked through their first words
	taken   int                        // bytes
}

type region struct{ mem []byte }

// take gives an array of 1<<kind pointers whose contents are anything.
func (a *Arrays) take(kind uint8) unsafe.Pointer {
	size := wordSize << kind
	a.taken += size
	if p := a.free[kind]; p != nil {
		a.free[kind] = *(*unsafe.Pointer)(p)
		return p
	}
	if len(a.left) < size {
		a.spare()
		a.left = a.newRegion(max(size, regionBytes))
	}
	p := unsafe.Pointer(unsafe.SliceData(a.left))
	a.left = a.left[size:]
	return p
}

// give takes an array back. Its bytes are overwritten where Scribbles.
func (a *Arrays) give(p unsafe.Pointer, kind uint8) {
	a.taken -= wordSize << kind
	if Scribbles {
		scribble(unsafe.Slice((*byte)(p), wordSize<<kind))
	}
	*(*unsafe.Pointer)(p), a.free[kind] = a.free[kind], p
}

// spare keeps what is left of a region, which is too small for what is wanted, for smaller arrays.
func (a *Arrays) spare() {
	for len(a.left) >= wordSize {
		kind := uint8(bits.Len(uint(len(a.left)/wordSize)) - 1)
		p := unsafe.Pointer(unsafe.SliceData(a.left))
		*(*unsafe.Pointer)(p), a.free[kind] = a.free[kind], p
		a.left = a.left[wordSize<<kind:]
	}
}

func (a *Arrays) newRegion(size int) []byte {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(fmt.Errorf("slab: no memory: %w", err))
	}
	r := &region{mem}
	runtime.AddCleanup(r, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	a.regions = append(a.regions, r)
	return mem
}

// Bytes of the arrays that are in use.
func (a *Arrays) Bytes() int { return a.taken }
