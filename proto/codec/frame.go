package codec

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Frame is a message as it was received, for whoever decodes it later, or a part of it alone. Codec
// receives into a *Frame, which then holds gRPC's buffers until it is freed.
type Frame struct{ data mem.BufferSlice }

func (f *Frame) unmarshal(data mem.BufferSlice) {
	data.Ref()
	*f = Frame{append(mem.BufferSlice(nil), data...)}
}

// Len is the size in bytes.
func (f *Frame) Len() int { return f.data.Len() }

// Free gives the buffers back, once; the frame is empty then.
func (f *Frame) Free() {
	f.data.Free()
	f.data = nil
}

// Decode decodes all of it into a message, which keeps nothing of the frame.
func (f *Frame) Decode(m proto.Message) error { return Codec{}.Unmarshal(f.data, m) }

// Thin decodes a PublishStreamRequest except for what late says of a message: of such a one the ref
// is appended to refs, and nothing is decoded or kept. A message with a producer_seq is never asked
// about, nor one outside of a batch. topic is valid during the call alone.
func (f *Frame) Thin(m *pushmeshv1.PublishStreamRequest, refs []uint64, late func(topic []byte, priority uint32) bool) ([]uint64, error) {
	buf := f.data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	all := buf.ReadOnlyData()
	if _, ok := countBatch(all); !ok {
		return refs, f.Decode(m)
	}
	was := len(refs)
	var kept [][]byte
	size := 0
	m.Reset()
	for c := (cursor{b: all}); ; {
		number, _, more := c.next()
		if !more {
			break
		}
		b := c.bytes()
		if number == 3 {
			m.ProducerId = append([]byte(nil), b...)
			continue
		}
		if ref, topic, priority, ok := peekItem(b); ok && late(topic, priority) {
			refs = append(refs, ref)
			continue
		}
		kept = append(kept, b)
		size += len(b)
	}
	if len(refs) == was {
		return refs, f.Decode(m)
	}
	return refs, takeItems(kept, size, m)
}

// takeItems decodes copies of encoded items, size bytes together, into m's batch.
func takeItems(encoded [][]byte, size int, m *pushmeshv1.PublishStreamRequest) error {
	if len(encoded) == 0 {
		return nil
	}
	own := make([]byte, 0, size)
	items := make([]item, len(encoded))
	m.Batch = make([]*pushmeshv1.PublishStreamRequest_Item, 0, len(encoded))
	for i, b := range encoded {
		own = append(own, b...)
		b = own[len(own)-len(b) : len(own) : len(own)]
		m.Batch = append(m.Batch, &items[i].item)
		if takeItem(b, &items[i]) {
			continue
		}
		if err := proto.Unmarshal(b, &items[i].item); err != nil {
			return err
		}
	}
	return nil
}

// peekItem finds what a message is refused by; ok is false for one with a producer_seq, without a
// message or of an unusual form.
func peekItem(b []byte) (ref uint64, topic []byte, priority uint32, ok bool) {
	message := false
	for c := (cursor{b: b}); ; {
		number, kind, more := c.next()
		switch {
		case !more:
			return ref, topic, priority, message && !c.bad
		case kind == kindVarint && number == 1:
			ref = c.varint()
		case kind == kindBytes && number == 2 && !message:
			// a second one would be merged into the first
			if topic, priority, message = peekPublish(c.bytes()); !message {
				return 0, nil, 0, false
			}
		default:
			return 0, nil, 0, false
		}
	}
}

func peekPublish(b []byte) (topic []byte, priority uint32, ok bool) {
	for c := (cursor{b: b}); ; {
		number, kind, more := c.next()
		switch {
		case !more:
			return topic, priority, !c.bad
		case kind == kindBytes && number == 1:
			topic = c.bytes()
		case kind == kindBytes:
			c.bytes()
		case kind == kindVarint && number == 5:
			priority = uint32(c.varint())
		default:
			return nil, 0, false
		}
	}
}
