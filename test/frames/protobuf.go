package frames

import (
	"errors"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// errNotMessage says that bytes are no message of the format.
var errNotMessage = errors.New("frames: not a message")

// generatedOf is m for the generated code.
func generatedOf(m *Message) *wirev1.Message {
	return &wirev1.Message{
		Topic: m.Topic, Seq: m.Seq, Payload: m.Payload, PublishedAt: m.PublishedAt, Id: m.ID, Headers: m.Headers, Attempt: m.Attempt,
		Priority: m.Priority, Traceparent: m.Traceparent, Score: m.Score, Subs: m.Subs, From: m.From,
	}
}

// DecodeProtobuf reads the body of a Message frame by hand. It takes and refuses what the generated
// code does.
func DecodeProtobuf(v *View, b []byte) error {
	v.reset()
	for len(b) > 0 {
		num, typ, n := consumeTag(b)
		if n < 0 {
			return errNotMessage
		}
		b = b[n:]
		if n = v.field(num, typ, b); n < 0 {
			return errNotMessage
		}
		b = b[n:]
	}
	return nil
}

// consumeTag refuses numbers too high for a field, which protowire alone takes.
func consumeTag(b []byte) (protowire.Number, protowire.Type, int) {
	num, typ, n := protowire.ConsumeTag(b)
	if num > protowire.MaxValidNumber {
		return 0, 0, -1
	}
	return num, typ, n
}

// field reads one field and returns its length, negative where it is broken.
func (v *View) field(num protowire.Number, typ protowire.Type, b []byte) int {
	switch typ {
	case protowire.BytesType:
		val, n := protowire.ConsumeBytes(b)
		if n < 0 || !v.bytes(num, val) {
			return -1
		}
		return n
	case protowire.VarintType:
		val, n := protowire.ConsumeVarint(b)
		if n >= 0 {
			v.varint(num, val)
		}
		return n
	case protowire.Fixed64Type:
		val, n := protowire.ConsumeFixed64(b)
		switch {
		case n < 0:
		case num == 4:
			v.PublishedAt = val
		case num == 10:
			v.Score = math.Float64frombits(val)
		}
		return n
	}
	return protowire.ConsumeFieldValue(num, typ, b)
}

func (v *View) varint(num protowire.Number, val uint64) {
	switch num {
	case 2:
		v.Seq = val
	case 7:
		v.Attempt = uint32(val) // cut off, as the generated code does
	case 8:
		v.Priority = uint32(val)
	case 11:
		v.Subs = append(v.Subs, uint32(val))
	}
}

// bytes is false where a string is not UTF-8, even one that a later field of the same number
// replaces.
func (v *View) bytes(num protowire.Number, val []byte) bool {
	switch num {
	case 1:
		v.Topic = val
		return utf8.Valid(val)
	case 3:
		v.Payload = val
	case 5:
		v.ID = val
	case 6:
		return v.header(val)
	case 9:
		v.Traceparent = val
		return utf8.Valid(val)
	case 11:
		return v.packed(val)
	case 13:
		v.From = val
		return utf8.Valid(val)
	}
	return true
}

func (v *View) packed(b []byte) bool {
	for len(b) > 0 {
		s, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return false
		}
		v.Subs, b = append(v.Subs, uint32(s)), b[n:]
	}
	return true
}

func (v *View) header(b []byte) bool {
	var h Header
	for len(b) > 0 {
		num, typ, n := consumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return false
		}
		if typ == protowire.BytesType && num <= 2 {
			val, _ := protowire.ConsumeBytes(b)
			if !utf8.Valid(val) {
				return false
			}
			if num == 1 {
				h.Key = val
			} else {
				h.Value = val
			}
		}
		b = b[n:]
	}
	v.Headers = append(v.Headers, h)
	return true
}
