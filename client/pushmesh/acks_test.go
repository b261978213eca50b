package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/acks"
	"github.com/pushmesh/pushmesh/client/internal/position"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// inAcks runs a test in a bubble, with a subscription of room/a that is answered for.
func inAcks(t *testing.T, cfg SubscriberConfig, h Handler, opts []Option, f func(t *testing.T, e *fakeEdge, c *edgeConn, id uint32)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		cfg.Dial, cfg.Addrs = e.dial, []string{"edge"}
		start(t, newTestSubscriber(t, cfg), "room/a", h, opts...)
		c := e.welcomeWith(seldom)
		f(t, e, c, c.subscribed(7, 0, true).GetId())
	})
}

func fine(context.Context, *Delivery) error { return nil }

// acks reads one Ack.
func (c *edgeConn) acks() []*wirev1.Ack_Entry {
	c.t.Helper()
	var a wirev1.Ack
	c.expect(wirev1.FrameType_FRAME_TYPE_ACK, &a)
	return a.GetEntries()
}

// An ACK waits for others for AckDelay, and no longer: one frame for all of them, which names the
// epoch.
func TestACKsWaitForEachOther(t *testing.T) {
	inAcks(t, SubscriberConfig{AckDelay: 50 * time.Millisecond}, fine, []Option{WithAck()}, func(t *testing.T, _ *fakeEdge, c *edgeConn, _ uint32) {
		for seq := uint64(1); seq <= 9; seq += 3 {
			began := time.Now()
			for i := range uint64(3) {
				c.message("room/a", seq+i, 0)
				pass(10 * time.Millisecond)
			}
			e := c.acks()
			if d := time.Since(began); d != 50*time.Millisecond || len(e) != 1 || e[0].GetSeq() != seq+2 || !e[0].GetThrough() || e[0].GetEpoch() != 7 {
				t.Errorf("after %v %v", d, e)
			}
		}
		c.message("room/a", 9, 1) // what was ACKed is ACKed again: that ACK may have been lost
		if e := c.acks(); len(e) != 1 || e[0].GetSeq() != 9 {
			t.Errorf("%v", e)
		}
		c.quiet(time.Minute)
	})
}

// Beyond so many ACKs that have to be told one by one they leave at once: an edge whose window is
// full of them waits for nothing.
func TestManyACKsLeaveAtOnce(t *testing.T) {
	inAcks(t, SubscriberConfig{AckDelay: time.Hour}, fine, []Option{WithAck(), WithGroup("g")}, func(t *testing.T, _ *fakeEdge, c *edgeConn, id uint32) {
		began := time.Now()
		for seq := uint64(1); seq < acks.MaxSingles; seq++ {
			c.message("room/a", seq, 0, id)
		}
		c.quiet(time.Minute)
		c.message("room/a", acks.MaxSingles, 0, id)
		if e := c.acks(); len(e) != acks.MaxSingles || time.Since(began) != time.Minute {
			t.Errorf("%d ACKs after %v", len(e), time.Since(began))
		}
		c.message("room/a", acks.MaxSingles+1, 0, id)
		c.quiet(time.Hour - time.Second)
		if e := c.acks(); len(e) != 1 {
			t.Errorf("%d ACKs", len(e))
		}
	})
}

// ACKs that a connection took with it are forgotten: the next one delivers again what it knows of,
// and an ACK of what it never delivered would settle what nobody had.
func TestACKsEndWithTheirConnection(t *testing.T) {
	inAcks(t, SubscriberConfig{AckDelay: time.Minute, MinBackoff: time.Millisecond}, fine, []Option{WithAck(), WithGroup("g")}, func(t *testing.T, e *fakeEdge, c *edgeConn, id uint32) {
		c.message("room/a", 5, 0, id)
		synctest.Wait()
		c.close()
		c = e.welcomeWith(seldom)
		c.subscribed(7, 9, true)
		c.message("room/a", 9, 0, id)
		if e := c.acks(); len(e) != 1 || e[0].GetSeq() != 9 {
			t.Errorf("%v", e)
		}
	})
}

