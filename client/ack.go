package pushmesh

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// flushSingles is how many ACKs that can't be told as "all up to" are gathered before they are sent
// at once.
const flushSingles = 512

// ackRun gathers the ACKs of one topic that name the same subscription (0: the plain ones). Guarded
// by Subscriber.mu.
type ackRun struct {
	topic string
	sub   uint32
	epoch uint64
	// through covers everything up to it; 0: nothing.
	through uint64
	singles []uint64
	dirty   bool
}

// ack has seq of the run ACKed within AckDelay. through says that everything sent before it was
// dealt with too.
func (s *Subscriber) ack(r *ackRun, seq uint64, through bool) {
	switch {
	case seq <= r.through:
		return
	case through:
		r.through = seq
		r.singles = r.singles[:0]
	default:
		r.singles = append(r.singles, seq)
	}
	if !r.dirty {
		r.dirty = true
		s.dirty = append(s.dirty, r)
	}
	s.acked++
	switch {
	case len(r.singles) >= flushSingles:
		s.flushAcks()
		s.flushIn(0)
	case !s.flushArmed:
		s.flushIn(s.cfg.AckDelay)
	}
}

// flushIn has flushTick called after d.
func (s *Subscriber) flushIn(d time.Duration) {
	s.flushArmed = true
	if s.flushTimer == nil {
		s.flushTimer = time.AfterFunc(d, s.flushTick)
		return
	}
	s.flushTimer.Reset(d)
}

func (s *Subscriber) flushTick() {
	s.mu.Lock()
	s.flushArmed = false
	s.flushAcks()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		_ = l.w.flush() // a failed write closes the connection; the reader reports it
	}
}

// flushAcks puts what waits into the link's buffer, which the caller or flushTick writes. Without a
// link it is forgotten: a new connection knows nothing of the old one's messages. Called with s.mu
// held.
func (s *Subscriber) flushAcks() {
	if len(s.dirty) == 0 {
		return
	}
	if l := s.link; l != nil {
		l.w.append(func(b []byte) []byte { return appendAcks(b, s.dirty) })
	}
	for i, r := range s.dirty {
		r.through, r.singles, r.dirty = 0, nil, false
		s.dirty[i] = nil
	}
	s.dirty = s.dirty[:0]
}

// appendAcks appends one Ack frame, or several where it would grow beyond maxAckBody.
func appendAcks(b []byte, runs []*ackRun) []byte {
	const maxAckBody = 32 << 10
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	entry := func(r *ackRun, seq uint64, through bool) {
		if len(b)-at > maxAckBody {
			wire.PutHeader(b[at:], len(b)-at-wire.HeaderSize, wirev1.FrameType_FRAME_TYPE_ACK)
			at = len(b)
			b = append(b, 0, 0, 0, 0)
		}
		b = appendAckEntry(b, r, seq, through)
	}
	for _, r := range runs {
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

func appendAckEntry(b []byte, r *ackRun, seq uint64, through bool) []byte {
	size := 1 + protowire.SizeBytes(len(r.topic)) + 1 + protowire.SizeVarint(seq)
	if through {
		size += 2
	}
	if r.sub != 0 {
		size += 1 + protowire.SizeVarint(uint64(r.sub))
	}
	if r.epoch != 0 {
		size += 1 + 8
	}
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendString(b, r.topic)
	b = protowire.AppendTag(b, 2, protowire.VarintType)
	b = protowire.AppendVarint(b, seq)
	if through {
		b = protowire.AppendTag(b, 3, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	if r.sub != 0 {
		b = protowire.AppendTag(b, 4, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(r.sub))
	}
	if r.epoch != 0 {
		b = protowire.AppendTag(b, 5, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, r.epoch)
	}
	return b
}
