package subscribe

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func fromSession(id uint32, filter string) *wirev1.Subscribe {
	return &wirev1.Subscribe{Id: id, Filter: filter, Ack: true, Start: wirev1.Start_START_SESSION}
}

// A stream with move goes on with another edge as the same client: what is subscribed is asked for
// again, what is being left is left again, and what was ACKed for the edge before is not taken for
// an ACK of what the new one sends.
func TestAStreamMoves(t *testing.T) {
	w := newWorld(t, nil)
	first := w.edge("e1")
	c := w.open(hello(&wirev1.Hello{Session: "main"}, true))
	p := first.welcome(11)
	c.must()
	for id, filter := range []string{"", "a", "b", "c", "d"} {
		if id > 0 {
			c.send(subscribe(fromSession(uint32(id), filter)))
			p.expect(frameSubscribe, &wirev1.Subscribe{})
		}
	}
	p.send(frameError, &wirev1.Error{Code: wirev1.Code_CODE_FORBIDDEN, Ref: 2}) // b was refused
	c.must()
	c.send(unsubscribe(3))
	c.send(unsubscribe(4))
	p.expect(frameUnsubscribe, &wirev1.Unsubscribe{})
	p.expect(frameUnsubscribe, &wirev1.Unsubscribe{})
	// c was left, d is not yet
	p.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: 3})
	c.must()

	first.stop()
	second := w.edge("e2")
	_ = p.conn.Close()
	p = second.welcome(12)
	if p.hello.GetClientId() != "made-up" || p.hello.GetSession() != "main" {
		t.Errorf("hello: %v", p.hello)
	}
	if got := c.must().GetWelcome(); got.GetConnectionId() != 12 || got.GetEdge() != "e2" {
		t.Errorf("welcome: %v", got)
	}
	asked := map[uint32]bool{}
	for range 2 {
		m := &wirev1.Subscribe{}
		p.expect(frameSubscribe, m)
		asked[m.GetId()] = true
		if m.GetId() == 4 {
			p.expect(frameUnsubscribe, &wirev1.Unsubscribe{})
		}
	}
	if !asked[1] || !asked[4] {
		t.Errorf("asked for %v", asked)
	}
	c.send(ack(11, &wirev1.Ack_Entry{Topic: "a", Seq: 100, Through: true}))
	c.send(nack(11, &wirev1.Nack{Topic: "a", Seq: 99}))
	c.send(ack(12, &wirev1.Ack_Entry{Topic: "a", Seq: 3}))
	got := &wirev1.Ack{}
	if p.expect(frameAck, got); len(got.GetEntries()) != 1 || got.GetEntries()[0].GetSeq() != 3 {
		t.Errorf("acked: %v", got)
	}
	// An id is free again once its subscription is over, and only then.
	c.send(subscribe(fromSession(2, "b")))
	p.expect(frameSubscribe, &wirev1.Subscribe{})
	go p.hungUp()
	c.send(subscribe(fromSession(1, "x")))
	c.ends(wirev1.Code_CODE_INVALID_ARGUMENT)
}

// A planned stop of the edge is not told: what is un-ACKed has until reconnect_after_ms, then the
// stream goes on elsewhere.
func TestAStreamMovesAtGoAway(t *testing.T) {
	w := newWorld(t, nil)
	first := w.edge("e1")
	c := w.open(hello(&wirev1.Hello{Session: "main"}, true))
	p := first.welcome(11)
	c.must()
	second := w.edge("e2")
	w.live(w.Homes()[1:]...)
	p.send(frameGoAway, &wirev1.GoAway{Code: wirev1.Code_CODE_DRAINING, ReconnectAfterMs: 1})
	if got := p.hungUp(); len(got) != 0 {
		t.Errorf("the router sent %v", got)
	}
	second.welcome(12)
	if got := c.must().GetWelcome(); got.GetConnectionId() != 12 {
		t.Errorf("the next event is not another welcome: %v", got)
	}
}

// A stream that can't go on says so: the next edge refuses it for good.
func TestAMoveThatIsRefusedEndsTheStream(t *testing.T) {
	w := newWorld(t, nil)
	e := w.edge("e1")
	c := w.open(hello(&wirev1.Hello{Session: "main"}, true))
	p := e.welcome(11)
	c.must()
	_ = p.conn.Close()
	e.accept().send(frameError, &wirev1.Error{Code: wirev1.Code_CODE_SESSION_TAKEN_OVER})
	c.ends(wirev1.Code_CODE_SESSION_TAKEN_OVER)
}
