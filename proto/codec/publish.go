package codec

import "github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"

// item is one message of a batch, in one piece of memory.
type item struct {
	item    pushmeshv1.PublishStreamRequest_Item
	message pushmeshv1.PublishRequest
}

// takePublishRequest decodes batches, in two pieces of memory whatever their number of messages,
// and the texts. Payloads lie in b, which the message keeps. It is false for what it does not
// expect, such as a frame with a single message.
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

// countBatch counts the messages of a PublishStreamRequest that has nothing but a batch, and
// perhaps a producer's id; false for any other.
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
		from := c.b
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
			return merge(from, &it.item)
		}
	}
}

// takePublish knows what most messages consist of: topic, payload, dedupe_key, priority,
// traceparent.
func takePublish(b []byte, m *pushmeshv1.PublishRequest) bool {
	c := cursor{b: b}
	for {
		from := c.b
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
			return merge(from, m)
		}
	}
}
