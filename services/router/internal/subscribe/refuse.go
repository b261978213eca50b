package subscribe

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// sender sends events to the client one after the other: those that an edge says, and refusals of
// the router's own.
type sender struct {
	mu      sync.Mutex
	open    bool   // Welcome was sent
	waiting []byte // refusals until then
}

func (o *sender) send(rpc server, events []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return rpc.SendMsg(codec.Encoded(events))
}

// greeted sends what has waited for Welcome.
func (o *sender) greeted(rpc server) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = true
	if len(o.waiting) == 0 {
		return nil
	}
	waiting := o.waiting
	o.waiting = nil
	return rpc.SendMsg(codec.Encoded(waiting))
}

// maxWaiting is how many bytes of refusals wait for Welcome.
const maxWaiting = 1 << 20

// forbidden is why the backend may not subscribe to a filter; nil: it may. What is no filter the
// edge refuses.
func (s *stream) forbidden(filter string) error {
	by := backends.Of(s.rpc.Context())
	if by == nil || topic.CheckFilter(filter) != nil {
		return nil
	}
	if who := by.Who(); !who.May(backends.Consumer, filter) {
		return who.Refuse(backends.Consumer, filter)
	}
	return nil
}

// refuse answers a request with an error, and the stream goes on. It may wait while the client
// reads nothing; nothing more is read from the client then.
func (s *stream) refuse(id uint32, err error) error {
	why := code.From(err)
	body, e := proto.Marshal(&wirev1.Error{Code: why.Code, Message: why.Message, Ref: id})
	if e != nil {
		return e
	}
	var one events
	one.add(wirev1.FrameType_FRAME_TYPE_ERROR, body)
	o := &s.sender
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open {
		return s.rpc.SendMsg(codec.Encoded(one.buf))
	}
	if len(o.waiting)+len(one.buf) > maxWaiting {
		return code.New(wirev1.Code_CODE_OVERLOADED, "too many subscriptions were refused at once")
	}
	o.waiting = append(o.waiting, one.buf...)
	return nil
}
