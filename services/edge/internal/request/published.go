package request

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Published is the answer to a Publish with an id, of a router: what it was, or why it is refused.
func Published(id uint32, r *meshv1.ClientPublishReply_Result) (*wirev1.Published, *code.Error) {
	if r.GetCode() != wirev1.Code_CODE_OK {
		return nil, &code.Error{Code: r.GetCode(), Message: r.GetError(), RetryAfter: time.Duration(r.GetRetryAfterMs()) * time.Millisecond}
	}
	return &wirev1.Published{Id: id, Seq: r.GetSeq(), MessageId: r.GetMessageId(), Duplicate: r.GetDuplicate(), Epoch: r.GetEpoch()}, nil
}

// Error is what answers a request that is refused, or tells why a connection ends, whose ref is 0.
func Error(ref uint32, why *code.Error) *wirev1.Error {
	return &wirev1.Error{Code: why.Code, Message: why.Message, Ref: ref, RetryAfterMs: uint32(why.RetryAfter.Milliseconds())}
}

// NoMemory refuses what the edge would have to keep too much for.
var NoMemory = code.Retry(wirev1.Code_CODE_OVERLOADED, 5*time.Second, "the edge keeps as much for this connection, its client, its address or all as it may (--connection-memory, --client-memory, --address-memory, --queue-memory)")
