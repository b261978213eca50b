package shardlog

import (
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
)

// When to come back after a refusal.
const (
	overloadedRetry  = 50 * time.Millisecond
	unavailableRetry = 250 * time.Millisecond
)

// Sink takes the results of a caller's items. Results must not block. A sink is a pointer: it is
// known by its identity.
type Sink interface{ Results([]*meshv1.AppendResult) }

// entry is an item on its way.
type entry struct {
	item  *meshv1.AppendItem
	sink  Sink
	shard int
	key   backend.KeyHash // zero: none
	at    time.Time
	// cancels is the scheduled message that this entry withdraws, instead of bringing one; nil:
	// none.
	cancels *backend.ScheduledID
}

func (e *entry) keyed() bool { return e.key != backend.KeyHash{} }

// size is what an entry costs while it waits.
func (e *entry) size() int {
	return len(e.item.GetBody()) + len(e.item.GetTopic()) + len(e.item.GetDedupeKey()) + 256
}

// window is how long an entry's key is remembered.
func (e *entry) window(p *policy.Policy) time.Duration {
	if e.item.GetDue() != 0 {
		return scheduleWindow
	}
	if s := e.item.GetDedupeWindowS(); s > 0 {
		return time.Duration(s) * time.Second
	}
	return p.DedupeWindow
}

// clocksApart is how far clocks of different machines may differ where a time of one is compared
// with that of another.
const clocksApart = time.Minute

// keySpan is how long ago an entry's key may have been used.
func (e *entry) keySpan(policies *policy.Table, now uint64) time.Duration {
	if e.item.GetDue() != 0 || e.cancels != nil {
		return scheduleRereadWithin
	}
	span := e.window(policies.For(e.item.GetTopic()))
	if since := e.item.GetKeySince(); since > 0 {
		span = min(span, time.Duration(now-min(now, since))*time.Microsecond+clocksApart)
	}
	return span
}

const (
	maxDedupeKey = 1024
	// maxWindow is what the slices of keys are made for.
	maxWindow = policy.MaxDedupeWindow
)

// check says what is wrong with an item; trying again can't help.
func check(item *meshv1.AppendItem) error {
	invalid := func(format string, args ...any) error {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf(format, args...))
	}
	if err := topic.Check(item.GetTopic()); err != nil {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
	}
	switch {
	case len(item.GetMessageId()) != 16:
		return invalid("message_id has %d bytes, not 16", len(item.GetMessageId()))
	case len(item.GetBody()) > run.MaxRecord:
		return code.New(wirev1.Code_CODE_PAYLOAD_TOO_LARGE, fmt.Sprintf("body has %d bytes, at most %d", len(item.GetBody()), run.MaxRecord))
	case len(item.GetTraceparent()) > run.MaxTraceparent:
		return invalid("traceparent has %d bytes, at most %d", len(item.GetTraceparent()), run.MaxTraceparent)
	case len(item.GetDedupeKey()) > maxDedupeKey:
		return invalid("dedupe_key has %d bytes, at most %d", len(item.GetDedupeKey()), maxDedupeKey)
	case time.Duration(item.GetDedupeWindowS())*time.Second > maxWindow:
		return invalid("dedupe_window_s is %d, at most %d", item.GetDedupeWindowS(), int(maxWindow.Seconds()))
	case item.GetProducerSeq() != 0 && len(item.GetProducerId()) != 16:
		return invalid("producer_id has %d bytes, not 16", len(item.GetProducerId()))
	case item.GetProducerSeq() != 0 && item.GetSettledSeq() >= item.GetProducerSeq():
		return invalid("settled_seq is %d, and must be below producer_seq, which is %d", item.GetSettledSeq(), item.GetProducerSeq())
	case item.GetProducerSeq() == 0 && len(item.GetProducerId()) != 0:
		return invalid("producer_id without producer_seq")
	case item.GetTtlUs() != 0 && item.GetDeliverAt() == 0 && item.GetDue() == 0:
		return invalid("ttl_us without deliver_at")
	}
	return nil
}

func refusal(e *entry, c wirev1.Code, why string, retry time.Duration) *meshv1.AppendResult {
	return &meshv1.AppendResult{Ref: e.item.GetRef(), Code: c, Error: why, RetryAfterMs: uint32(retry.Milliseconds())}
}

func refusalOf(e *entry, err error) *meshv1.AppendResult {
	why := code.From(err)
	return refusal(e, why.Code, why.Message, why.RetryAfter)
}

func duplicate(e *entry, epoch, seq uint64, messageID []byte, publishedAt uint64) *meshv1.AppendResult {
	return &meshv1.AppendResult{
		Ref: e.item.GetRef(), Code: wirev1.Code_CODE_OK, Epoch: epoch, Seq: seq, Duplicate: true, MessageId: messageID, PublishedAt: publishedAt,
	}
}

func outOfOrder(want, got uint64) string {
	return fmt.Sprintf("producer_seq %d comes next, this is %d", want, got)
}
