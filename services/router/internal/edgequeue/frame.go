package edgequeue

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// A RouterFrame is put together from deliveries that were encoded once, however many edges get
// them, and a trailer per frame: protobuf lets fields come in any order. The numbers are those of
// pushmesh/internal/v1/mesh.proto.

// Delivery is one message for an edge. It mirrors meshv1.Delivery.
type Delivery struct {
	Topic      string
	Epoch, Seq uint64
	ExpiresAt  uint64
	Body       []byte
}

// AppendDelivery appends d as a field of a RouterFrame.
func AppendDelivery(dst []byte, d *Delivery) []byte {
	size := protowire.SizeTag(1) + protowire.SizeBytes(len(d.Topic)) + protowire.SizeTag(5) + protowire.SizeBytes(len(d.Body))
	if d.Epoch != 0 {
		size += protowire.SizeTag(2) + 8
	}
	if d.Seq != 0 {
		size += protowire.SizeTag(3) + protowire.SizeVarint(d.Seq)
	}
	if d.ExpiresAt != 0 {
		size += protowire.SizeTag(4) + 8
	}
	dst = protowire.AppendTag(dst, 6, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendString(dst, d.Topic)
	dst = appendFixed64(dst, 2, d.Epoch)
	dst = appendVarint(dst, 3, d.Seq)
	dst = appendFixed64(dst, 4, d.ExpiresAt)
	dst = protowire.AppendTag(dst, 5, protowire.BytesType)
	return protowire.AppendBytes(dst, d.Body)
}

func appendCheck(dst []byte, topic string) []byte {
	dst = protowire.AppendTag(dst, 7, protowire.BytesType)
	return protowire.AppendString(dst, topic)
}

// trailer holds the fields that every frame carries beside its deliveries.
type trailer struct {
	router                string
	incarnation           uint64
	edge                  interest.Edge
	n, applied            uint64
	wantSnapshot, leaving bool
	// isBroadcast: n counts broadcasts. broadcasts is the number of the last broadcast so far.
	isBroadcast bool
	broadcasts  uint64
	events      events.Mask
}

func (t *trailer) append(dst []byte) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendString(dst, t.router)
	dst = appendFixed64(dst, 2, t.incarnation)
	if t.isBroadcast {
		return appendVarint(dst, 12, t.n)
	}
	dst = appendFixed64(dst, 3, t.edge.Incarnation)
	dst = appendVarint(dst, 4, t.n)
	dst = appendVarint(dst, 5, t.applied)
	dst = appendBool(dst, 8, t.wantSnapshot)
	dst = appendBool(dst, 9, t.leaving)
	dst = appendVarint(dst, 10, uint64(t.events))
	return appendVarint(dst, 13, t.broadcasts)
}

func appendFixed64(dst []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendFixed64(protowire.AppendTag(dst, field, protowire.Fixed64Type), v)
}

func appendVarint(dst []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), v)
}

func appendBool(dst []byte, field protowire.Number, v bool) []byte {
	if !v {
		return dst
	}
	return appendVarint(dst, field, 1)
}
