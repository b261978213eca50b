// Package acks gathers the ACKs of a connection and says them in few frames.
package acks

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// MaxSingles is how many ACKs of a run that can't be told as "all up to" are gathered before they
// are sent at once.
const MaxSingles = 512

// Run gathers the ACKs of one topic that name the same subscription (0: the plain ones).
type Run struct {
	Topic string
	Sub   uint32
	Epoch uint64
	// through covers everything up to it; 0: nothing.
	through uint64
	singles []uint64
	pending bool
}

// Waits reports whether something of the run is to be sent.
func (r *Run) Waits() bool { return r.pending }

// Full reports whether the run is to be sent at once.
func (r *Run) Full() bool { return len(r.singles) >= MaxSingles }

// Pending is what is to be sent.
type Pending struct{ runs []*Run }

// Add has seq of the run ACKed; through says that everything sent before it was dealt with too. It
// reports whether that says more than what was sent already.
func (p *Pending) Add(r *Run, seq uint64, through bool) bool {
	switch {
	case seq <= r.through:
		return false
	case through:
		r.through = seq
		r.singles = slices.DeleteFunc(r.singles, func(s uint64) bool { return s <= seq })
	default:
		r.singles = append(r.singles, seq)
	}
	if !r.pending {
		r.pending = true
		p.runs = append(p.runs, r)
	}
	return true
}

// Empty reports whether nothing is to be sent.
func (p *Pending) Empty() bool { return len(p.runs) == 0 }

// Clear forgets what was to be sent.
func (p *Pending) Clear() {
	for _, r := range p.runs {
		r.through, r.singles, r.pending = 0, nil, false
	}
	clear(p.runs)
	p.runs = p.runs[:0]
}

// Append appends one Ack frame, or several where it would grow beyond maxAckBody.
func (p *Pending) Append(b []byte) []byte {
	const maxAckBody = 32 << 10
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	entry := func(r *Run, seq uint64, through bool) {
		if len(b)-at > maxAckBody {
			wire.PutHeader(b[at:], len(b)-at-wire.HeaderSize, wirev1.FrameType_FRAME_TYPE_ACK)
			at = len(b)
			b = append(b, 0, 0, 0, 0)
		}
		b = appendEntry(b, r, seq, through)
	}
	for _, r := range p.runs {
		if r.through > 0 {
			entry(r, r.through, true)
		}
		for _, seq := range r.singles {
			entry(r, seq, false)
		}
	}
	wire.PutHeader(b[at:], len(b)-at-wire.HeaderSize, wirev1.FrameType_FRAME_TYPE_ACK)
	return b
}

func appendEntry(b []byte, r *Run, seq uint64, through bool) []byte {
	size := 1 + protowire.SizeBytes(len(r.Topic)) + 1 + protowire.SizeVarint(seq)
	if through {
		size += 2
	}
	if r.Sub != 0 {
		size += 1 + protowire.SizeVarint(uint64(r.Sub))
	}
	if r.Epoch != 0 {
		size += 1 + 8
	}
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendString(b, r.Topic)
	b = protowire.AppendTag(b, 2, protowire.VarintType)
	b = protowire.AppendVarint(b, seq)
	if through {
		b = protowire.AppendTag(b, 3, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	if r.Sub != 0 {
		b = protowire.AppendTag(b, 4, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(r.Sub))
	}
	if r.Epoch != 0 {
		b = protowire.AppendTag(b, 5, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, r.Epoch)
	}
	return b
}
