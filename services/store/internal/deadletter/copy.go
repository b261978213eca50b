package deadletter

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Headers of a copy, beside those of the message that was given up.
const (
	headerID        = "dead-letter-id"
	headerReason    = "dead-letter-reason" // name of the Code
	headerAttempts  = "dead-letter-attempts"
	headerTopic     = "dead-letter-topic"
	headerSeq       = "dead-letter-seq"
	headerEpoch     = "dead-letter-epoch"
	headerUser      = "dead-letter-user"
	headerSession   = "dead-letter-session"
	headerMessageID = "dead-letter-message-id" // hexadecimal
	headerAt        = "dead-letter-at"         // Unix time in microseconds
)

// keyWindow is how long a copy is recognised by its key, in seconds: as long as it may take until a
// letter is marked that its append did not mark.
const keyWindow = 24 * 3600

// copyOf makes the copy of a letter, or says why there shall be none: UNSUPPORTED, nothing durable
// would hold it, or it is a copy's own letter, which would be copied in circles; INTERNAL, the
// letter can't be read. Copies of one letter differ in their time alone.
func copyOf(l *meshv1.DeadLetter, policies *policy.Table, now time.Time) (*meshv1.AppendItem, wirev1.Code) {
	to := target(l.GetTopic(), policies)
	if to == "" {
		return nil, wirev1.Code_CODE_UNSUPPORTED
	}
	m := &wirev1.Message{}
	if err := proto.Unmarshal(l.GetBody(), m); err != nil {
		return nil, wirev1.Code_CODE_INTERNAL
	}
	if _, is := m.GetHeaders()[headerTopic]; is {
		return nil, wirev1.Code_CODE_UNSUPPORTED
	}
	id := messageID(l)
	copied := &wirev1.Message{
		Payload: m.GetPayload(), PublishedAt: uint64(now.UnixMicro()), Id: id[:], Headers: headers(l, m),
		Priority: m.GetPriority(), Traceparent: m.GetTraceparent(), From: m.GetFrom(),
	}
	body, err := wire.Body(copied)
	if err != nil {
		return nil, wirev1.Code_CODE_INTERNAL
	}
	return &meshv1.AppendItem{
		Topic: to, Body: body, MessageId: id[:], PublishedAt: copied.GetPublishedAt(), Traceparent: m.GetTraceparent(), CopiedLetter: l.GetId(),
		DedupeKey: fmt.Sprintf("\x00dead-letter-copy/%d/%d", l.GetId(), l.GetAt()), DedupeWindowS: keyWindow,
	}, wirev1.Code_CODE_OK
}

// target is the topic to which letters of a topic are copied; "": none.
func target(of string, policies *policy.Table) string {
	if topic.Under(policy.Dead, of) {
		return ""
	}
	p := policies.For(of)
	for _, to := range []string{p.DeadLetterTopic, policy.DeadTopic(p.Prefix)} {
		if policies.For(to).Durable {
			return to
		}
	}
	return ""
}

func headers(l *meshv1.DeadLetter, m *wirev1.Message) map[string]string {
	all := maps.Clone(m.GetHeaders())
	if all == nil {
		all = map[string]string{}
	}
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	all[headerID], all[headerReason], all[headerAttempts] = number(l.GetId()), code.Name(l.GetReason()), number(uint64(l.GetAttempts()))
	all[headerTopic], all[headerSeq], all[headerEpoch] = l.GetTopic(), number(l.GetSeq()), number(l.GetEpoch())
	all[headerUser], all[headerSession], all[headerAt] = l.GetUser(), l.GetSession(), number(l.GetAt())
	all[headerMessageID] = fmt.Sprintf("%x", m.GetId())
	return all
}

// messageID is a UUIDv7 of the letter's time, the same whoever copies the letter: subscribers know
// a copy by it.
func messageID(l *meshv1.DeadLetter) (id [16]byte) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d/%d/%d/%s/%s/%s", l.GetId(), l.GetAt(), l.GetEpoch(), l.GetSeq(), l.GetTopic(), l.GetUser(), l.GetSession()))
	copy(id[:], sum[:])
	binary.BigEndian.PutUint64(id[:8], l.GetAt()/1000<<16|uint64(0x7000|binary.BigEndian.Uint16(sum[6:])&0x0fff))
	id[8] = id[8]&0x3f | 0x80
	return id
}
