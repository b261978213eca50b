package publish

import (
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// pendingReply gathers the results of one request over NATS. It is a Receiver: ref is an item's
// index.
type pendingReply struct {
	results   []*meshv1.ClientPublishReply_Result
	remaining atomic.Int64
	reply     func(data []byte)
	cancelled func()
}

// newPendingReply waits for n results; then reply gets them encoded, or cancelled is called.
func newPendingReply(n int, reply func(data []byte), none func()) *pendingReply {
	g := &pendingReply{results: make([]*meshv1.ClientPublishReply_Result, n), reply: reply, cancelled: none}
	g.remaining.Store(int64(n))
	return g
}

// delay keeps the reply back until release is called once more, even if all results are there.
func (g *pendingReply) delay() { g.remaining.Add(1) }

// Published implements Receiver.
func (g *pendingReply) Published(ref uint64, res *Result) {
	g.results[ref] = &meshv1.ClientPublishReply_Result{
		Code: res.Code, Error: res.Error, RetryAfterMs: uint32(res.RetryAfter.Milliseconds()),
		Seq: res.Seq, Epoch: res.Epoch, MessageId: res.MessageID, Duplicate: res.Duplicate,
	}
	g.release()
}

// release ends a delay, or the wait for one result.
func (g *pendingReply) release() {
	if g.remaining.Add(-1) > 0 {
		return
	}
	data, err := proto.Marshal(&meshv1.ClientPublishReply{Results: g.results})
	if err != nil { // an error text that is not UTF-8: no reply is one too
		g.cancelled()
		return
	}
	g.reply(data)
}
