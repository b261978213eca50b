package firehose

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Numbers of fields of PublishStreamRequest and of what is in it.
const (
	fieldBatch = 5

	fieldRef     = 1
	fieldMessage = 2

	fieldTopic   = 1
	fieldPayload = 2

	fieldResults = 1
	fieldCode    = 3
	fieldError   = 4
)

// Numbers are written as varints of this many bytes, so that they can be changed in place: up to
// 2^35 - 1.
const fixedVarint = 5

const maxNumber = 1<<(7*fixedVarint) - 1

// frame is an encoded PublishStreamRequest, one message for each topic, whose numbers are changed
// each time it is sent.
type frame struct {
	bytes    []byte
	payloads [][]byte // of each message, in bytes
	refs     []int    // where the ref of each message stands
}

// newFrame encodes a message for each topic.
func newFrame(topics []string, payloads [][]byte) *frame {
	f := &frame{}
	var ends []int // of payloads, the last thing in each message
	for i, topic := range topics {
		var message []byte
		message = protowire.AppendTag(message, fieldTopic, protowire.BytesType)
		message = protowire.AppendString(message, topic)
		message = protowire.AppendTag(message, fieldPayload, protowire.BytesType)
		message = protowire.AppendBytes(message, payloads[i])

		size := 1 + fixedVarint + 1 + protowire.SizeBytes(len(message))
		f.bytes = protowire.AppendTag(f.bytes, fieldBatch, protowire.BytesType)
		f.bytes = protowire.AppendVarint(f.bytes, uint64(size))
		f.bytes = protowire.AppendTag(f.bytes, fieldRef, protowire.VarintType)
		f.refs = append(f.refs, len(f.bytes))
		f.bytes = append(f.bytes, make([]byte, fixedVarint)...)
		f.bytes = protowire.AppendTag(f.bytes, fieldMessage, protowire.BytesType)
		f.bytes = protowire.AppendBytes(f.bytes, message)
		ends = append(ends, len(f.bytes))
	}
	for i, end := range ends { // only now: f.bytes has stopped growing
		f.payloads = append(f.payloads, f.bytes[end-len(payloads[i]):end])
	}
	return f
}

// number gives the messages refs from first on.
func (f *frame) number(first uint64) {
	for i, at := range f.refs {
		putFixed(f.bytes[at:], first+uint64(i))
	}
}

// putFixed writes a varint of fixedVarint bytes, longer than it need be, as decoders allow.
func putFixed(dst []byte, v uint64) {
	for i := range fixedVarint - 1 {
		dst[i] = byte(v) | 0x80
		v >>= 7
	}
	dst[fixedVarint-1] = byte(v & 0x7f)
}

var errAnswer = errors.New("firehose: not a PublishStreamResponse")

// Results visits the results of an encoded PublishStreamResponse.
func Results(b []byte, visit func(ref uint64, code wirev1.Code, text []byte) error) error {
	return eachField(b, func(num protowire.Number, _ uint64, value []byte) error {
		if num != fieldResults || value == nil {
			return nil
		}
		var ref, code uint64
		var text []byte
		err := eachField(value, func(num protowire.Number, v uint64, value []byte) error {
			switch num {
			case fieldRef:
				ref = v
			case fieldCode:
				code = v
			case fieldError:
				text = value
			}
			return nil
		})
		if err != nil {
			return err
		}
		return visit(ref, wirev1.Code(code), text)
	})
}

// eachField visits the fields of a message; value is nil unless the field is length-delimited.
func eachField(b []byte, visit func(num protowire.Number, v uint64, value []byte) error) error {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errAnswer, protowire.ParseError(n))
		}
		b = b[n:]
		var v uint64
		var value []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errAnswer, protowire.ParseError(n))
		}
		b = b[n:]
		if err := visit(num, v, value); err != nil {
			return err
		}
	}
	return nil
}
