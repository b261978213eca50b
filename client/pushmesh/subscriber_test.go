package pushmesh

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func start(t *testing.T, s *Subscriber, filter string, h Handler, opts ...Option) *Subscription {
	t.Helper()
	sub, err := s.Start(filter, h, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func TestResumesWithoutLossOrRepetition(t *testing.T) {
	for _, inline := range []bool{false, true} {
		e := newFakeEdge(t)
		s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, Inline: inline})
		got := newSeqLog()
		sub := start(t, s, "room/a", got.handle, WithAck())

		c := e.welcome()
		if m := c.subscribed(7, 10, false); !m.GetAck() || m.GetFilter() != "room/a" || m.GetStart() != wirev1.Start_START_LIVE {
			t.Fatalf("subscribe %v", m)
		}
		if err := sub.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		for seq := uint64(11); seq <= 13; seq++ {
			c.message("room/a", seq, 0)
		}
		c.ackedThrough("room/a", 13)
		c.close()

		c = e.welcome()
		m := c.subscribed(7, 15, true)
		want := []*wirev1.Position{{Topic: "room/a", Epoch: 7, Seq: 13}}
		if len(m.GetPositions()) != 1 || !proto.Equal(m.GetPositions()[0], want[0]) {
			t.Fatalf("resumed with %v, want %v", m.GetPositions(), want)
		}
		c.message("room/a", 12, 1, m.GetId())
		c.message("room/a", 13, 1, m.GetId())
		c.message("room/a", 14, 0, m.GetId())
		c.message("room/a", 15, 0)
		c.ackedThrough("room/a", 15)
		got.wait(t, 11, 12, 13, 14, 15)
		if st := s.Stats(); st.Repeated != 2 || st.Delivered != 5 || st.Connects != 2 {
			t.Fatalf("stats %+v", st)
		}
		if p := sub.Positions(); len(p) != 1 || p[0] != (Position{"room/a", 7, 15}) {
			t.Fatalf("positions %v", p)
		}
	}
}

func TestResumeBeforeAnyMessageStartsWhereTheFirstRequestDid(t *testing.T) {
	for _, c := range []struct {
		opt  Option
		want uint64
	}{
		{WithoutEcho(), 20},
		{FromEarliest(), 0},
		{FromLast(5), 15},
		{FromSeq(7, 9), 9},
		{FromPositions(Position{"room/a", 7, 4}), 4},
	} {
		e := newFakeEdge(t)
		s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
		start(t, s, "room/a", newSeqLog().handle, c.opt)
		conn := e.welcome()
		conn.subscribed(7, 20, true)
		conn.close()
		m := e.welcome().subscribe()
		if p := m.GetPositions(); len(p) != 1 || p[0].GetSeq() != c.want || p[0].GetEpoch() != 7 {
			t.Fatalf("resumed with %v, want seq %d", p, c.want)
		}
	}
}

func TestNackedMessageComesAgainAndHoldsThePosition(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	got, refuse := newSeqLog(), map[uint64]int{2: 1, 5: 1}
	start(t, s, "room/a", func(_ context.Context, d *Delivery) error {
		got.add(d.Seq)
		if refuse[d.Seq] > 0 {
			refuse[d.Seq]--
			return NackAfter(30*time.Millisecond, errors.New("not now"))
		}
		return nil
	}, WithAck())
	c := e.welcome()
	c.subscribed(7, 0, false)
	c.message("room/a", 1, 0)
	c.ackedThrough("room/a", 1)
	c.message("room/a", 2, 0)
	var n wirev1.Nack
	c.expect(wirev1.FrameType_FRAME_TYPE_NACK, &n)
	if n.GetSeq() != 2 || n.GetDelayMs() != 30 || n.GetTopic() != "room/a" {
		t.Fatalf("nack %v", &n)
	}
	c.message("room/a", 3, 0)
	c.ackedAlone("room/a", 3) // "all up to 3" would ACK 2
	c.message("room/a", 2, 1)
	c.ackedThrough("room/a", 2)
	c.message("room/a", 4, 0)
	c.ackedThrough("room/a", 4)

	c.message("room/a", 5, 0)
	c.expect(wirev1.FrameType_FRAME_TYPE_NACK, &n)
	c.message("room/a", 6, 0)
	c.ackedAlone("room/a", 6)
	c.close()
	c = e.welcome()
	if m := c.subscribed(7, 6, true); m.GetPositions()[0].GetSeq() != 4 {
		t.Fatalf("resumed after %v, want 4: 5 is still owed", m.GetPositions())
	}
	c.message("room/a", 5, 1)
	c.message("room/a", 6, 1)
	c.ackedThrough("room/a", 6)
	got.wait(t, 1, 2, 3, 2, 4, 5, 6, 5)
}

