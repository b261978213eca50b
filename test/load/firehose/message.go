package firehose

import "google.golang.org/protobuf/encoding/protowire"

const fieldPriority = 5

// Message is an item of a PublishStreamRequest's batch, encoded once and sent as often as one
// likes, each time with another ref.
type Message struct {
	bytes []byte
	ref   int // where it stands
}

// NewMessage encodes a message.
func NewMessage(topic string, payload []byte, priority int) Message {
	var m []byte
	m = protowire.AppendTag(m, fieldTopic, protowire.BytesType)
	m = protowire.AppendString(m, topic)
	m = protowire.AppendTag(m, fieldPayload, protowire.BytesType)
	m = protowire.AppendBytes(m, payload)
	if priority > 0 {
		m = protowire.AppendTag(m, fieldPriority, protowire.VarintType)
		m = protowire.AppendVarint(m, uint64(priority))
	}
	b := protowire.AppendTag(nil, fieldBatch, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(1+fixedVarint+1+protowire.SizeBytes(len(m))))
	b = protowire.AppendTag(b, fieldRef, protowire.VarintType)
	at := len(b)
	b = append(b, make([]byte, fixedVarint)...)
	b = protowire.AppendTag(b, fieldMessage, protowire.BytesType)
	return Message{bytes: protowire.AppendBytes(b, m), ref: at}
}

// Append appends the item to an encoded request. ref is below 2^35.
func (m *Message) Append(request []byte, ref uint64) []byte {
	at := len(request) + m.ref
	request = append(request, m.bytes...)
	putFixed(request[at:], ref)
	return request
}
