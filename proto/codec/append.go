package codec

import (
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// takeAppendRequest makes two pieces of memory whatever the number of items: the items, and the
// pointers to them.
func takeAppendRequest(b []byte, m *meshv1.AppendRequest) bool {
	n, ok := count(b, 1)
	if !ok {
		return false
	}
	items := make([]meshv1.AppendItem, n)
	m.Items = make([]*meshv1.AppendItem, n)
	c := cursor{b: b}
	for i := range items {
		c.next()
		m.Items[i] = &items[i]
		if !takeAppendItem(c.bytes(), &items[i]) {
			return false
		}
	}
	return true
}

func takeAppendItem(b []byte, m *meshv1.AppendItem) bool {
	c := cursor{b: b}
	for {
		number, kind, more := c.next()
		switch {
		case !more:
			return !c.bad
		case kind == kindVarint && number == 1:
			m.Ref = c.varint()
		case kind == kindBytes && number == 2:
			m.Topic = c.text()
		case kind == kindBytes && number == 3:
			m.Body = c.own()
		case kind == kindBytes && number == 4:
			m.MessageId = c.own()
		case kind == kindFixed64 && number == 5:
			m.PublishedAt = c.fixed64()
		case kind == kindFixed64 && number == 6:
			m.ExpiresAt = c.fixed64()
		case kind == kindBytes && number == 7:
			m.DedupeKey = c.text()
		case kind == kindBytes && number == 8:
			m.ProducerId = c.own()
		case kind == kindVarint && number == 9:
			m.ProducerSeq = c.varint()
		case kind == kindBytes && number == 10:
			m.Traceparent = c.text()
		case kind == kindVarint && number == 11:
			m.DedupeWindowS = uint32(c.varint())
		case kind == kindFixed64 && number == 12:
			m.KeySince = c.fixed64()
		case kind == kindVarint && number == 13:
			m.SettledSeq = c.varint()
		case kind == kindVarint && number == 14:
			m.SentMsAgo = c.varint()
		case kind == kindFixed64 && number == 21:
			m.DeliverAt = c.fixed64()
		case kind == kindVarint && number == 22:
			m.TtlUs = c.varint()
		case kind == kindFixed64 && number == 23:
			m.Due = c.fixed64()
		case kind == kindVarint && number == 24:
			m.DeadLetter = c.varint()
		case kind == kindVarint && number == 25:
			m.CopiedLetter = c.varint()
		default:
			return false
		}
	}
}

func sizeAppendRequest(m *meshv1.AppendRequest) (size int, ok bool) {
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return 0, false
	}
	for _, it := range m.GetItems() {
		if it == nil || len(it.ProtoReflect().GetUnknown()) > 0 || !utf8.ValidString(it.GetTopic()) || !utf8.ValidString(it.GetDedupeKey()) || !utf8.ValidString(it.GetTraceparent()) {
			return 0, false
		}
		n := sizeAppendItem(it)
		size += 1 + sizeVarint(uint64(n)) + n
	}
	return size, true
}

func sizeAppendItem(m *meshv1.AppendItem) int {
	return sizeNumber(m.GetRef()) + sizeBytes(len(m.GetTopic())) + sizeBytes(len(m.GetBody())) + sizeBytes(len(m.GetMessageId())) +
		sizeFixed(m.GetPublishedAt()) + sizeFixed(m.GetExpiresAt()) + sizeBytes(len(m.GetDedupeKey())) + sizeBytes(len(m.GetProducerId())) +
		sizeNumber(m.GetProducerSeq()) + sizeBytes(len(m.GetTraceparent())) +
		sizeNumber(uint64(m.GetDedupeWindowS())) + sizeFixed(m.GetKeySince()) +
		sizeNumber(m.GetSettledSeq()) + sizeNumber(m.GetSentMsAgo()) +
		longTag(sizeFixed(m.GetDeliverAt())) + longTag(sizeNumber(m.GetTtlUs())) + longTag(sizeFixed(m.GetDue())) +
		longTag(sizeNumber(m.GetDeadLetter())) + longTag(sizeNumber(m.GetCopiedLetter()))
}

