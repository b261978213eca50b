package pushmesh

import (
	"encoding/hex"
	"errors"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/client/internal/ext"
)

// Delivery is one message as a handler gets it. It may be kept, unless SubscriberConfig.Inline is
// set: then it and its Payload are valid until the handler returns.
type Delivery struct {
	Topic string
	// Seq counts 1, 2, 3, … in a durable topic, under its epoch; 0: ephemeral.
	Seq uint64
	// Epoch of the topic; 0 where the edge has not named it.
	Epoch   uint64
	Payload []byte
	// ID of the message; zero where the mesh gave none.
	ID      ID
	Headers map[string]string
	// Attempt is 0 for the first delivery.
	Attempt  uint32
	Priority uint32
	// Traceparent is the producer's W3C context, where it was sampled.
	Traceparent string
	// Score in a ranking (WithRankTopK); 0 too where the message was not ranked, or not among the
	// best.
	Score float64
	// Unranked says that the message should have been ranked, and was not: ranking was slow,
	// refused or gone.
	Unranked bool
	// From is the publishing user, set by the mesh: without authentication "client:" and the
	// ClientID; empty: a backend.
	From string
	// Filter of the subscription that the handler belongs to.
	Filter string

	publishedAt uint64
	reply       *reply
	subs        []uint32
}

// PublishedAt is when the router took the message.
func (d *Delivery) PublishedAt() time.Time { return time.UnixMicro(int64(d.publishedAt)) }

// Age is how long ago the router took the message, by this machine's clock.
func (d *Delivery) Age() time.Duration { return time.Since(d.PublishedAt()) }

var errBadMessage = ext.ErrBadFrame

// decode fills d from the body of a Message frame. Payload shares body's memory; intern makes the
// topic. It is written by hand because every delivery passes here: proto.Unmarshal costs three
// times as much.
func (d *Delivery) decode(body []byte, intern func([]byte) string) error {
	*d = Delivery{subs: d.subs[:0]}
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return errBadMessage
		}
		body = body[n:]
		switch typ {
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(body)
			if n < 0 || !d.bytesField(num, v, intern) {
				return errBadMessage
			}
			body = body[n:]
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(body)
			if n < 0 {
				return errBadMessage
			}
			d.varintField(num, v)
			body = body[n:]
		case protowire.Fixed64Type:
			v, n := protowire.ConsumeFixed64(body)
			if n < 0 {
				return errBadMessage
			}
			switch num {
			case 4:
				d.publishedAt = v
			case 10:
				d.Score = math.Float64frombits(v)
			}
			body = body[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, body)
			if n < 0 {
				return errBadMessage
			}
			body = body[n:]
		}
	}
	return nil
}

func (d *Delivery) bytesField(num protowire.Number, v []byte, intern func([]byte) string) bool {
	switch num {
	case 1:
		d.Topic = intern(v)
	case 3:
		d.Payload = v
	case 5:
		d.ID = idOf(v)
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
			d.subs = append(d.subs, uint32(sub))
			v = v[n:]
		}
	case 13:
		d.From = string(v)
	}
	return true
}

func (d *Delivery) varintField(num protowire.Number, v uint64) {
	switch num {
	case 2:
		d.Seq = v
	case 7:
		d.Attempt = uint32(v)
	case 8:
		d.Priority = uint32(v)
	case 11:
		d.subs = append(d.subs, uint32(v))
	case 15:
		d.Unranked = protowire.DecodeBool(v)
	}
}

// header reads one entry of the map.
func (d *Delivery) header(b []byte) bool {
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

// ID of a message: a UUIDv7, so that ids sort by the time of their making. The zero ID is none.
type ID [16]byte

// errBadID is what is no UUID.
var errBadID = errors.New("pushmesh: an ID is 32 hexadecimal digits, like 0190163d-8694-739b-aea5-966c26f8ad91")

// String is the id as UUIDs are written; "" for the zero ID.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	b, _ := id.MarshalText()
	return string(b)
}

// IsZero reports whether there is no id.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText writes the id as String does, the zero ID too: as zeros.
func (id ID) MarshalText() ([]byte, error) {
	b := make([]byte, 0, 36)
	for i, part := range [...][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return b, nil
}

// UnmarshalText reads what ParseID reads.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	*id = parsed
	return err
}

// ParseID reads an id as String writes it, with its hyphens or without.
func ParseID(text string) (ID, error) {
	var digits []byte
	for i := range len(text) {
		switch {
		case text[i] != '-':
			digits = append(digits, text[i])
		case len(text) != 36 || i != 8 && i != 13 && i != 18 && i != 23:
			return ID{}, errBadID
		}
	}
	var id ID
	if len(digits) != 2*len(id) {
		return ID{}, errBadID
	}
	if _, err := hex.Decode(id[:], digits); err != nil {
		return ID{}, errBadID
	}
	return id, nil
}

// idOf is what the mesh sent; what is no UUID is none.
func idOf(b []byte) (id ID) {
	if len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}
