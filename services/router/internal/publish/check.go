package publish

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a message.
const (
	MaxTopics      = 10_000
	maxHeaders     = 64
	maxHeaderBytes = 8 << 10
	maxDedupeKey   = 256
	maxPriority    = 9
	producerIDSize = 16
	messageIDSize  = 16
	// maxAhead is how far ahead deliver_at may be.
	maxAhead = 366 * 24 * time.Hour
)

func invalid(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf(format, args...))
}

// checkTopic refuses what is no topic, and what is the mesh's own.
func checkTopic(name string) error {
	if err := topic.Check(name); err != nil {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
	}
	if name[0] == '$' {
		return code.New(wirev1.Code_CODE_FORBIDDEN, fmt.Sprintf("topic %.40q: topics that begin with $ are the mesh's own", name))
	}
	return nil
}

// checkMessage refuses what is wrong with a message whatever its topic.
func checkMessage(m *pushmeshv1.PublishRequest) error {
	switch {
	case m == nil:
		return invalid("message is missing")
	case m.GetPriority() > maxPriority:
		return invalid("priority is %d, at most %d", m.GetPriority(), maxPriority)
	case len(m.GetDedupeKey()) > maxDedupeKey:
		return invalid("dedupe_key has %d bytes, at most %d", len(m.GetDedupeKey()), maxDedupeKey)
	case len(m.GetTopics()) > MaxTopics:
		return invalid("topics has %d entries, at most %d", len(m.GetTopics()), MaxTopics)
	case len(m.GetTopics()) > 0 && m.GetTopic() != "":
		return invalid("topic and topics exclude each other")
	}
	if ttl := m.GetTtl(); ttl != nil && (ttl.CheckValid() != nil || ttl.AsDuration() <= 0) {
		return invalid("ttl is %v, it must be above 0", ttl.AsDuration())
	}
	if err := checkDeliverAt(m); err != nil {
		return err
	}
	if err := checkFeatures(m); err != nil {
		return err
	}
	return checkHeaders(m.GetHeaders())
}

// checkDeliverAt leaves the past to the store, by whose clock it is now.
func checkDeliverAt(m *pushmeshv1.PublishRequest) error {
	at := m.GetDeliverAt()
	switch {
	case at == nil:
		return nil
	case at.CheckValid() != nil || at.AsTime().UnixMicro() <= 0:
		return invalid("deliver_at must be a time after 1970")
	case at.AsTime().After(time.Now().Add(maxAhead)):
		return invalid("deliver_at is %s, at most 366 days ahead", at.AsTime().Format(time.RFC3339))
	case len(m.GetTopics()) > 0:
		return code.New(wirev1.Code_CODE_UNSUPPORTED, "deliver_at with topics: a scheduled message has one topic")
	}
	return nil
}

func checkHeaders(headers map[string]string) error {
	if len(headers) > maxHeaders {
		return invalid("headers has %d entries, at most %d", len(headers), maxHeaders)
	}
	size := 0
	for k, v := range headers {
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return invalid("header %.40q: its name must not be empty, and name and value must be UTF-8", k)
		}
		size += len(k) + len(v)
	}
	if size > maxHeaderBytes {
		return invalid("headers have %d bytes in all, at most %d", size, maxHeaderBytes)
	}
	return nil
}

func checkPayload(p *policy.Policy, payload []byte) error {
	if len(payload) > p.MaxPayload {
		return code.New(wirev1.Code_CODE_PAYLOAD_TOO_LARGE,
			fmt.Sprintf("payload has %d bytes, at most %d in namespace %s", len(payload), p.MaxPayload, p.Prefix))
	}
	return nil
}

func checkProducer(id []byte, seq, settled uint64) error {
	switch {
	case len(id) != 0 && len(id) != producerIDSize:
		return invalid("producer_id has %d bytes, must be %d", len(id), producerIDSize)
	case len(id) == 0 && seq != 0:
		return invalid("producer_seq is %d and producer_id is missing: give both, or neither", seq)
	case seq != 0 && settled >= seq:
		return invalid("settled_seq is %d, and must be below producer_seq, which is %d", settled, seq)
	}
	return nil
}

// expiry is when a message published now ends, in Unix microseconds; 0: never.
func expiry(now time.Time, m *pushmeshv1.PublishRequest) uint64 {
	if m.GetTtl() == nil || m.GetDeliverAt() != nil { // of a scheduled one the store says it
		return 0
	}
	return uint64(now.Add(m.GetTtl().AsDuration()).UnixMicro())
}
