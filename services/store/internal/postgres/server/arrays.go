package server

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"
)

// Arrays encodes parameters that are arrays, in Postgres's binary form, one behind the other in
// memory that is used again. pgx would find the way to encode each element by reflection and grow
// its memory with every batch.
type Arrays struct {
	b     []byte
	start []int // of each parameter
}

// maxArrays bounds the memory kept between batches.
const maxArrays = 16 << 20

// Reset forgets every parameter.
func (a *Arrays) Reset() {
	a.b, a.start = a.b[:0], a.start[:0]
	if cap(a.b) > maxArrays {
		a.b = nil
	}
}

// begin begins an array of n elements.
func (a *Arrays) begin(element uint32, n int) {
	a.start = append(a.start, len(a.b))
	dimensions := uint32(1)
	if n == 0 {
		dimensions = 0
	}
	a.uint32(dimensions)
	a.uint32(0) // no nulls
	a.uint32(element)
	if n > 0 {
		a.uint32(uint32(n))
		a.uint32(1) // the first element's number
	}
}

func (a *Arrays) uint32(v uint32) { a.b = binary.BigEndian.AppendUint32(a.b, v) }

func (a *Arrays) uint64(v uint64) { a.b = binary.BigEndian.AppendUint64(a.b, v) }

// Int2 adds an element.
func (a *Arrays) Int2(v uint16) {
	a.uint32(2)
	a.b = binary.BigEndian.AppendUint16(a.b, v)
}

// Bool adds an element.
func (a *Arrays) Bool(v bool) {
	a.uint32(1)
	if v {
		a.b = append(a.b, 1)
	} else {
		a.b = append(a.b, 0)
	}
}

// Int4 adds an element.
func (a *Arrays) Int4(v int) {
	a.uint32(4)
	a.uint32(uint32(v))
}

// Int8 adds an element.
func (a *Arrays) Int8(v uint64) {
	a.uint32(8)
	a.uint64(v)
}

// Text adds an element.
func (a *Arrays) Text(v string) {
	a.uint32(uint32(len(v)))
	a.b = append(a.b, v...)
}

// Bytes adds an element.
func (a *Arrays) Bytes(v []byte) {
	a.uint32(uint32(len(v)))
	a.b = append(a.b, v...)
}

// Params are the arrays since the last reset, valid until the next.
func (a *Arrays) Params() [][]byte {
	all := make([][]byte, len(a.start))
	for i, start := range a.start {
		end := len(a.b)
		if i+1 < len(a.start) {
			end = a.start[i+1]
		}
		all[i] = a.b[start:end]
	}
	return all
}

// Column encodes one field of every element.
func Column[E any](a *Arrays, element uint32, all []E, put func(*Arrays, *E)) {
	a.begin(element, len(all))
	for i := range all {
		put(a, &all[i])
	}
}

// Types of elements.
const (
	OIDBool  = uint32(pgtype.BoolOID)
	OIDInt2  = uint32(pgtype.Int2OID)
	OIDInt4  = uint32(pgtype.Int4OID)
	OIDInt8  = uint32(pgtype.Int8OID)
	OIDText  = uint32(pgtype.TextOID)
	OIDBytes = uint32(pgtype.ByteaOID)
	OIDUUID  = uint32(pgtype.UUIDOID)
)
