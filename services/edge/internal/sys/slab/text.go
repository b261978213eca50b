package slab

import "unsafe"

// Texts keeps short strings off the heap, each in the smallest of some sizes.
type Texts struct {
	s16  Slab[[16]byte]
	s32  Slab[[32]byte]
	s64  Slab[[64]byte]
	s128 Slab[[128]byte]
	s256 Slab[[256]byte]
}

// MaxText is how long a string may be.
const MaxText = 256

// Put copies s. The copy is good until Drop; what outlives that is cloned.
func (t *Texts) Put(s string) string {
	var place []byte
	switch n := len(s); {
	case n == 0 || n > MaxText:
		return ""
	case n <= 16:
		place = t.s16.Take()[:]
	case n <= 32:
		place = t.s32.Take()[:]
	case n <= 64:
		place = t.s64.Take()[:]
	case n <= 128:
		place = t.s128.Take()[:]
	default:
		place = t.s256.Take()[:]
	}
	copy(place, s)
	return unsafe.String(&place[0], len(s))
}

// Drop takes a copy back.
func (t *Texts) Drop(s string) {
	at := unsafe.Pointer(unsafe.StringData(s))
	switch n := len(s); {
	case n == 0:
	case n <= 16:
		t.s16.Free((*[16]byte)(at))
	case n <= 32:
		t.s32.Free((*[32]byte)(at))
	case n <= 64:
		t.s64.Free((*[64]byte)(at))
	case n <= 128:
		t.s128.Free((*[128]byte)(at))
	default:
		t.s256.Free((*[256]byte)(at))
	}
}

// Bytes that were ever handed out.
func (t *Texts) Bytes() int {
	return t.s16.Bytes() + t.s32.Bytes() + t.s64.Bytes() + t.s128.Bytes() + t.s256.Bytes()
}

// Taken is how many are in use.
func (t *Texts) Taken() int {
	return t.s16.Taken() + t.s32.Taken() + t.s64.Taken() + t.s128.Taken() + t.s256.Taken()
}
