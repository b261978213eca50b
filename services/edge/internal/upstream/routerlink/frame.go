package routerlink

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/internal/events"
)

// Frame is a meshv1.RouterFrame, decoded without copies: everything lies in the data, and is valid
// as long as that is not changed.
type Frame struct {
	Router                       []byte
	Incarnation, EdgeIncarnation uint64
	N, Applied                   uint64
	Deliveries                   []Delivery
	CheckTopics                  []string
	WantSnapshot, Leaving        bool
	// Broadcast is the number of a frame for every edge, 0 of one for this edge; that names the
	// LastBroadcast.
	Broadcast, LastBroadcast uint64
	// Events are the kinds that the router knows to be wanted, and Told; 0: it says nothing about
	// them.
	Events events.Mask
}

// Delivery is a meshv1.Delivery.
type Delivery struct {
	Topic                 []byte
	Epoch, Seq, ExpiresAt uint64
	Body                  []byte
}

// Decode reads data into f, whose memory is used again. False where it is no frame.
func (f *Frame) Decode(data []byte) bool {
	*f = Frame{Deliveries: f.Deliveries[:0], CheckTopics: f.CheckTopics[:0]}
	for len(data) > 0 {
		field, number, value, n := next(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		switch field {
		case bytesField | 1:
			f.Router = value
		case fixedField | 2:
			f.Incarnation = number
		case fixedField | 3:
			f.EdgeIncarnation = number
		case varintField | 4:
			f.N = number
		case varintField | 5:
			f.Applied = number
		case bytesField | 6:
			f.Deliveries = append(f.Deliveries, Delivery{})
			if !f.Deliveries[len(f.Deliveries)-1].decode(value) {
				return false
			}
		case bytesField | 7:
			f.CheckTopics = append(f.CheckTopics, string(value))
		case varintField | 8:
			f.WantSnapshot = number != 0
		case varintField | 9:
			f.Leaving = number != 0
		case varintField | 10:
			f.Events = events.Mask(number)
		case varintField | 12:
			f.Broadcast = number
		case varintField | 13:
			f.LastBroadcast = number
		}
	}
	return true
}

func (d *Delivery) decode(data []byte) bool {
	for len(data) > 0 {
		field, number, value, n := next(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		switch field {
		case bytesField | 1:
			d.Topic = value
		case fixedField | 2:
			d.Epoch = number
		case varintField | 3:
			d.Seq = number
		case fixedField | 4:
			d.ExpiresAt = number
		case bytesField | 5:
			d.Body = value
		}
	}
	return true
}

// A field is its number and one of these.
const (
	varintField = iota << 32
	fixedField
	bytesField
	otherField
)

// next reads a field: its number as a varint or fixed64, or its value. n is below 0 where there is
// none.
func next(data []byte) (field, number uint64, value []byte, n int) {
	num, kind, tag := protowire.ConsumeTag(data)
	if tag < 0 {
		return 0, 0, nil, tag
	}
	field = uint64(num)
	rest := data[tag:]
	switch kind {
	case protowire.VarintType:
		field |= varintField
		number, n = protowire.ConsumeVarint(rest)
	case protowire.BytesType:
		field |= bytesField
		value, n = protowire.ConsumeBytes(rest)
	case protowire.Fixed64Type:
		if len(rest) < 8 {
			return 0, 0, nil, -1
		}
		field, number, n = field|fixedField, binary.LittleEndian.Uint64(rest), 8
	default:
		field |= otherField
		n = protowire.ConsumeFieldValue(num, kind, rest)
	}
	if n < 0 {
		return 0, 0, nil, n
	}
	return field, number, value, tag + n
}
