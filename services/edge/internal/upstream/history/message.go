// Package history asks the store: ranges of logs, one read for all who ask for the same, and heads,
// many in a call.
package history

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/fields"
)

// Parts of a message as routers and stores send them.
type Parts struct {
	Topic                 string
	Epoch, Seq, ExpiresAt uint64
	Body                  []byte
}

func (p *Parts) size() int { return wire.HeaderSize + 16 + len(p.Topic) + len(p.Body) }

const (
	// runMost and runBytes bound what lies side by side: a message that is kept for long, such as
	// one that is not ACKed, keeps its neighbours. Each is charged its part, so who keeps one of
	// them alone has up to runMost times what it is charged.
	runMost  = 64
	runBytes = 32 << 10
	// mixedMost and mixedBytes bound what shares its memory although it is of different topics, for
	// the same reason.
	mixedMost  = 16
	mixedBytes = 4 << 10
)

// Encode makes the messages that all subscribers of the edge share, and appends them. Those that
// follow each other in a topic lie side by side. What would be too long for the protocol is left
// out, as is what subscribers could not decode, and what they don't get is cut off. traced has
// traceparents kept. Nothing of a body is kept.
func Encode(dst []*exchange.Message, all []Parts, traced bool) []*exchange.Message {
	for len(all) > 0 {
		n, size := run(all)
		for n < len(all) {
			more, bytes := run(all[n:])
			if n+more > mixedMost || size+bytes > mixedBytes {
				break
			}
			n, size = n+more, size+bytes
		}
		dst = encodeBlock(dst, all[:n], size, traced)
		all = all[n:]
	}
	return dst
}

// run is how many messages from the first on lie side by side, and what they need.
func run(all []Parts) (n, size int) {
	n, size = 1, all[0].size()
	for n < min(len(all), runMost) && size+all[n].size() <= runBytes && follows(&all[n-1], &all[n]) {
		size += all[n].size()
		n++
	}
	return n, size
}

// follows reports whether b may stand behind a in one run.
func follows(a, b *Parts) bool {
	return a.Topic == b.Topic && a.Epoch == b.Epoch && (b.Seq == a.Seq+1 || a.Seq == 0 && b.Seq == 0)
}

// encodeBlock encodes runs into one piece of memory: two allocations for all of them.
func encodeBlock(dst []*exchange.Message, all []Parts, size int, traced bool) []*exchange.Message {
	frames, messages := make([]byte, 0, size), make([]exchange.Message, 0, len(all))
	var before *exchange.Message // that of the part before; nil: it has none
	first := 0                   // of the messages that follow each other
	for i := range all {
		p, at := &all[i], len(frames)
		body, mesh := wire.Cut(p.Body)
		priority, trace, sound := look(body)
		var grown []byte
		if sound && utf8.ValidString(p.Topic) {
			grown = wire.AppendMessage(frames, p.Topic, p.Seq, body)
		}
		if grown == nil {
			before = nil
			continue
		}
		frames = grown
		messages = append(messages, exchange.Message{Topic: p.Topic, Epoch: p.Epoch, Seq: p.Seq, ExpiresAt: p.ExpiresAt, Frame: frames[at:]})
		m := &messages[len(messages)-1]
		m.Mesh, m.Origin = origin(mesh)
		if m.Priority = priority; traced {
			m.Traceparent = string(trace)
		}
		if before != nil && follows(&all[i-1], p) {
			before.Next = m
		} else {
			endRun(messages[first : len(messages)-1])
			first = len(messages) - 1
		}
		before = m
		dst = append(dst, m)
	}
	endRun(messages[first:])
	for i := range messages {
		messages[i].Block = uint32((cap(frames) + cap(messages)*int(unsafe.Sizeof(exchange.Message{}))) / len(messages))
	}
	return dst
}

// numOrigin is that of MessageFeatures.origin, and originSize how many bytes it takes.
const (
	numOrigin  = 3
	originSize = 9
)

// origin parts an encoded MessageFeatures into a copy of what ranking and filters look at, nil
// where there is nothing of that, and the client that has published the message.
func origin(mesh []byte) (features []byte, client uint64) {
	if len(mesh) == 0 {
		return nil, 0
	}
	fields.Each(mesh, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == numOrigin && typ == protowire.Fixed64Type {
			client = binary.LittleEndian.Uint64(value)
		}
	})
	if client != 0 && len(mesh) == originSize {
		return nil, client
	}
	return bytes.Clone(mesh), client
}

// endRun has the capacity of the frames of messages that follow each other end with the last one,
// so that no other topic's frame, which lies behind it in memory, is taken for the next.
func endRun(messages []exchange.Message) {
	size := 0
	for i := len(messages) - 1; i >= 0; i-- {
		m := &messages[i]
		size += len(m.Frame)
		m.Frame = m.Frame[:len(m.Frame):size]
	}
}

// Fields of Message that an edge looks at, once for all subscribers, and the highest priority there
// is.
const (
	headersField     = 6
	priorityField    = 8
	traceparentField = 9
	fromField        = 13
	maxPriority      = 9
)

// edges is the set of fields that edges themselves put into a frame, a bit each: topic, seq,
// attempt, score, subs, unranked.
const edges = 1<<1 | 1<<2 | 1<<7 | 1<<10 | 1<<11 | 1<<15

// look walks over a body's fields. sound is false where subscribers could not decode a frame with
// it, or would take it for another message: what comes over NATS is whoever's it is.
func look(body []byte) (priority uint8, traceparent []byte, sound bool) {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 || num > protowire.MaxValidNumber || num < 32 && edges>>num&1 == 1 {
			return priority, traceparent, false
		}
		body = body[n:]
		switch {
		case num == priorityField && typ == protowire.VarintType:
			var v uint64
			if v, n = protowire.ConsumeVarint(body); n > 0 {
				// longer ones are cut off, as by the generated code
				priority = uint8(min(uint32(v), maxPriority))
			}
		case typ == protowire.BytesType && (num == headersField || num == traceparentField || num == fromField):
			var v []byte
			if v, n = protowire.ConsumeBytes(body); n < 0 || num == headersField && !header(v) || num != headersField && !utf8.Valid(v) {
				return priority, traceparent, false
			}
			if num == traceparentField {
				traceparent = v
			}
		default:
			n = protowire.ConsumeFieldValue(num, typ, body)
		}
		if n < 0 {
			return priority, traceparent, false
		}
		body = body[n:]
	}
	return priority, traceparent, true
}

// header reports whether an entry of headers can be decoded.
func header(entry []byte) bool {
	for len(entry) > 0 {
		num, typ, n := protowire.ConsumeTag(entry)
		if n < 0 || num > protowire.MaxValidNumber {
			return false
		}
		entry = entry[n:]
		if n = protowire.ConsumeFieldValue(num, typ, entry); n < 0 {
			return false
		}
		if v, is := protowire.ConsumeBytes(entry); num <= 2 && typ == protowire.BytesType && (is < 0 || !utf8.Valid(v)) {
			return false
		}
		entry = entry[n:]
	}
	return true
}
