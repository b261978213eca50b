// Package slab keeps what a loop has very many of (connections, subscriptions, positions) in memory
// that the garbage collector neither walks nor counts: a million of them cost it nothing, and the
// heap is not allowed to grow by as much again.
//
// What lies in a slab may point to things of slabs and pools of the same owner, which are never
// moved and given back to the system only with their owner. It must not hold the last pointer to
// anything else.
package slab

import (
	"fmt"
	"reflect"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Slab hands out zeroed places for values of one type. It belongs to one goroutine.
type Slab[T any] struct {
	chunks []*chunk[T]
	next   int // of the last chunk: places behind were never taken
	free   []*T
	taken  int
}

// chunkItems is how many values are mapped at a time; pages are the kernel's until they are
// touched.
const chunkItems = 1024

type chunk[T any] struct{ items []T }

// Take gives a zeroed place. The pointer is good until Free.
func (s *Slab[T]) Take() *T {
	s.taken++
	if n := len(s.free); n > 0 {
		p := s.free[n-1]
		s.free = s.free[:n-1]
		var zero T
		*p = zero
		return p
	}
	if len(s.chunks) == 0 || s.next == chunkItems {
		s.chunks, s.next = append(s.chunks, newChunk[T]()), 0
	}
	p := &s.chunks[len(s.chunks)-1].items[s.next]
	s.next++
	return p
}

// Free takes a place back. Its bytes are overwritten where Scribbles.
func (s *Slab[T]) Free(p *T) {
	s.taken--
	if Scribbles {
		Scribble(p)
	}
	s.free = append(s.free, p)
}

// Taken is how many places are in use.
func (s *Slab[T]) Taken() int { return s.taken }

// Bytes that were ever handed out: what the slab costs, for the collector does not say.
func (s *Slab[T]) Bytes() int {
	var one T
	return s.Len() * int(unsafe.Sizeof(one))
}

// At is the i-th place that was ever taken, for slabs from which nothing is freed.
func (s *Slab[T]) At(i int) *T { return &s.chunks[i/chunkItems].items[i%chunkItems] }

// Len is how many places were ever taken.
func (s *Slab[T]) Len() int {
	if len(s.chunks) == 0 {
		return 0
	}
	return (len(s.chunks)-1)*chunkItems + s.next
}

func newChunk[T any]() *chunk[T] {
	check[T]()
	var one T
	mem, err := unix.Mmap(-1, 0, int(unsafe.Sizeof(one))*chunkItems, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(fmt.Errorf("slab: no memory: %w", err)) // as the runtime does for its own
	}
	c := &chunk[T]{items: unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), chunkItems)}
	runtime.AddCleanup(c, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return c
}

// check refuses types that hold what only the collector can keep: slices, maps, interfaces,
// functions and channels.
func check[T any]() {
	if t := reflect.TypeFor[T](); !fits(t) {
		panic(fmt.Sprintf("slab: %v holds what the collector must see", t))
	}
}

func fits(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Map, reflect.Interface, reflect.Func, reflect.Chan:
		return false
	case reflect.Array:
		return fits(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !fits(t.Field(i).Type) {
				return false
			}
		}
	}
	return true
}

// Scribble fills a value with a pattern that no valid pointer has.
func Scribble[T any](p *T) {
	scribble(unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)))
}

func scribble(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}
