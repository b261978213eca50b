package frames

import (
	"encoding/binary"
	"math"
)

// The fixed layout: numbers at fixed places, then what has a length, subs last so that they can be
// appended to a shared frame. Little-endian.
//
//	 0 seq · 8 published_at · 16 score · 24 id (16 bytes) · 40 attempt · 44 payload's length
//	48 topic's, 50 traceparent's, 52 from's length · 54 headers · 56 subs · 58 priority · 59 id is there
//	60 topic, payload, traceparent, from; for each header 2 + 4 bytes of lengths, key, value; 4 bytes a sub
const (
	fixedSeq  = 0
	fixedSubs = 56
	fixedSize = 60
)

// AppendFixed appends a message whose lengths fit their fields.
func AppendFixed(dst []byte, m *Message) []byte {
	var few [8]pair
	headers := sorted(few[:0], m.Headers)
	if dst == nil {
		dst = make([]byte, 0, sizeFixed(m, headers))
	}
	le := binary.LittleEndian
	var id [16]byte
	copy(id[:], m.ID)
	dst = le.AppendUint64(dst, m.Seq)
	dst = le.AppendUint64(dst, m.PublishedAt)
	dst = le.AppendUint64(dst, math.Float64bits(m.Score))
	dst = append(dst, id[:]...)
	dst = le.AppendUint32(dst, m.Attempt)
	dst = le.AppendUint32(dst, uint32(len(m.Payload)))
	dst = le.AppendUint16(dst, uint16(len(m.Topic)))
	dst = le.AppendUint16(dst, uint16(len(m.Traceparent)))
	dst = le.AppendUint16(dst, uint16(len(m.From)))
	dst = le.AppendUint16(dst, uint16(len(headers)))
	dst = le.AppendUint16(dst, uint16(len(m.Subs)))
	dst = append(dst, byte(m.Priority), byte(len(m.ID)/len(id)))
	dst = append(append(dst, m.Topic...), m.Payload...)
	dst = append(append(dst, m.Traceparent...), m.From...)
	for _, h := range headers {
		dst = le.AppendUint16(dst, uint16(len(h.key)))
		dst = le.AppendUint32(dst, uint32(len(h.value)))
		dst = append(append(dst, h.key...), h.value...)
	}
	for _, s := range m.Subs {
		dst = le.AppendUint32(dst, s)
	}
	return dst
}

func sizeFixed(m *Message, headers []pair) int {
	n := fixedSize + len(m.Topic) + len(m.Payload) + len(m.Traceparent) + len(m.From) + 4*len(m.Subs)
	for _, h := range headers {
		n += 6 + len(h.key) + len(h.value)
	}
	return n
}

// DecodeFixed reads a message in the fixed layout.
func DecodeFixed(v *View, b []byte) error {
	v.reset()
	if len(b) < fixedSize {
		return errNotMessage
	}
	le := binary.LittleEndian
	v.Seq, v.PublishedAt, v.Score = le.Uint64(b), le.Uint64(b[8:]), math.Float64frombits(le.Uint64(b[16:]))
	v.Attempt, v.Priority = le.Uint32(b[40:]), uint32(b[58])
	if b[59] != 0 {
		v.ID = b[24:40]
	}
	headers, subs := int(le.Uint16(b[54:])), int(le.Uint16(b[fixedSubs:]))
	rest, ok := b[fixedSize:], true
	v.Topic, rest, ok = cut(rest, int(le.Uint16(b[48:])), ok)
	v.Payload, rest, ok = cut(rest, int(le.Uint32(b[44:])), ok)
	v.Traceparent, rest, ok = cut(rest, int(le.Uint16(b[50:])), ok)
	v.From, rest, ok = cut(rest, int(le.Uint16(b[52:])), ok)
	for ; headers > 0 && ok; headers-- {
		var sizes []byte
		if sizes, rest, ok = cut(rest, 6, ok); !ok {
			break
		}
		var h Header
		h.Key, rest, ok = cut(rest, int(le.Uint16(sizes)), ok)
		h.Value, rest, ok = cut(rest, int(le.Uint32(sizes[2:])), ok)
		v.Headers = append(v.Headers, h)
	}
	if !ok || len(rest) != 4*subs || !v.valid() {
		return errNotMessage
	}
	for ; len(rest) > 0; rest = rest[4:] {
		v.Subs = append(v.Subs, le.Uint32(rest))
	}
	return nil
}

// cut takes n bytes off the front of b; where there are not so many, or ok is false, it is false.
func cut(b []byte, n int, ok bool) (part, rest []byte, _ bool) {
	if !ok || n > len(b) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// StampFixed appends a frame that was encoded without seq and subs, with them.
func StampFixed(dst, shared []byte, seq uint64, subs []uint32) []byte {
	at := len(dst)
	dst = append(dst, shared...)
	le := binary.LittleEndian
	le.PutUint64(dst[at+fixedSeq:], seq)
	le.PutUint16(dst[at+fixedSubs:], uint16(len(subs)))
	for _, s := range subs {
		dst = le.AppendUint32(dst, s)
	}
	return dst
}
