package pushmesh

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// An edge that has too much to do names a time to come back to it: the client goes to another one
// at once.
func TestOverloadedEdgeLeadsToTheNext(t *testing.T) {
	refusal, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{
		Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: uint32(time.Hour.Milliseconds()),
	})
	if err != nil {
		t.Fatal(err)
	}
	busy, e := newFakeEdge(t), newFakeEdge(t)
	var refused atomic.Int32
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case c := <-busy.conns:
				if _, _, err := wire.Read(c.br, nil, wire.MaxHello); err == nil {
					refused.Add(1)
					_, _ = c.conn.Write(refusal)
				}
				c.close()
			case <-stop:
				return
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{busy.addr(), e.addr()}})
	sub := start(t, s, "room/a", newSeqLog().handle)
	c := e.welcome()
	c.subscribed(1, 0, false)
	if err := sub.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := refused.Load()
	c.close() // whichever came first: now it is the other one's turn
	e.welcome().subscribed(1, 0, true)
	if refused.Load() == before {
		t.Fatal("the overloaded edge was not asked")
	}
}
