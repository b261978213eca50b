package pushmesh

import (
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/message"
	"github.com/pushmesh/pushmesh/client/internal/uuid"
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

// decode fills d from the body of a Message frame. Payload shares body's memory; names makes the
// topic.
func (d *Delivery) decode(body []byte, names func([]byte) string) error {
	m := message.Fields{Subs: d.subs[:0]}
	if !m.Decode(body, names) {
		return errBadMessage
	}
	*d = Delivery{
		Topic: m.Topic, Seq: m.Seq, Payload: m.Payload, ID: idOf(m.ID), Headers: m.Headers, Attempt: m.Attempt, Priority: m.Priority,
		Traceparent: m.Traceparent, Score: m.Score, Unranked: m.Unranked, From: m.From, publishedAt: m.PublishedAt, subs: m.Subs,
	}
	return nil
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
	return uuid.Append(make([]byte, 0, 36), id), nil
}

// UnmarshalText reads what ParseID reads.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	*id = parsed
	return err
}

// ParseID reads an id as String writes it, with its hyphens or without.
func ParseID(text string) (ID, error) {
	id, ok := uuid.Parse(text)
	if !ok {
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
