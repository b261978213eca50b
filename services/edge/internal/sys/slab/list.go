package slab

import (
	"iter"
	"math/bits"
	"unsafe"
)

// List is a list of pointers into slabs and pools, itself where the collector does not look; it may
// lie in a slab. One pointer is kept in place, up to pageItems lie in an array that doubles, more
// in pages of that many: growing never copies more than a page, or the directory of the pages. Its
// memory comes from the Arrays that every change is given, always the same.
type List[T any] struct {
	at    unsafe.Pointer // the one pointer, the array, or the directory
	n     uint32
	shape shape
}

const (
	pageKind  = 8
	pageItems = 1 << pageKind
)

// shape says that at has room for 1<<kind pointers, and how many pages they point to, 0 where there
// are none.
type shape uint32

const shapePages = 8 // the bits of pages begin here

func shapeOf(kind uint8, pages int) shape { return shape(pages)<<shapePages | shape(kind) }
func (s shape) kind() uint8               { return uint8(s) }
func (s shape) pages() int                { return int(s >> shapePages) }

// Len is how many there are.
func (l *List[T]) Len() int { return int(l.n) }

// At is the i-th.
func (l *List[T]) At(i int) *T { return *l.place(i) }

// Set puts p in the i-th place.
func (l *List[T]) Set(i int, p *T) { *l.place(i) = p }

// All goes over the list; what is appended meanwhile comes too.
func (l *List[T]) All() iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		for i := 0; i < int(l.n) && yield(i, l.At(i)); i++ {
		}
	}
}

func (l *List[T]) place(i int) **T {
	if uint(i) >= uint(l.n) {
		panic("slab: the list is not as long")
	}
	at := l.at
	if l.shape >= 1<<shapePages {
		at, i = *(*unsafe.Pointer)(unsafe.Add(at, i>>pageKind*wordSize)), i&(pageItems-1)
	} else if l.shape == 0 {
		at = unsafe.Pointer(&l.at)
	}
	return (**T)(unsafe.Add(at, i*wordSize))
}

func word(at unsafe.Pointer, i int) *unsafe.Pointer {
	return (*unsafe.Pointer)(unsafe.Add(at, i*wordSize))
}

// Append adds p at the end.
func (l *List[T]) Append(a *Arrays, p *T) {
	n, pages := int(l.n), l.shape.pages()
	switch {
	case pages > 0:
		if n == pages*pageItems {
			l.addPage(a)
		}
	case n == pageItems:
		first := l.at
		l.at, l.shape = a.take(1), shapeOf(1, 1)
		*word(l.at, 0) = first
		l.addPage(a)
	case n == 1<<l.shape.kind():
		l.resize(a, l.shape.kind()+1)
	}
	l.n++
	l.Set(n, p)
}

func (l *List[T]) addPage(a *Arrays) {
	kind, pages := l.shape.kind(), l.shape.pages()
	if pages == 1<<kind {
		kind++
		l.move(a, kind, pages)
	}
	*word(l.at, pages) = a.take(pageKind)
	l.shape = shapeOf(kind, pages+1)
}

// Pop takes the last one away; memory goes back when a page and a half, or three quarters of the
// array, are not needed.
func (l *List[T]) Pop(a *Arrays) {
	l.n--
	n, pages := int(l.n), l.shape.pages()
	switch {
	case pages > 0:
		if n+pageItems/2 == (pages-1)*pageItems {
			l.dropPage(a)
		}
	case n == 0:
		l.at = nil
	case n == 1:
		l.resize(a, 0)
	case n == 1<<l.shape.kind()/4:
		l.resize(a, l.shape.kind()-1)
	}
}

// Take takes the i-th away. The last one has its place then, and is given back, or nil where it was
// the last itself.
func (l *List[T]) Take(a *Arrays, i int) (moved *T) {
	if last := int(l.n) - 1; i != last {
		moved = l.At(last)
		l.Set(i, moved)
	}
	l.Pop(a)
	return moved
}

func (l *List[T]) dropPage(a *Arrays) {
	kind, pages := l.shape.kind(), l.shape.pages()-1
	a.give(*word(l.at, pages), pageKind)
	if pages == 1 {
		first := *word(l.at, 0)
		a.give(l.at, kind)
		l.at, l.shape = first, shapeOf(pageKind, 0)
		return
	}
	if less := uint8(bits.Len(uint(pages))); less+1 < kind {
		kind = less
		l.move(a, kind, pages)
	}
	l.shape = shapeOf(kind, pages)
}

// resize moves the array to one of 1<<kind, or the last pointer into the list itself.
func (l *List[T]) resize(a *Arrays, kind uint8) {
	switch {
	case kind == 0:
		only := *word(l.at, 0)
		a.give(l.at, l.shape.kind())
		l.at = only
	case l.shape.kind() == 0:
		only := l.at
		l.at = a.take(kind)
		*word(l.at, 0) = only
	default:
		l.move(a, kind, int(l.n))
	}
	l.shape = shapeOf(kind, 0)
}

// move copies the first n of what at points to into an array of 1<<kind.
func (l *List[T]) move(a *Arrays, kind uint8, n int) {
	to := a.take(kind)
	copy(unsafe.Slice((*unsafe.Pointer)(to), n), unsafe.Slice((*unsafe.Pointer)(l.at), n))
	a.give(l.at, l.shape.kind())
	l.at = to
}
