package publish

import (
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// gathered are the results of one request over NATS. It is a Receiver: ref is an item's place.
type gathered struct {
	results []*meshv1.ClientPublishReply_Result
	left    atomic.Int64
	reply   func(data []byte)
	none    func()
}

// gather waits for n results; then reply gets them encoded, or none is called.
func gather(n int, reply func(data []byte), none func()) *gathered {
	g := &gathered{results: make([]*meshv1.ClientPublishReply_Result, n), reply: reply, none: none}
	g.left.Store(int64(n))
	return g
}

// hold keeps the reply back until release, even if all results are there.
func (g *gathered) hold() { g.left.Add(1) }

// Published implements Receiver.
func (g *gathered) Published(ref uint64, res *Result) {
	g.results[ref] = &meshv1.ClientPublishReply_Result{
		Code: res.Code, Error: res.Error, RetryAfterMs: uint32(res.RetryAfter.Milliseconds()),
		Seq: res.Seq, Epoch: res.Epoch, MessageId: res.MessageID, Duplicate: res.Duplicate,
	}
	g.release()
}

// release ends a hold, or the wait for one result.
func (g *gathered) release() {
	if g.left.Add(-1) > 0 {
		return
	}
	data, err := proto.Marshal(&meshv1.ClientPublishReply{Results: g.results})
	if err != nil { // an error text that is not UTF-8: no reply is one too
		g.none()
		return
	}
	g.reply(data)
}
