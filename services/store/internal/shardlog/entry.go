package shardlog

import (
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
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

// Sink takes the results of a caller's items. Results must not block. A sink is a pointer: it is known by its identity.
type Sink interface{ Results([]*meshv1.AppendResult) }

// entry is an item on its way.
type entry struct {
	item  *meshv1.AppendItem
	sink  Sink
	shard int
	key   backend.KeyHash
	at    time.Time
}

// size is what an entry costs while it waits.
func (e *entry) size() int {
	return len(e.item.GetBody()) + len(e.item.GetTopic()) + len(e.item.GetDedupeKey()) + 256
}

const maxDedupeKey = 1024

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
	case item.GetProducerSeq() != 0 && len(item.GetProducerId()) != 16:
		return invalid("producer_id has %d bytes, not 16", len(item.GetProducerId()))
	case item.GetProducerSeq() == 0 && len(item.GetProducerId()) != 0:
		return invalid("producer_id without producer_seq")
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