// A NACK leaves behind the ACKs of what came before it, says when and why, and is of the connection
// that delivered: another one delivers the message again anyway.
func TestNACKs(t *testing.T) {
	why := errors.New(strings.Repeat("x", 300))
	var release chan struct{}
	refuse := func(_ context.Context, d *Delivery) error {
		switch d.Seq {
		case 2:
			return NackAfter(1500*time.Microsecond, fmt.Errorf("wrapped: %w", why))
		case 4:
			return why
		case 5:
			<-release
			return why
		}
		return nil
	}
	inAcks(t, SubscriberConfig{AckDelay: time.Hour, MinBackoff: time.Millisecond}, refuse, []Option{WithAck()}, func(t *testing.T, e *fakeEdge, c *edgeConn, _ uint32) {
		release = make(chan struct{})
		nack := func() *wirev1.Nack {
			n := &wirev1.Nack{}
			c.expect(wirev1.FrameType_FRAME_TYPE_NACK, n)
			return n
		}
		c.message("room/a", 1, 0)
		c.message("room/a", 2, 0)
		if e := c.acks(); len(e) != 1 || e[0].GetSeq() != 1 || !e[0].GetThrough() {
			t.Errorf("%v", e)
		}
		if n := nack(); n.GetSeq() != 2 || n.GetTopic() != "room/a" || n.GetDelayMs() != 2 || len(n.GetReason()) != 256 || !strings.HasPrefix(n.GetReason(), "again after 1.5ms: wrapped: xxx") {
			t.Errorf("%v", n)
		}
		c.message("room/a", 3, 0)
		c.message("room/a", 4, 0)
		if e := c.acks(); len(e) != 1 || e[0].GetSeq() != 3 || e[0].GetThrough() {
			t.Errorf("%v: 2 is still owed", e)
		}
		if n := nack(); n.GetSeq() != 4 || n.GetDelayMs() != 0 {
			t.Errorf("%v", n)
		}
		c.message("room/a", 5, 0)
		synctest.Wait()
		c.close()
		c = e.welcomeWith(seldom)
		close(release)
		if m := c.subscribe(); len(m.GetPositions()) != 1 || m.GetPositions()[0].GetSeq() != 1 {
			t.Errorf("resumed with %v, want what is behind 1: 2 is owed", m)
		}
		c.quiet(time.Minute) // and no NACK of a message that this connection has not delivered
	})
	inAcks(t, SubscriberConfig{AckDelay: time.Millisecond}, refuse, nil, func(t *testing.T, _ *fakeEdge, c *edgeConn, _ uint32) {
		c.message("room/a", 4, 0) // without WithAck nothing is said of it
		c.quiet(time.Minute)
	})
}

// A message that was given up is told as a gap.
func TestAMessageGivenUpIsTold(t *testing.T) {
	var gaps []Gap
	first := true
	refuse := func(_ context.Context, d *Delivery) error {
		if first || d.Seq > 1<<16 {
			first = false
			return errors.New("never")
		}
		return nil
	}
	inAcks(t, SubscriberConfig{OnGap: func(g Gap) { gaps = append(gaps, g) }}, refuse, []Option{WithAck()}, func(t *testing.T, _ *fakeEdge, c *edgeConn, _ uint32) {
		c.message("room/a", 1, 0)
		c.next()
		c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 7, From: 2, To: 5 + position.MaxOwed, Code: wirev1.Code_CODE_FILTERED})
		c.message("room/a", 6+position.MaxOwed, 0)
		c.next()
		synctest.Wait()
		want := Gap{Filter: "room/a", Topic: "room/a", Epoch: 7, From: 1, To: 5, Missed: 5, Code: CodeAttemptsExhausted}
		if len(gaps) != 1 || gaps[0] != want {
			t.Errorf("gaps %+v, want %+v", gaps, want)
		}
	})
}
