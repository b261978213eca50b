package eventring

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/internal/events"
)

// Take takes the oldest record; false where there is none.
func (r *Ring) Take() (e Record, ok bool) {
	at := r.tail.Load()
	if at == r.head.Load() {
		return e, false
	}
	var b [maxRecord]byte
	r.copyTo(b[:2], at)
	n := int(b[0])<<8 | int(b[1])
	r.copyTo(b[:n], at)
	e = decode(b[2:n])
	r.tail.Store(at + uint64(n))
	return e, true
}

func (r *Ring) copyTo(dst []byte, at uint64) {
	n := copy(dst, r.buf[at%Size:])
	copy(dst[n:], r.buf)
}

// Lost says how many records of a kind found no room so far.
func (r *Ring) Lost(k events.Kind) uint64 { return r.lost[k].Load() }

func decode(b []byte) (e Record) {
	varint := func() uint64 {
		v, n := protowire.ConsumeVarint(b)
		b = b[n:]
		return v
	}
	fixed := func() uint64 {
		v, n := protowire.ConsumeFixed64(b)
		b = b[n:]
		return v
	}
	text := func() string {
		v, n := protowire.ConsumeBytes(b)
		b = b[n:]
		return strings.ToValidUTF8(string(v), "")
	}
	e.Kind = events.Kind(varint())
	flags := varint()
	e.Flag, e.Backend, e.Code = flags&flagBit != 0, flags&backendBit != 0, int32(uint32(varint()))
	e.At, e.Conn, e.Epoch, e.Seq = fixed(), fixed(), fixed(), fixed()
	e.ClientID, e.User, e.Session, e.Name, e.Group, e.Reason = text(), text(), text(), text(), text(), text()
	return e
}
