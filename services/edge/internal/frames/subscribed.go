// Package frames encodes and decodes in place those frames of the push protocol that come too often
// for generated code, or get too long for one step of a loop.
package frames

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Subscribed is one in the making. Positions are encoded as they are worked out, so that a frame
// with very many of them is whole at once in the end.
type Subscribed struct {
	Begun       bool
	Recovered   bool
	Epoch, Head uint64
	Missed      uint64
	// headRoom for what comes before the positions, and these; nil: there are none
	frame []byte
}

// Field numbers of Subscribed, and of its positions.
const (
	subscribedID = 1 + iota
	subscribedEpoch
	subscribedHead
	subscribedRecovered
	subscribedMissed
	subscribedPositions
)

const (
	positionTopic = 1 + iota
	positionEpoch
	positionHead
	positionRecovered
	positionMissed
)

// headRoom is enough for the header and the fields before the positions.
const headRoom = 64

// AddPosition adds one.
func (a *Subscribed) AddPosition(topic string, epoch, head uint64, recovered bool, missed uint64) {
	if a.frame == nil {
		a.frame = make([]byte, headRoom, 1<<10)
	}
	size := protowire.SizeTag(positionTopic) + protowire.SizeBytes(len(topic)) + sizeFields(epoch, head, recovered, missed)
	a.frame = protowire.AppendTag(a.frame, subscribedPositions, protowire.BytesType)
	a.frame = protowire.AppendVarint(a.frame, uint64(size))
	a.frame = protowire.AppendTag(a.frame, positionTopic, protowire.BytesType)
	a.frame = protowire.AppendString(a.frame, topic)
	a.frame = appendFields(a.frame, epoch, head, recovered, missed)
}

// sizeFields and appendFields are of what Subscribed and its positions have in common, under the
// same numbers.
func sizeFields(epoch, head uint64, recovered bool, missed uint64) (n int) {
	if epoch != 0 {
		n += protowire.SizeTag(positionEpoch) + protowire.SizeFixed64()
	}
	if head != 0 {
		n += protowire.SizeTag(positionHead) + protowire.SizeVarint(head)
	}
	if recovered {
		n += protowire.SizeTag(positionRecovered) + 1
	}
	if missed != 0 {
		n += protowire.SizeTag(positionMissed) + protowire.SizeVarint(missed)
	}
	return n
}

func appendFields(b []byte, epoch, head uint64, recovered bool, missed uint64) []byte {
	if epoch != 0 {
		b = protowire.AppendFixed64(protowire.AppendTag(b, positionEpoch, protowire.Fixed64Type), epoch)
	}
	if head != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, positionHead, protowire.VarintType), head)
	}
	if recovered {
		b = append(protowire.AppendTag(b, positionRecovered, protowire.VarintType), 1)
	}
	if missed != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, positionMissed, protowire.VarintType), missed)
	}
	return b
}

// Frame is the whole of it.
func (a *Subscribed) Frame(id uint32) []byte {
	var room [headRoom]byte
	first := protowire.AppendVarint(protowire.AppendTag(room[:wire.HeaderSize], subscribedID, protowire.VarintType), uint64(id))
	first = appendFields(first, a.Epoch, a.Head, a.Recovered, a.Missed)
	if a.frame == nil {
		a.frame = make([]byte, headRoom)
	}
	frame := a.frame[headRoom-len(first):]
	copy(frame, first)
	wire.PutHeader(frame, len(frame)-wire.HeaderSize, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED)
	return frame
}
