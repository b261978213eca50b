package run

import "encoding/binary"

// decoder takes pieces from the front of b. After a failure everything is zero and ok is false.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) ok() bool { return !d.bad }

func (d *decoder) fail() {
	d.b, d.bad = nil, true
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() uint64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return uint64(v)
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) record(r *Record, base uint64, ids []byte) bool {
	flags := d.byte()
	if flags&^byte(known) != 0 {
		d.fail()
	}
	r.PublishedAt = base + d.varint()
	copy(r.ID[:], d.take(16))
	size := d.uvarint()
	if size > MaxRecord {
		d.fail()
	}
	r.Body = d.take(size)
	if flags&hasExpiry != 0 {
		r.ExpiresAt = r.PublishedAt + d.varint()
	}
	if flags&hasTrace != 0 {
		n := d.uvarint()
		if n > MaxTraceparent {
			d.fail()
		}
		r.Traceparent = string(d.take(n))
	}
	if flags&hasProducer != 0 {
		at := d.uvarint()
		if at >= uint64(len(ids)/16) {
			d.fail()
			return false
		}
		copy(r.Producer[:], ids[at*16:])
		r.ProducerSeq = d.uvarint()
	}
	return d.ok()
}
