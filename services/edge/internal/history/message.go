// Package history asks the store: ranges of logs, one read for all who ask for the same, and heads, many in a call.
package history

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/wire"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Encode makes the one message that all subscribers of the edge share; nil where the frame would be too long for the protocol. traced has its
// traceparent looked up, which costs a walk over the body's fields.
func Encode(topic string, epoch, seq, expiresAt uint64, body []byte, traced bool) *exchange.Message {
	size := wire.HeaderSize + len(topic) + len(body) + 16
	frame := wire.AppendMessage(make([]byte, 0, size), topic, seq, body)
	if frame == nil {
		return nil
	}
	m := &exchange.Message{Topic: topic, Epoch: epoch, Seq: seq, ExpiresAt: expiresAt, Frame: frame}
	if traced {
		m.Traceparent = traceparent(body)
	}
	return m
}

// traceparentField is the number of Message.traceparent.
const traceparentField = 9

func traceparent(body []byte) string {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return ""
		}
		body = body[n:]
		if num == traceparentField && typ == protowire.BytesType {
			v, n := protowire.ConsumeString(body)
			if n < 0 {
				return ""
			}
			return v
		}
		if n = protowire.ConsumeFieldValue(num, typ, body); n < 0 {
			return ""
		}
		body = body[n:]
	}
	return ""
}
