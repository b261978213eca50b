package filters

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/fields"
)

// Fields of Message and of MessageFeatures that filters see.
const (
	payloadField  protowire.Number = 3
	headersField  protowire.Number = 6
	fromField     protowire.Number = 13
	featuresField protowire.Number = 1
)

// fill gives an Input the message; it refers to the message's bytes.
func fill(in *expr.Input, m *exchange.Message) {
	in.Topic, in.Priority, in.From = m.Topic, int64(m.Priority), ""
	in.Headers.Pairs, in.Features.Pairs = in.Headers.Pairs[:0], in.Features.Pairs[:0]
	var payload []byte
	fields.Each(m.Body(), func(num protowire.Number, typ protowire.Type, value []byte) {
		if typ != protowire.BytesType {
			return
		}
		switch num {
		case payloadField:
			payload = value
		case fromField:
			in.From = string(value)
		case headersField:
			key, text := fields.Entry(value, protowire.BytesType)
			in.Headers.Pairs = append(in.Headers.Pairs, expr.Pair[string]{Name: string(key), Value: string(text)})
		}
	})
	fields.Each(m.Mesh, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == featuresField && typ == protowire.BytesType {
			key, v := fields.Entry(value, protowire.Fixed64Type)
			bits, _ := protowire.ConsumeFixed64(v)
			in.Features.Pairs = append(in.Features.Pairs, expr.Pair[float64]{Name: string(key), Value: math.Float64frombits(bits)})
		}
	})
	// routers send them in order
	in.Headers.Pairs, in.Features.Pairs = expr.InOrder(in.Headers.Pairs), expr.InOrder(in.Features.Pairs)
	in.SetPayload(payload)
}

// clearInput lets go of the message.
func clearInput(in *expr.Input) {
	in.Topic, in.From = "", ""
	clear(in.Headers.Pairs[:cap(in.Headers.Pairs)])
	in.SetPayload(nil)
}
