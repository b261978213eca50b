package codec

import (
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// item is what a message in a batch needs, in one piece.
type item struct {
	item    pushmeshv1.PublishStreamRequest_Item
	message pushmeshv1.PublishRequest
}

// takePublishRequest decodes batches; a frame with a single message in it is left to the generated
// code.
func takePublishRequest(b []byte, m *pushmeshv1.PublishStreamRequest) bool {
	n, ok := countBatch(b)
	if !ok {
		return false
	}
	items := make([]item, n)
	m.Batch = make([]*pushmeshv1.PublishStreamRequest_Item, 0, n)
	c := cursor{b: b}
	for {
		number, _, more := c.next()
		switch {
		case !more:
			return !c.bad
		case number == 3:
			m.ProducerId = append([]byte(nil), c.bytes()...) // kept as long as the stream lasts
		default:
			it := &items[len(m.Batch)]
			m.Batch = append(m.Batch, &it.item)
			if !takeItem(c.bytes(), it) {
				return false
			}
		}
	}
}

func countBatch(b []byte) (n int, ok bool) {
	c := cursor{b: b}
	for {
		number, kind, more := c.next()
		switch {
		case !more:
			return n, !c.bad && n > 0
		case kind == kindBytes && number == 3:
			c.bytes()
		case kind == kindBytes && number == 5:
			c.bytes()
			n++
		default:
			return 0, false
		}
	}
}

func takeItem(b []byte, it *item) bool {
	c := cursor{b: b}
	for {
		number, kind, more := c.next()
		switch {
		case !more:
			return !c.bad
		case kind == kindVarint && number == 1:
			it.item.Ref = c.varint()
		case kind == kindBytes && number == 2 && it.item.Message == nil:
			// a second one would be merged into the first
			it.item.Message = &it.message
			if !takePublish(c.bytes(), &it.message) {
				return false
			}
		case kind == kindVarint && number == 4:
			it.item.ProducerSeq = c.varint()
		case kind == kindVarint && number == 5:
			it.item.SettledSeq = c.varint()
		case kind == kindVarint && number == 6:
			it.item.SentMsAgo = c.varint()
		default:
			return false
		}
	}
}

// takePublish knows what most messages consist of: topic, payload, dedupe_key, priority,
// traceparent.
func takePublish(b []byte, m *pushmeshv1.PublishRequest) bool {
	c := cursor{b: b}
	for {
		number, kind, more := c.next()
		switch {
		case !more:
			return !c.bad
		case kind == kindBytes && number == 1:
			m.Topic = c.text()
		case kind == kindBytes && number == 2:
			m.Payload = c.own()
		case kind == kindBytes && number == 4:
			m.DedupeKey = c.text()
		case kind == kindVarint && number == 5:
			m.Priority = uint32(c.varint())
		case kind == kindBytes && number == 9:
			m.Traceparent = c.text()
		default:
			return false
		}
	}
}

func sizePublishResponses(m *pushmeshv1.PublishStreamResponse) (size int, ok bool) {
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return 0, false
	}
	for _, r := range m.GetResults() {
		resp := r.GetResponse()
		if r == nil || !plain(r.GetRetryAfter()) || len(resp.GetResults()) > 0 || !utf8.ValidString(r.GetError()) ||
			len(r.ProtoReflect().GetUnknown()) > 0 || resp != nil && len(resp.ProtoReflect().GetUnknown()) > 0 {
			return 0, false
		}
		n := sizeResult(r)
		size += 1 + sizeVarint(uint64(n)) + n
	}
	return size, true
}

func sizeResult(r *pushmeshv1.PublishStreamResponse_Result) int {
	n := sizeNumber(r.GetRef()) + sizeNumber(uint64(r.GetCode())) + sizeBytes(len(r.GetError()))
	if r.GetResponse() != nil {
		resp := sizeResponse(r.GetResponse())
		n += 1 + sizeVarint(uint64(resp)) + resp
	}
	if r.GetRetryAfter() != nil {
		wait := sizeDuration(r.GetRetryAfter())
		n += 1 + sizeVarint(uint64(wait)) + wait
	}
	return n
}

func plain(d *durationpb.Duration) bool { return d == nil || len(d.ProtoReflect().GetUnknown()) == 0 }

// sizeDuration is exact for negative ones too: both fields are varints of 64 bits.
func sizeDuration(d *durationpb.Duration) int {
	return sizeNumber(uint64(d.GetSeconds())) + sizeNumber(uint64(int64(d.GetNanos())))
}

func sizeResponse(m *pushmeshv1.PublishResponse) int {
	return sizeBytes(len(m.GetMessageId())) + sizeNumber(m.GetSeq()) + sizeFixed(m.GetEpoch()) + sizeNumber(flag(m.GetDuplicate())) + sizeNumber(flag(m.GetScheduled()))
}

func putPublishResponses(dst []byte, m *pushmeshv1.PublishStreamResponse) []byte {
	for _, r := range m.GetResults() {
		dst = putHead(dst, 1, sizeResult(r))
		dst = putNumber(dst, 1, r.GetRef())
		if resp := r.GetResponse(); resp != nil {
			dst = putHead(dst, 2, sizeResponse(resp))
			dst = putBytes(dst, 1, resp.GetMessageId())
			dst = putNumber(dst, 2, resp.GetSeq())
			dst = putFixed(dst, 3, resp.GetEpoch())
			dst = putNumber(dst, 4, flag(resp.GetDuplicate()))
			dst = putNumber(dst, 5, flag(resp.GetScheduled()))
		}
		dst = putNumber(dst, 3, uint64(r.GetCode()))
		dst = putBytes(dst, 4, r.GetError())
		if wait := r.GetRetryAfter(); wait != nil {
			dst = putHead(dst, 5, sizeDuration(wait))
			dst = putNumber(dst, 1, uint64(wait.GetSeconds()))
			dst = putNumber(dst, 2, uint64(int64(wait.GetNanos())))
		}
	}
	return dst
}