func TestRedeliveryBelowThePositionReachesASessionsHandler(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, Session: "phone", ClientID: "ann"})
	got := newSeqLog()
	start(t, s, "room/a", got.handle, WithAck(), FromSession())
	c, hello := e.accept()
	if hello.GetSession() != "phone" || hello.GetClientId() != "ann" || hello.GetReceiveWindow() != 256 {
		t.Fatalf("hello %v", hello)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Version: 1, Resumed: true, ClientId: "ann"})
	c.subscribed(7, 12, true)
	c.message("room/a", 11, 0) // un-ACKed 3 of an earlier process comes later
	c.message("room/a", 3, 2)
	c.message("room/a", 12, 0)
	c.ackedThrough("room/a", 12)
	got.wait(t, 11, 3, 12)
	c.close()
	c = e.welcome()
	if m := c.subscribe(); m.GetStart() != wirev1.Start_START_SESSION || len(m.GetPositions()) != 0 {
		t.Fatalf("resubscribed with %v, want the session alone", m)
	}
}

func TestProgressMovesThePositionAndNamesGaps(t *testing.T) {
	e := newFakeEdge(t)
	gaps := make(chan Gap, 10)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, OnGap: func(g Gap) { gaps <- g }})
	got := newSeqLog()
	start(t, s, "room/a", got.handle, WithAck())
	c := e.welcome()
	c.subscribed(7, 0, false)
	c.message("room/a", 1, 0)
	c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 7, From: 2, To: 4, Code: wirev1.Code_CODE_EXPIRED})
	c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 7, From: 5, To: 6, Code: wirev1.Code_CODE_RETENTION})
	if g := <-gaps; g.Missed != 2 || g.From != 5 || g.To != 6 || g.Code != CodeRetention || g.Topic != "room/a" {
		t.Fatalf("gap %+v", g)
	}
	c.close()
	c = e.welcome()
	m := c.subscribed(7, 6, false)
	if m.GetPositions()[0].GetSeq() != 6 {
		t.Fatalf("resumed with %v, want 6", m.GetPositions())
	}
	if g := <-gaps; g.Code != CodeRetention || g.Filter != "room/a" {
		t.Fatalf("recovered=false gave %+v", g)
	}

	// A new epoch: numbers begin anew and are no repetitions.
	c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 9, Code: wirev1.Code_CODE_EPOCH_CHANGED})
	if g := <-gaps; g.Code != CodeEpochChanged || g.Epoch != 9 {
		t.Fatalf("gap %+v", g)
	}
	c.message("room/a", 1, 0)
	c.ackedThrough("room/a", 1)
	got.wait(t, 1, 1)
	c.close()
	c = e.welcome()
	if p := c.subscribed(11, 3, false).GetPositions()[0]; p.GetEpoch() != 9 || p.GetSeq() != 1 {
		t.Fatalf("resumed with %v", p)
	}
	if g := <-gaps; g.Code != CodeEpochChanged || g.Epoch != 11 {
		t.Fatalf("gap %+v", g)
	}
	c.message("room/a", 1, 0)
	c.message("room/a", 2, 0)
	got.wait(t, 1, 1, 1, 2)
}

