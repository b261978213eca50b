package where

import (
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
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
	each(m.Body(), func(num protowire.Number, value []byte) {
		switch num {
		case payloadField:
			payload = value
		case fromField:
			in.From = string(value)
		case headersField:
			key, v := entry(value)
			text, _ := protowire.ConsumeBytes(v)
			in.Headers.Pairs = append(in.Headers.Pairs, expr.Pair[string]{Name: key, Value: string(text)})
		}
	})
	each(m.Mesh, func(num protowire.Number, value []byte) {
		if num == featuresField {
			key, v := entry(value)
			bits, _ := protowire.ConsumeFixed64(v)
			in.Features.Pairs = append(in.Features.Pairs, expr.Pair[float64]{Name: key, Value: math.Float64frombits(bits)})
		}
	})
	in.Headers.Pairs, in.Features.Pairs = inOrder(in.Headers.Pairs), inOrder(in.Features.Pairs)
	in.SetPayload(payload)
}

// clearInput lets go of the message.
func clearInput(in *expr.Input) {
	in.Topic, in.From = "", ""
	clear(in.Headers.Pairs[:cap(in.Headers.Pairs)])
	in.SetPayload(nil)
}

// each calls f for every field of bytes up to one that is malformed.
func each(b []byte, f func(num protowire.Number, value []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if typ == protowire.BytesType {
			value, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return
			}
			f(num, value)
			b = b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return
		}
		b = b[n:]
	}
}

// entry of a map: its key, and its value as it is encoded behind the tag.
func entry(b []byte) (key string, value []byte) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return key, value
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return key, value
		}
		switch num {
		case 1:
			text, _ := protowire.ConsumeBytes(b)
			key = string(text)
		case 2:
			value = b[:n]
		}
		b = b[n:]
	}
	return key, value
}

// inOrder sorts by name and keeps the last of each, as maps do. Routers send them in order.
func inOrder[V float64 | string](pairs []expr.Pair[V]) []expr.Pair[V] {
	byName := func(a, b expr.Pair[V]) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(pairs, byName) {
		slices.SortStableFunc(pairs, byName)
	}
	n := 0
	for i, p := range pairs {
		if i+1 < len(pairs) && pairs[i+1].Name == p.Name {
			continue
		}
		pairs[n] = p
		n++
	}
	return pairs[:n]
}