func putAppendRequest(dst []byte, m *meshv1.AppendRequest) []byte {
	for _, it := range m.GetItems() {
		dst = putHead(dst, 1, sizeAppendItem(it))
		dst = putNumber(dst, 1, it.GetRef())
		dst = putBytes(dst, 2, it.GetTopic())
		dst = putBytes(dst, 3, it.GetBody())
		dst = putBytes(dst, 4, it.GetMessageId())
		dst = putFixed(dst, 5, it.GetPublishedAt())
		dst = putFixed(dst, 6, it.GetExpiresAt())
		dst = putBytes(dst, 7, it.GetDedupeKey())
		dst = putBytes(dst, 8, it.GetProducerId())
		dst = putNumber(dst, 9, it.GetProducerSeq())
		dst = putBytes(dst, 10, it.GetTraceparent())
		dst = putNumber(dst, 11, uint64(it.GetDedupeWindowS()))
		dst = putFixed(dst, 12, it.GetKeySince())
		dst = putNumber(dst, 13, it.GetSettledSeq())
		dst = putNumber(dst, 14, it.GetSentMsAgo())
		dst = putFixed(dst, 21, it.GetDeliverAt())
		dst = putNumber(dst, 22, it.GetTtlUs())
		dst = putFixed(dst, 23, it.GetDue())
		dst = putNumber(dst, 24, it.GetDeadLetter())
		dst = putNumber(dst, 25, it.GetCopiedLetter())
	}
	return dst
}

func takeAppendResponse(b []byte, m *meshv1.AppendResponse) bool {
	n, ok := count(b, 1)
	if !ok {
		return false
	}
	results := make([]meshv1.AppendResult, n)
	m.Results = make([]*meshv1.AppendResult, n)
	c := cursor{b: b}
	for i := range results {
		c.next()
		m.Results[i] = &results[i]
		if !takeAppendResult(c.bytes(), &results[i]) {
			return false
		}
	}
	return true
}

func takeAppendResult(b []byte, m *meshv1.AppendResult) bool {
	c := cursor{b: b}
	for {
		number, kind, more := c.next()
		switch {
		case !more:
			return !c.bad
		case kind == kindVarint && number == 1:
			m.Ref = c.varint()
		case kind == kindVarint && number == 2:
			m.Code = wirev1.Code(c.varint())
		case kind == kindBytes && number == 3:
			m.Error = c.text()
		case kind == kindVarint && number == 4:
			m.RetryAfterMs = uint32(c.varint())
		case kind == kindFixed64 && number == 5:
			m.Epoch = c.fixed64()
		case kind == kindVarint && number == 6:
			m.Seq = c.varint()
		case kind == kindVarint && number == 7:
			m.Duplicate = c.varint() != 0
		case kind == kindBytes && number == 8:
			m.MessageId = c.own()
		case kind == kindFixed64 && number == 9:
			m.PublishedAt = c.fixed64()
		case kind == kindVarint && number == 10:
			m.Scheduled = c.varint() != 0
		default:
			return false
		}
	}
}

func sizeAppendResponse(m *meshv1.AppendResponse) (size int, ok bool) {
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return 0, false
	}
	for _, r := range m.GetResults() {
		if r == nil || len(r.ProtoReflect().GetUnknown()) > 0 || !utf8.ValidString(r.GetError()) {
			return 0, false
		}
		n := sizeAppendResult(r)
		size += 1 + sizeVarint(uint64(n)) + n
	}
	return size, true
}

func sizeAppendResult(m *meshv1.AppendResult) int {
	return sizeNumber(m.GetRef()) + sizeNumber(uint64(m.GetCode())) + sizeBytes(len(m.GetError())) + sizeNumber(uint64(m.GetRetryAfterMs())) +
		sizeFixed(m.GetEpoch()) + sizeNumber(m.GetSeq()) + sizeNumber(flag(m.GetDuplicate())) + sizeBytes(len(m.GetMessageId())) + sizeFixed(m.GetPublishedAt()) +
		sizeNumber(flag(m.GetScheduled()))
}

func flag(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}

func putAppendResponse(dst []byte, m *meshv1.AppendResponse) []byte {
	for _, r := range m.GetResults() {
		dst = putHead(dst, 1, sizeAppendResult(r))
		dst = putNumber(dst, 1, r.GetRef())
		dst = putNumber(dst, 2, uint64(r.GetCode()))
		dst = putBytes(dst, 3, r.GetError())
		dst = putNumber(dst, 4, uint64(r.GetRetryAfterMs()))
		dst = putFixed(dst, 5, r.GetEpoch())
		dst = putNumber(dst, 6, r.GetSeq())
		dst = putNumber(dst, 7, flag(r.GetDuplicate()))
		dst = putBytes(dst, 8, r.GetMessageId())
		dst = putFixed(dst, 9, r.GetPublishedAt())
		dst = putNumber(dst, 10, flag(r.GetScheduled()))
	}
	return dst
}