func TestOverlappingSubscriptions(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	live, replay := newSeqLog(), newSeqLog()
	start(t, s, "room/+", live.handle)
	c := e.welcome()
	m := c.subscribe()
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Positions: []*wirev1.Subscribed_TopicPosition{{Topic: "room/a", Epoch: 7, Head: 3}}})
	start(t, s, "room/a", replay.handle, FromEarliest(), WithAck())
	id := c.subscribed(7, 3, true).GetId()
	c.message("room/a", 1, 0, id)
	c.message("room/a", 4, 0) // the live one's alone
	c.message("room/a", 2, 0, id)
	c.message("room/a", 3, 0, id)
	c.message("room/a", 4, 0, id)
	c.message("room/a", 5, 0)
	c.message("room/a", 5, 0, id)
	c.ackedThrough("room/a", 5)
	live.wait(t, 4, 5)
	replay.wait(t, 1, 2, 3, 4, 5)
}

func TestRefusalsThatEndIt(t *testing.T) {
	for _, how := range []string{"goaway", "error", "before welcome"} {
		e := newFakeEdge(t)
		s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
		sub := start(t, s, "room/a", newSeqLog().handle)
		switch how {
		case "goaway":
			c := e.welcome()
			c.subscribed(7, 0, false)
			c.send(wirev1.FrameType_FRAME_TYPE_GO_AWAY, &wirev1.GoAway{Code: wirev1.Code_CODE_SESSION_TAKEN_OVER, ReconnectAfterMs: 60000})
		case "error":
			c := e.welcome()
			c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_SESSION_TAKEN_OVER})
		case "before welcome":
			c, _ := e.accept()
			c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_SESSION_TAKEN_OVER})
		}
		select {
		case <-s.Done():
		case <-time.After(patience):
			t.Fatal(how, ": goes on")
		}
		if CodeOf(s.Err()) != CodeSessionTakenOver || CodeOf(sub.Err()) != CodeSessionTakenOver {
			t.Fatalf("%s: ended with %v, %v", how, s.Err(), sub.Err())
		}
		if _, err := s.Start("x", newSeqLog().handle); CodeOf(err) != CodeSessionTakenOver {
			t.Fatalf("Start after the end: %v", err)
		}
	}
}

func TestGoAwayLeadsElsewhereInTime(t *testing.T) {
	a, b := newFakeEdge(t), newFakeEdge(t)
	// Inline: what came with the GoAway is handled before the time to leave is looked at, however
	// late that is.
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{a.addr()}, Inline: true})
	got := newSeqLog()
	start(t, s, "room/a", got.handle, WithAck())
	c := a.welcome()
	c.subscribed(7, 0, false)
	began := time.Now()
	c.sendAll(
		sent{wirev1.FrameType_FRAME_TYPE_GO_AWAY, &wirev1.GoAway{
			Code: wirev1.Code_CODE_DRAINING, ReconnectAfterMs: 150, Addresses: []string{b.addr()},
		}},
		// still under way
		sent{wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "room/a", Seq: 1}},
	)
	c.ackedThrough("room/a", 1)
	c2 := b.welcome()
	if d := time.Since(began); d < 150*time.Millisecond {
		t.Fatalf("came back after %v, asked for 150 ms", d)
	}
	if p := c2.subscribed(7, 1, true).GetPositions(); len(p) != 1 || p[0].GetSeq() != 1 {
		t.Fatalf("resumed with %v", p)
	}
	c2.message("room/a", 2, 0)
	got.wait(t, 1, 2)
}

