package pushmesh

import "time"

// Message is what is published. What it can't have is refused before it is sent, with an *Error
// that names the field: nothing is left out in silence, and a message that is refused holds up no
// other.
type Message struct {
	Topic   string
	Payload []byte
	Headers map[string]string
	// DedupeKey: a second publish with this key within the namespace's window answers with the
	// first's Result.
	DedupeKey string
	// Priority, 0 to 9, orders between topics. Producers only.
	Priority uint32
	// TTL after which the message need not be delivered; 0: while it is retained. Producers only.
	TTL time.Duration
	// DeliverAt is when to publish it, at most 366 days ahead; the zero time and the past: now. TTL
	// runs from then. Durable topics and Producers only.
	DeliverAt time.Time
	// Features are what content filters (WithWhere) and ranking see of the message beside its
	// payload and headers, 64 at most, and Vector an embedding of 4,096 dimensions at most.
	// Subscribers don't get them. Producers only.
	Features map[string]float64
	Vector   []float32
	// Traceparent is the W3C context that the message belongs to. Producers only.
	Traceparent string
	// Ephemeral says that the topic is not durable: when the connection breaks before the answer,
	// the publish fails instead of being repeated. A Producer learns it from the topic's first
	// answer too.
	Ephemeral bool
}

// Result of a publish.
type Result struct {
	// MessageID is a UUIDv7.
	MessageID []byte
	// Seq in the topic; 0: ephemeral, or scheduled.
	Seq   uint64
	Epoch uint64
	// Duplicate: it had been published before; the rest is that of the first time.
	Duplicate bool
	// Scheduled: it waits for its DeliverAt, and gets its Seq then.
	Scheduled bool
}
