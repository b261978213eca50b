package frames

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// AckEntry is one entry of an Ack, whose bytes it refers to.
type AckEntry struct {
	Topic   []byte
	Seq     uint64
	Epoch   uint64
	Sub     uint32
	Through bool
}

// Field numbers of Ack, and of its entries.
const (
	ackEntries = 1

	entryTopic   = 1
	entrySeq     = 2
	entryThrough = 3
	entrySub     = 4
	entryEpoch   = 5
)

// NextAckField decodes the field at the beginning of what is left of an Ack's body: is reports
// whether it is an entry, n is how long it is; 0: it is malformed.
func NextAckField(rest []byte) (e AckEntry, is bool, n int) {
	num, typ, tag := protowire.ConsumeTag(rest)
	if tag < 0 {
		return e, false, 0
	}
	size := protowire.ConsumeFieldValue(num, typ, rest[tag:])
	if size < 0 {
		return e, false, 0
	}
	n = tag + size
	if num != ackEntries || typ != protowire.BytesType {
		return e, false, n
	}
	raw, _ := protowire.ConsumeBytes(rest[tag:n])
	if !e.decode(raw) {
		return e, false, 0
	}
	return e, true, n
}

func (e *AckEntry) decode(b []byte) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		var v uint64
		switch {
		case num == entryTopic && typ == protowire.BytesType:
			e.Topic, n = protowire.ConsumeBytes(b)
		case num == entryEpoch && typ == protowire.Fixed64Type:
			e.Epoch, n = protowire.ConsumeFixed64(b)
		case num >= entrySeq && num <= entrySub && typ == protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
			switch num {
			case entrySeq:
				e.Seq = v
			case entryThrough:
				e.Through = v != 0
			case entrySub:
				e.Sub = uint32(v)
			}
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return false
		}
		b = b[n:]
	}
	return true
}
