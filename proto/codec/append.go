package codec

import (
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func takeAppendRequest(b []byte, m *meshv1.AppendRequest) (ok bool) {
	m.Items, ok = takeList(b, takeAppendItem)
	return ok
}

func takeAppendResponse(b []byte, m *meshv1.AppendResponse) (ok bool) {
	m.Results, ok = takeList(b, takeAppendResult)
	return ok
}

// takeList decodes a message that is nothing but a list, its field 1. It allocates twice whatever
// the number of parts: the parts, and the pointers to them. Bodies and ids lie in b, which the
// message keeps. It is false for what it does not expect.
func takeList[M any](b []byte, take func([]byte, *M) bool) ([]*M, bool) {
	n, ok := count(b, 1)
	if !ok {
		return nil, false
	}
	parts := make([]M, n)
	list := make([]*M, n)
	c := cursor{b: b}
	for i := range parts {
		c.next()
		list[i] = &parts[i]
		if !take(c.bytes(), &parts[i]) {
			return nil, false
		}
	}
	return list, true
}

func takeAppendItem(b []byte, m *meshv1.AppendItem) bool {
	c := cursor{b: b}
	for {
		from := c.b
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
			return merge(from, m)
		}
	}
}

func takeAppendResult(b []byte, m *meshv1.AppendResult) bool {
	c := cursor{b: b}
	for {
		from := c.b
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
			return merge(from, m)
		}
	}
}
