package pushmesh

import (
	"time"

	"github.com/pushmesh/pushmesh/client/internal/limits"
)

// Message is what a Producer publishes. What it can't have is refused before it is sent, with an
// *Error that names the field: nothing is left out in silence, and a message that is refused holds
// up no other.
type Message struct {
	Topic   string
	Payload []byte
	Headers map[string]string
	// DedupeKey: a second publish with this key within the namespace's window answers with the
	// first's Result.
	DedupeKey string
	// Priority, 0 to 9, orders between topics.
	Priority uint32
	// TTL after which the message need not be delivered; 0: while it is retained.
	TTL time.Duration
	// DeliverAt is when to publish it, at most 366 days ahead; the zero time and the past: now. TTL
	// runs from then. Durable topics only.
	DeliverAt time.Time
	// Features are what content filters (WithWhere) and ranking see of the message beside its
	// payload and headers, 64 at most, and Vector an embedding of 4,096 dimensions at most.
	// Subscribers don't get them.
	Features map[string]float64
	Vector   []float32
	// Traceparent is the W3C context that the message belongs to.
	Traceparent string
	// Ephemeral says that the topic is not durable: when the connection breaks before the answer,
	// the publish fails instead of being repeated. The Producer learns it from the topic's first
	// answer too.
	Ephemeral bool
}

// Result of a publish.
type Result struct {
	// ID of the message; zero where the mesh gave none.
	ID ID
	// Seq in the topic; 0: ephemeral, or scheduled.
	Seq   uint64
	Epoch uint64
	// Duplicate: it had been published before; the rest is that of the first time.
	Duplicate bool
	// Scheduled: it waits for its DeliverAt, and gets its Seq then.
	Scheduled bool
}

// size is about how many bytes the message takes in a request.
func (m *Message) size() int {
	n := len(m.Topic) + len(m.Payload) + len(m.DedupeKey) + len(m.Traceparent) + 4*len(m.Vector) + 64
	for k, v := range m.Headers {
		n += len(k) + len(v) + 16
	}
	for k := range m.Features {
		n += len(k) + 16
	}
	return n
}

// check refuses what no router takes, whatever the topic's namespace: before it has a number or a
// place on a connection.
func (m *Message) check() *Error {
	fault := limits.Message(limits.Fields{
		Topic: m.Topic, Payload: m.Payload, Headers: m.Headers, DedupeKey: m.DedupeKey, Priority: m.Priority, TTL: m.TTL, DeliverAt: m.DeliverAt,
		Features: m.Features, Vector: m.Vector, Traceparent: m.Traceparent,
	})
	if fault == nil {
		return nil
	}
	return &Error{Code: Code(fault.Code), Message: fault.Text}
}

// ClientMessage is what a client publishes: a Subscriber, over its own connection. What a Message
// has beyond that is for a Producer alone.
type ClientMessage struct {
	Topic   string
	Payload []byte
	Headers map[string]string
	// DedupeKey: a second publish with this key within the namespace's window answers with the
	// first's Result. It has a publish repeated whose answer was lost with the connection.
	DedupeKey string
	// Ephemeral says that the topic is not durable: such a publish is not repeated, whatever its
	// key.
	Ephemeral bool
}

func (m *ClientMessage) check() *Error {
	return (&Message{Topic: m.Topic, Payload: m.Payload, Headers: m.Headers, DedupeKey: m.DedupeKey}).check()
}
