package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ranked sends a message to a ranked subscription.
func (c *edgeConn) ranked(topic string, seq uint64, score float64, sub uint32) {
	c.t.Helper()
	c.send(wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: topic, Seq: seq, Score: score, Subs: []uint32{sub}, Payload: []byte{byte(seq)}})
}

// What is ranked comes in any order, is ACKed one by one, and goes on by its session.
func TestRankedMessagesAreHandledAsTheyCome(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{
		Addrs: []string{e.addr()}, ClientID: "c", Session: "inbox", Profile: map[string]float64{"sport": 1}, ProfileVector: []float32{0.5, 2},
		OnGap: func(g Gap) { t.Errorf("gap %+v", g) },
	})
	got, scores, refuse := newSeqLog(), []float64(nil), true
	start(t, s, "news/a", func(_ context.Context, d *Delivery) error {
		scores = append(scores, d.Score)
		got.add(d.Seq)
		if d.Seq == 4 && refuse {
			refuse = false
			return errors.New("not now")
		}
		return nil
	}, WithAck(), FromSession(), WithRankTopK(3))
	c, hello := e.accept()
	if hello.GetProfile()["sport"] != 1 || !slices.Equal(hello.GetProfileVector(), []float32{0.5, 2}) {
		t.Errorf("Hello has %v", hello)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{ConnectionId: 1, HeartbeatMs: 30000, MaxFrame: 1 << 20, Version: 1, ClientId: "c1"})
	m := c.subscribed(7, 2, true)
	if m.GetRankTopK() != 3 || m.GetStart() != wirev1.Start_START_SESSION {
		t.Fatalf("subscribed with %v", m)
	}
	id := m.GetId()
	for i, seq := range []uint64{5, 2, 3} {
		c.ranked("news/a", seq, float64(9-i), id)
		c.ackedAlone("news/a", seq)
	}
	c.ranked("news/a", 4, 1, id)
	var n wirev1.Nack
	if c.expect(wirev1.FrameType_FRAME_TYPE_NACK, &n); n.GetSeq() != 4 || n.GetSub() != id {
		t.Fatalf("nack %v", &n)
	}
	c.ranked("news/a", 7, 1, id)
	c.ackedAlone("news/a", 7)
	c.message("news/a", 4, 1, id)
	c.ackedAlone("news/a", 4)
	c.progress(&wirev1.Progress{Topic: "news/a", Epoch: 7, From: 6, To: 6, Code: wirev1.Code_CODE_RANKED_OUT, Subs: []uint32{id}})
	c.close()

	c = e.welcome()
	if m := c.subscribed(7, 8, true); m.GetStart() != wirev1.Start_START_SESSION || len(m.GetPositions()) != 0 || m.GetRankTopK() != 3 {
		t.Fatalf("resubscribed with %v", m)
	}
	c.ranked("news/a", 8, 3, id)
	c.ackedAlone("news/a", 8)
	c.ranked("news/a", 7, 2, id) // its ACK was lost
	c.ackedAlone("news/a", 7)
	c.ranked("news/a", 1, 1, id) // of what the session still lacked
	c.ackedAlone("news/a", 1)
	got.wait(t, 5, 2, 3, 4, 7, 4, 8, 1)
	if fmt.Sprint(scores) != "[9 8 7 1 1 0 3 1]" {
		t.Errorf("scores %v", scores)
	}
}

// Without a session a ranked subscription goes on with what is live, and says what it missed.
func TestRankedWithoutASessionGoesOnLive(t *testing.T) {
	e := newFakeEdge(t)
	gaps := make(chan Gap, 10)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, OnGap: func(g Gap) { gaps <- g }})
	got := newSeqLog()
	sub, err := s.Start("news/a", got.handle, WithAck(), FromEarliest(), WithRankTopK(2))
	if err != nil {
		t.Fatal(err)
	}
	c := e.welcome()
	if m := c.subscribed(7, 3, true); m.GetStart() != wirev1.Start_START_EARLIEST {
		t.Fatalf("subscribed with %v", m)
	}
	for _, seq := range []uint64{3, 1, 6} {
		c.ranked("news/a", seq, 1, 1)
		c.ackedAlone("news/a", seq)
	}
	c.progress(&wirev1.Progress{Topic: "news/a", Epoch: 7, From: 2, To: 2, Code: wirev1.Code_CODE_RANKED_OUT, Subs: []uint32{1}})
	c.ranked("news/a", 10, 1, 1)
	c.ackedAlone("news/a", 10)
	c.close()
	c = e.welcome()
	if m := c.subscribed(7, 12, false); m.GetStart() != wirev1.Start_START_LIVE || len(m.GetPositions()) != 0 || m.GetRankTopK() != 2 {
		t.Fatalf("resubscribed with %v", m)
	}
	c.ranked("news/a", 13, 1, 1)
	c.ackedAlone("news/a", 13)
	got.wait(t, 3, 1, 6, 10, 13)
	want := Gap{Filter: "news/a", Topic: "news/a", Epoch: 7, From: 4, To: 12, Missed: 7, Code: CodeRetention}
	if g := <-gaps; g != want {
		t.Errorf("gap %+v, want %+v", g, want)
	}
	c.close()
	c = e.welcome()
	c.subscribed(7, 13, false)
	c.ranked("news/a", 14, 1, 1)
	c.ackedAlone("news/a", 14)
	if len(gaps) != 0 {
		t.Errorf("another gap: %+v", <-gaps)
	}
	if p := sub.Positions(); len(p) != 0 {
		t.Errorf("positions %v", p)
	}
}

// The largest ranking there is, in the worst order: every message is handed over, once.
func TestALargeRankingIsHandedOverWhole(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	seen, all := make([]int, 10_001), make(chan struct{})
	n := 0
	start(t, s, "news/a", func(_ context.Context, d *Delivery) error {
		seen[d.Seq]++
		if n++; n == 10_000 {
			close(all)
		}
		return nil
	}, WithRankTopK(10_000))
	c := e.welcome()
	c.subscribed(7, 0, true)
	var frames []sent
	for half := range 2 {
		for _, i := range rand.Perm(5000) {
			frames = append(frames, sent{wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "news/a", Seq: uint64(2*i + 1 + half), Score: 1, Subs: []uint32{1}}})
		}
	}
	c.sendAll(frames...)
	select {
	case <-all:
	case <-time.After(patience):
		t.Fatal("not every message was handed over")
	}
	for seq, n := range seen[1:] {
		if n != 1 {
			t.Fatalf("%d was handed over %d times", seq+1, n)
		}
	}
}

func TestRankedHasNoPositions(t *testing.T) {
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{nobody}})
	for _, o := range []Option{WithGroup("g"), FromSeq(1, 2), FromPositions(Position{Topic: "a"})} {
		if _, err := s.Start("a", func(context.Context, *Delivery) error { return nil }, o, WithRankTopK(1)); err == nil {
			t.Error("it is taken with what it does not go with")
		}
	}
}
