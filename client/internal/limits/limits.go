// Package limits knows what no router takes as a message.
package limits

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a message, as every router has them (docs/api.md). What is outside is refused here,
// before it has a number or a place on a connection: what can't even be encoded would take
// everything behind it along.
const (
	maxPriority    = 9
	maxDedupeKey   = 256
	maxHeaders     = 64
	maxHeaderBytes = 8 << 10
	maxFeatures    = 64
	maxFeatureName = 64
	maxDimensions  = 4096
	maxTraceparent = 256
	MaxPayload     = 1 << 20 // what the mesh carries at most; namespaces allow less
)

// Fields of a message.
type Fields struct {
	Topic       string
	Payload     []byte
	Headers     map[string]string
	DedupeKey   string
	Priority    uint32
	TTL         time.Duration
	DeliverAt   time.Time
	Features    map[string]float64
	Vector      []float32
	Traceparent string
}

// Fault is why a message is refused.
type Fault struct {
	Code wirev1.Code
	Text string
}

func invalid(format string, args ...any) *Fault {
	return &Fault{wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf(format, args...)}
}

// Message refuses what no router takes, whatever the topic's namespace.
func Message(m Fields) *Fault {
	if e := checkTopic(m.Topic); e != nil {
		return e
	}
	switch {
	case len(m.Payload) > MaxPayload:
		return &Fault{wirev1.Code_CODE_PAYLOAD_TOO_LARGE, fmt.Sprintf("Message.Payload has %d bytes, at most %d", len(m.Payload), MaxPayload)}
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
	return checkFeatures(m)
}

// checkTopic refuses what is no topic to publish to.
func checkTopic(topic string) *Fault {
	bad := func(why string) *Fault {
		return &Fault{wirev1.Code_CODE_BAD_TOPIC, fmt.Sprintf("topic %.40q: %s", topic, why)}
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
		return &Fault{wirev1.Code_CODE_FORBIDDEN, fmt.Sprintf("topic %.40q: topics that begin with $ are the mesh's own", topic)}
	}
	return nil
}

func checkHeaders(headers map[string]string) *Fault {
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

func checkFeatures(m Fields) *Fault {
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
