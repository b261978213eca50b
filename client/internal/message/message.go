// Package message decodes what an edge delivers.
package message

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields are those of a Message frame.
type Fields struct {
	Topic       string
	Seq         uint64
	Payload, ID []byte // of the frame's memory
	Headers     map[string]string
	Attempt     uint32
	Priority    uint32
	Traceparent string
	Score       float64
	Unranked    bool
	From        string
	PublishedAt uint64 // microseconds since 1970
	Subs        []uint32
}

// Decode fills d, which is empty, from the body of a Message frame; false: it is none. names makes
// the topic. It is written by hand because every delivery passes here: proto.Unmarshal costs three
// times as much.
func (d *Fields) Decode(body []byte, names func([]byte) string) bool {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return false
		}
		body = body[n:]
		switch typ {
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(body)
			if n < 0 || !d.bytesField(num, v, names) {
				return false
			}
			body = body[n:]
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(body)
			if n < 0 {
				return false
			}
			d.varintField(num, v)
			body = body[n:]
		case protowire.Fixed64Type:
			v, n := protowire.ConsumeFixed64(body)
			if n < 0 {
				return false
			}
			switch num {
			case 4:
				d.PublishedAt = v
			case 10:
				d.Score = math.Float64frombits(v)
			}
			body = body[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, body)
			if n < 0 {
				return false
			}
			body = body[n:]
		}
	}
	return true
}

func (d *Fields) bytesField(num protowire.Number, v []byte, names func([]byte) string) bool {
	switch num {
	case 1:
		d.Topic = names(v)
	case 3:
		d.Payload = v
	case 5:
		d.ID = v
	case 6:
		return d.header(v)
	case 9:
		d.Traceparent = string(v)
	case 11:
		for len(v) > 0 {
			sub, n := protowire.ConsumeVarint(v)
			if n < 0 {
				return false
			}
			d.Subs = append(d.Subs, uint32(sub))
			v = v[n:]
		}
	case 13:
		d.From = string(v)
	}
	return true
}

func (d *Fields) varintField(num protowire.Number, v uint64) {
	switch num {
	case 2:
		d.Seq = v
	case 7:
		d.Attempt = uint32(v)
	case 8:
		d.Priority = uint32(v)
	case 11:
		d.Subs = append(d.Subs, uint32(v))
	case 15:
		d.Unranked = protowire.DecodeBool(v)
	}
}

// header reads one entry of the map.
func (d *Fields) header(b []byte) bool {
	var key, value string
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if typ == protowire.BytesType && (num == 1 || num == 2) {
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return false
			}
			if num == 1 {
				key = string(v)
			} else {
				value = string(v)
			}
			b = b[n:]
			continue
		}
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return false
		}
		b = b[n:]
	}
	if d.Headers == nil {
		d.Headers = make(map[string]string, 4)
	}
	d.Headers[key] = value
	return true
}
