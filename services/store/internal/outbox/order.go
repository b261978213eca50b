package outbox

import (
	"cmp"
	"encoding/hex"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// maxOrdered bounds the topics that one producer's numbers are kept for; beyond it a new one
// begins.
const maxOrdered = 10_000

// order numbers the rows of topics that a request holds several of, as an ordered producer does:
// the store refuses a row whose predecessor it refused. A row alone needs no number, since the next
// request waits for its answer.
type order struct {
	producer []byte
	next     map[string]uint64
}

// begin starts a new producer: after anything but success, its numbers are no longer known.
func (o *order) begin() { o.producer, o.next = nil, nil }

func (o *order) encode(rows []row) *meshv1.OutboxPublish {
	if o.producer == nil || len(o.next) > maxOrdered {
		o.producer, o.next = random(), map[string]uint64{}
	}
	of := map[string]int{}
	for _, r := range rows {
		of[r.Topic]++
	}
	req := &meshv1.OutboxPublish{ProducerId: o.producer}
	for _, r := range rows {
		it := &meshv1.OutboxPublish_Item{
			Topic: r.Topic, Payload: r.Payload, Headers: r.Headers, MessageId: r.MessageID[:], DedupeKey: key(&r), Priority: r.Priority,
			At: r.At, TtlUs: uint64(r.TTL / time.Microsecond), DeliverAt: r.DeliverAt, Traceparent: r.Traceparent, Repeated: r.repeated,
		}
		if of[r.Topic] > 1 {
			o.next[r.Topic]++
			it.ProducerSeq = o.next[r.Topic]
		}
		req.Items = append(req.Items, it)
	}
	return req
}

// key is the application's, or else the row's own.
func key(r *row) string {
	if r.DedupeKey != "" {
		return r.DedupeKey
	}
	return "outbox:" + hex.EncodeToString(r.MessageID[:])
}

// singles takes the first row of each topic.
func singles(rows []row) (now, later []row) {
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.Topic] {
			later = append(later, r)
			continue
		}
		seen[r.Topic] = true
		now = append(now, r)
	}
	return now, later
}

func inOrder(rows []row) []row {
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.ID, b.ID) })
	return rows
}
