// Package run packs the records of one run of a topic's log into bytes, as they lie in a row.
//
//	version (1 byte: 1) · n · base published_at · producers · 16 bytes each · then n records of
//	flags (1 byte) · published_at - base, zigzag · id (16 bytes) · body's length · body, and by flag
//	expires_at - published_at, zigzag · traceparent's length, traceparent · producer's index, producer_seq
//
// Numbers are varints. The seq of a record follows from the run's first seq.
package run

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Bounds of a run. A single record may be larger than MaxBytes: it is a run of its own.
const (
	MaxRecords = 4096
	// MaxBytes of bodies; a reader holds one run at a time, so this bounds what a read costs.
	MaxBytes = 512 << 10
	// MaxRecord is the most bytes that one record's body may have.
	MaxRecord = 4 << 20
	// MaxTraceparent is the most bytes of a traceparent; the W3C's has 55.
	MaxTraceparent = 128
	// MaxPacked bounds a packed run: anything longer is not one.
	MaxPacked = MaxRecord + MaxBytes + MaxRecords*(64+MaxTraceparent)
)

// ErrBad is wrapped by every error of Unpack.
var ErrBad = errors.New("run: bad bytes")

// Record is one message of a run. Times are Unix microseconds.
type Record struct {
	ID          [16]byte
	PublishedAt uint64
	// ExpiresAt 0: never.
	ExpiresAt   uint64
	Traceparent string
	// Producer and ProducerSeq of an ordered producer; zero: none.
	Producer    [16]byte
	ProducerSeq uint64
	Body        []byte
}

// HeaderSize is the most that a run of one producer takes beside its records.
const HeaderSize = 1 + 2*3 + 10 + 16

// Size is about what the record takes in a run, hardly ever less.
func (r *Record) Size() int {
	n := 1 + 3 + 16 + 3 + len(r.Body)
	if r.ExpiresAt != 0 {
		n += 6
	}
	if r.Traceparent != "" {
		n += 1 + len(r.Traceparent)
	}
	if r.ProducerSeq != 0 {
		n += 1 + 4
	}
	return n
}

const (
	version = 1

	hasExpiry   = 1 << 0
	hasTrace    = 1 << 1
	hasProducer = 1 << 2
	known       = hasExpiry | hasTrace | hasProducer
)

// Pack appends the records to dst. They must keep the bounds above.
func Pack(dst []byte, records []Record) []byte {
	dst = append(dst, version)
	dst = binary.AppendUvarint(dst, uint64(len(records)))
	var base uint64
	if len(records) > 0 {
		base = records[0].PublishedAt
	}
	dst = binary.AppendUvarint(dst, base)
	index, ids := producers(records)
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = append(dst, id[:]...)
	}
	for i := range records {
		dst = packRecord(dst, &records[i], base, index)
	}
	return dst
}

func producers(records []Record) (index map[[16]byte]uint64, ids [][16]byte) {
	for i := range records {
		r := &records[i]
		if r.ProducerSeq == 0 {
			continue
		}
		if index == nil {
			index = make(map[[16]byte]uint64, 4)
		}
		if _, ok := index[r.Producer]; !ok {
			index[r.Producer] = uint64(len(ids))
			ids = append(ids, r.Producer)
		}
	}
	return index, ids
}

func packRecord(dst []byte, r *Record, base uint64, index map[[16]byte]uint64) []byte {
	var flags byte
	if r.ExpiresAt != 0 {
		flags |= hasExpiry
	}
	if r.Traceparent != "" {
		flags |= hasTrace
	}
	if r.ProducerSeq != 0 {
		flags |= hasProducer
	}
	dst = append(dst, flags)
	dst = binary.AppendVarint(dst, int64(r.PublishedAt-base))
	dst = append(dst, r.ID[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(r.Body)))
	dst = append(dst, r.Body...)
	if flags&hasExpiry != 0 {
		dst = binary.AppendVarint(dst, int64(r.ExpiresAt-r.PublishedAt))
	}
	if flags&hasTrace != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(r.Traceparent)))
		dst = append(dst, r.Traceparent...)
	}
	if flags&hasProducer != 0 {
		dst = binary.AppendUvarint(dst, index[r.Producer])
		dst = binary.AppendUvarint(dst, r.ProducerSeq)
	}
	return dst
}

// Each calls visit with every record of packed, in order, until it returns false. r.Body lies in
// packed and is valid as long as that; r is reused.
func Each(packed []byte, visit func(i int, r *Record) bool) error {
	if len(packed) > MaxPacked {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrBad, len(packed), MaxPacked)
	}
	d := decoder{b: packed}
	if v := d.byte(); d.ok() && v != version {
		return fmt.Errorf("%w: version %d", ErrBad, v)
	}
	n, base, count := d.uvarint(), d.uvarint(), d.uvarint()
	if !d.ok() || n > MaxRecords || count > n {
		return fmt.Errorf("%w: header", ErrBad)
	}
	ids := d.take(count * 16)
	for i := range int(n) {
		var r Record
		if !d.record(&r, base, ids) {
			return fmt.Errorf("%w: record %d of %d", ErrBad, i, n)
		}
		if !visit(i, &r) {
			return nil
		}
	}
	if len(d.b) != 0 || !d.ok() {
		return fmt.Errorf("%w: %d bytes too many", ErrBad, len(d.b))
	}
	return nil
}