func TestTriesTheNextAddress(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{nobody, e.addr()}, MinBackoff: time.Hour})
	sub := start(t, s, "room/a", newSeqLog().handle)
	e.welcome().subscribed(1, 0, false)
	if err := sub.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestBlockedHandlerDoesNotStopPings(t *testing.T) {
	t.Parallel() // it waits for two heartbeats
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	inside, leave := make(chan struct{}), make(chan struct{})
	start(t, s, "room/a", func(context.Context, *Delivery) error {
		close(inside)
		<-leave
		return nil
	}, WithAck())
	c, _ := e.accept()
	// Long enough that a machine that stands still for seconds is not taken for a silent edge.
	c.send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Version: 1, HeartbeatMs: 5000})
	c.subscribed(7, 0, false)
	c.message("room/a", 1, 0)
	<-inside
	var rtt uint32
	for rtt == 0 { // the second Ping reports the first one's round trip
		p := c.ping()
		rtt = p.GetLastRttUs()
		c.send(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{SentAt: p.GetSentAt()})
	}
	close(leave)
	c.ackedThrough("room/a", 1)
	if s.Stats().RTT <= 0 {
		t.Fatal("no RTT")
	}
}

func TestRefusedSubscription(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	bad, slow := start(t, s, "secret/a", newSeqLog().handle), start(t, s, "room/a", newSeqLog().handle)
	c := e.welcome()
	for range 2 {
		m := c.subscribe()
		code := CodeForbidden
		if m.GetFilter() == "room/a" {
			code = CodeOverloaded
		}
		c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code(code), Ref: m.GetId(), RetryAfterMs: 5})
	}
	if err := bad.Ready(t.Context()); CodeOf(err) != CodeForbidden {
		t.Fatalf("Ready: %v", err)
	}
	c.subscribed(7, 0, false) // asked again
	if err := slow.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestUnsubscribe(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	got := newSeqLog()
	sub := start(t, s, "room/a", got.handle)
	c := e.welcome()
	id := c.subscribed(7, 0, false).GetId()
	c.message("room/a", 1, 0)
	got.wait(t, 1)
	done := make(chan error)
	go func() { done <- sub.Unsubscribe(context.Background()) }()
	var u wirev1.Unsubscribe
	c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &u)
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id})
	if err := <-done; err != nil || u.GetId() != id || sub.Err() != nil {
		t.Fatal(err, u.GetId(), sub.Err())
	}
	c.message("room/a", 2, 0) // nobody's any more
	c.close()
	c = e.welcome()
	start(t, s, "room/b", got.handle)
	if m := c.subscribe(); m.GetFilter() != "room/b" {
		t.Fatalf("subscribed %v again", m)
	}
	got.wait(t, 1)
}

func TestCloseSendsTheLastAcks(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, AckDelay: time.Hour})
	inside, leave := make(chan struct{}), make(chan struct{})
	sub := start(t, s, "room/a", func(context.Context, *Delivery) error {
		close(inside)
		<-leave
		return nil
	}, WithAck())
	c := e.welcome()
	c.subscribed(7, 0, false)
	c.message("room/a", 1, 0)
	<-inside
	closed := make(chan error)
	go func() { closed <- s.Close(in(t, 10*time.Second)) }()
	close(leave)
	c.ackedThrough("room/a", 1)
	c.close()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	<-sub.Done()
	if _, err := s.Start("x", newSeqLog().handle); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func TestHandlersPanicIsANack(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	start(t, s, "room/a", func(context.Context, *Delivery) error { panic("boom") }, WithAck())
	c := e.welcome()
	c.subscribed(7, 0, false)
	c.message("room/a", 1, 0)
	var n wirev1.Nack
	c.expect(wirev1.FrameType_FRAME_TYPE_NACK, &n)
	if n.GetSeq() != 1 {
		t.Fatal(&n)
	}
}

// ping reads frames until a Ping.
func (c *edgeConn) ping() *wirev1.Ping {
	c.t.Helper()
	p := &wirev1.Ping{}
	for {
		ft, body := c.any()
		if ft != wirev1.FrameType_FRAME_TYPE_PING {
			continue
		}
		if err := proto.Unmarshal(body, p); err != nil {
			c.t.Fatal(err)
		}
		return p
	}
}
