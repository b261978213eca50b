package pushmesh

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

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

// Bounds of a message, as every router has them (docs/api.md). What is outside is refused here,
// before it has a number or a place on a connection: what can't even be encoded would take
// everything behind it along.
const (
	maxPriority     = 9
	maxDedupeKey    = 256
	maxHeaders      = 64
	maxHeaderBytes  = 8 << 10
	maxFeatures     = 64
	maxFeatureName  = 64
	maxDimensions   = 4096
	maxTraceparent  = 256
	maxPayloadBytes = 1 << 20 // what the mesh carries at most; namespaces allow less
)

func invalid(format string, args ...any) *Error {
	return &Error{Code: wirev1.Code_CODE_INVALID_ARGUMENT, Message: fmt.Sprintf(format, args...)}
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

// check refuses what no router takes, whatever the topic's namespace.
func (m *Message) check() *Error {
	if e := checkTopic(m.Topic); e != nil {
		return e
	}
	switch {
	case len(m.Payload) > maxPayloadBytes:
		return &Error{Code: wirev1.Code_CODE_PAYLOAD_TOO_LARGE, Message: fmt.Sprintf("Message.Payload has %d bytes, at most %d", len(m.Payload), maxPayloadBytes)}
	case m.Priority > maxPriority:
		return invalid("Message.Priority is %d, at most %d", m.Priority, maxPriority)
	case len(m.DedupeKey) > maxDedupeKey:
		return invalid("Message.DedupeKey has %d bytes, at most %d", len(m.DedupeKey), maxDedupeKey)
	case !utf8.ValidString(m.DedupeKey):
		return invalid("Message.DedupeKey %.40q is not UTF-8", m.DedupeKey)
	case m.TTL < 0:
		return invalid("Message.TTL is %v, it must be above 0, or 0 for none", m.TTL)
	case len(m.Traceparent) > maxTraceparent || !utf8.ValidString(m.Traceparent):
		return invalid("Message.Traceparent %.60q is no W3C trace context", m.Traceparent)
	case !m.DeliverAt.IsZero() && m.DeliverAt.UnixMicro() <= 0:
		return invalid("Message.DeliverAt is %v, it must be after 1970", m.DeliverAt)
	}
	if e := checkHeaders(m.Headers); e != nil {
		return e
	}
	return m.checkFeatures()
}

// checkTopic refuses what is no topic to publish to.
func checkTopic(topic string) *Error {
	bad := func(why string) *Error {
		return &Error{Code: wirev1.Code_CODE_BAD_TOPIC, Message: fmt.Sprintf("topic %.40q: %s", topic, why)}
	}
	switch {
	case topic == "" || len(topic) > topicfilter.MaxBytes || !utf8.ValidString(topic):
		return bad(fmt.Sprintf("it has %d bytes, it must have 1 to 255 of UTF-8", len(topic)))
	case topic[0] == '/' || topic[len(topic)-1] == '/' || strings.Contains(topic, "//"):
		return bad("empty level")
	case topicfilter.Wild(topic):
		return bad("a topic to publish to has no wildcard")
	case strings.ContainsFunc(topic, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }):
		return bad("control character")
	case topic[0] == '$':
		return &Error{Code: wirev1.Code_CODE_FORBIDDEN, Message: fmt.Sprintf("topic %.40q: topics that begin with $ are the mesh's own", topic)}
	}
	return nil
}

func checkHeaders(headers map[string]string) *Error {
	if len(headers) > maxHeaders {
		return invalid("Message.Headers has %d entries, at most %d", len(headers), maxHeaders)
	}
	size := 0
	for k, v := range headers {
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return invalid("Message.Headers: the name of %.40q must not be empty, and name and value must be UTF-8", k)
		}
		size += len(k) + len(v)
	}
	if size > maxHeaderBytes {
		return invalid("Message.Headers has %d bytes in all, at most %d", size, maxHeaderBytes)
	}
	return nil
}

func (m *Message) checkFeatures() *Error {
	if len(m.Features) > maxFeatures {
		return invalid("Message.Features has %d entries, at most %d", len(m.Features), maxFeatures)
	}
	for name, v := range m.Features {
		switch {
		case name == "" || len(name) > maxFeatureName || !utf8.ValidString(name):
			return invalid("Message.Features: a name must have 1 to %d bytes of UTF-8, %.80q has not", maxFeatureName, name)
		case math.IsNaN(v) || math.IsInf(v, 0):
			return invalid("Message.Features: %q is %v, it must be finite", name, v)
		}
	}
	if len(m.Vector) > maxDimensions {
		return invalid("Message.Vector has %d dimensions, at most %d", len(m.Vector), maxDimensions)
	}
	for i, v := range m.Vector {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return invalid("Message.Vector is %v at %d, it must be finite", v, i)
		}
	}
	return nil
}

// checkClient refuses what a Publish of a client can't say: a Subscriber would leave it out.
func (m *Message) checkClient() *Error {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"Priority", m.Priority != 0},
		{"TTL", m.TTL != 0},
		{"DeliverAt", !m.DeliverAt.IsZero()},
		{"Features", len(m.Features) > 0},
		{"Vector", len(m.Vector) > 0},
		{"Traceparent", m.Traceparent != ""},
	} {
		if f.set {
			return &Error{
				Code: wirev1.Code_CODE_UNSUPPORTED, Message: "Message." + f.name + " is set, and clients' messages can't have it: publish through a Producer, or leave it out",
			}
		}
	}
	return m.check()
}
