package subscribe

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

const (
	frameAck         = wirev1.FrameType_FRAME_TYPE_ACK
	frameError       = wirev1.FrameType_FRAME_TYPE_ERROR
	frameGoAway      = wirev1.FrameType_FRAME_TYPE_GO_AWAY
	frameMessage     = wirev1.FrameType_FRAME_TYPE_MESSAGE
	frameNack        = wirev1.FrameType_FRAME_TYPE_NACK
	framePing        = wirev1.FrameType_FRAME_TYPE_PING
	framePong        = wirev1.FrameType_FRAME_TYPE_PONG
	frameSubscribe   = wirev1.FrameType_FRAME_TYPE_SUBSCRIBE
	frameUnsubscribe = wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE
)

// A whole conversation: requests reach the edge as they are, and what the edge says the backend, in
// order.
func TestAConversation(t *testing.T) {
	w := newWorld(t, nil)
	e := w.edge("e1")
	c := w.open(hello(&wirev1.Hello{ClientId: "worker", Session: "main", ReceiveWindow: 7, SessionTtlS: 60, Agent: "test"}, false))
	p := e.welcome(11)
	if h := p.hello; h.GetClientId() != "worker" || h.GetSession() != "main" || h.GetReceiveWindow() != 7 || h.GetSessionTtlS() != 60 || h.GetAgent() != "test" {
		t.Errorf("hello: %v", h)
	}
	if got := c.must().GetWelcome(); got.GetConnectionId() != 11 || got.GetEdge() != "e1" || got.GetClientId() != "worker" {
		t.Errorf("welcome: %v", got)
	}
	want := &wirev1.Subscribe{Id: 1, Filter: "a/+", Ack: true, Positions: []*wirev1.Position{{Topic: "a/b", Epoch: 3, Seq: 4}}}
	c.send(subscribe(want))
	got := &wirev1.Subscribe{}
	if p.expect(frameSubscribe, got); !proto.Equal(got, want) {
		t.Errorf("subscribe: %v", got)
	}
	p.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: 1, Head: 9, Recovered: true})
	p.send(frameMessage, &wirev1.Message{Topic: "a/b", Seq: 5, Payload: make([]byte, 100_000)})
	p.send(wirev1.FrameType_FRAME_TYPE_PROGRESS, &wirev1.Progress{Topic: "a/b", From: 6, To: 7, Code: wirev1.Code_CODE_RETENTION})
	p.send(wirev1.FrameType(0x90), &wirev1.Pong{}) // of a later edition
	p.send(frameError, &wirev1.Error{Code: wirev1.Code_CODE_BAD_TOPIC, Ref: 2})
	if s := c.must().GetSubscribed(); s.GetHead() != 9 || !s.GetRecovered() {
		t.Errorf("subscribed: %v", s)
	}
	if m := c.must().GetMessage(); m.GetSeq() != 5 || len(m.GetPayload()) != 100_000 {
		t.Errorf("message %d of %d bytes", m.GetSeq(), len(m.GetPayload()))
	}
	if g := c.must().GetProgress(); g.GetTo() != 7 {
		t.Errorf("progress: %v", g)
	}
	if no := c.must().GetError(); no.GetRef() != 2 || no.GetCode() != wirev1.Code_CODE_BAD_TOPIC {
		t.Errorf("error: %v", no)
	}
	c.send(ack(0, &wirev1.Ack_Entry{Topic: "a/b", Seq: 5}))
	c.send(nack(11, &wirev1.Nack{Topic: "a/b", Seq: 6, DelayMs: 1}))
	c.send(ack(10, &wirev1.Ack_Entry{Topic: "stale", Seq: 5}))
	c.send(unsubscribe(1))
	c.send(&pushmeshv1.SubscribeRequest{Request: &pushmeshv1.SubscribeRequest_Ping{Ping: &wirev1.Ping{SentAt: 5}}})
	acked, nacked, left, ping := &wirev1.Ack{}, &wirev1.Nack{}, &wirev1.Unsubscribe{}, &wirev1.Ping{}
	p.expect(frameAck, acked)
	p.expect(frameNack, nacked)
	p.expect(frameUnsubscribe, left)
	p.expect(framePing, ping)
	if len(acked.GetEntries()) != 1 || acked.GetEntries()[0].GetSeq() != 5 || nacked.GetSeq() != 6 || left.GetId() != 1 {
		t.Errorf("got %v, %v, %v", acked, nacked, left)
	}
	p.send(framePong, &wirev1.Pong{SentAt: ping.GetSentAt()})
	if pong := c.must().GetPong(); pong.GetSentAt() != 5 {
		t.Errorf("pong: %v", pong)
	}
	c.send(ack(0, &wirev1.Ack_Entry{Topic: "a/b", Seq: 6}))
	if err := c.rpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if types := p.hungUp(); !slices.Equal(types, []wirev1.FrameType{frameAck}) {
		t.Errorf("before it hung up the router sent %v", types)
	}
	c.ends(wirev1.Code_CODE_OK)
}

// What can't be is refused with a reason, before or after Welcome.
func TestWrongRequestsEndTheStream(t *testing.T) {
	many := make([]*wirev1.Ack_Entry, maxEntries+1)
	for i := range many {
		many[i] = &wirev1.Ack_Entry{}
	}
	long := string(make([]byte, 13000))
	const invalid = wirev1.Code_CODE_INVALID_ARGUMENT
	for name, c := range map[string]struct {
		first, second *pushmeshv1.SubscribeRequest
		want          wirev1.Code
	}{
		"no hello":       {subscribe(&wirev1.Subscribe{Id: 1}), nil, invalid},
		"nothing":        {&pushmeshv1.SubscribeRequest{}, nil, invalid},
		"a version":      {hello(&wirev1.Hello{Version: 2}, false), nil, invalid},
		"a ticket":       {hello(&wirev1.Hello{Ticket: secret}, false), nil, invalid},
		"a long hello":   {hello(&wirev1.Hello{Agent: long}, false), nil, wirev1.Code_CODE_FRAME_TOO_LARGE},
		"second hello":   {hello(nil, false), hello(nil, false), invalid},
		"second nothing": {hello(nil, false), &pushmeshv1.SubscribeRequest{}, invalid},
		"subscribe 0":    {hello(nil, false), subscribe(&wirev1.Subscribe{}), invalid},
		"unsubscribe 0":  {hello(nil, false), unsubscribe(0), invalid},
		"many acks":      {hello(nil, false), ack(0, many...), invalid},
		"too long":       {hello(nil, false), subscribe(&wirev1.Subscribe{Id: 1, Where: string(make([]byte, 1<<20))}), wirev1.Code_CODE_FRAME_TOO_LARGE},
		"move, live":     {hello(nil, true), subscribe(&wirev1.Subscribe{Id: 1, Filter: "a"}), invalid},
		"move, ack of 0": {hello(nil, true), ack(0, &wirev1.Ack_Entry{}), invalid},
		"move, nack 0":   {hello(nil, true), nack(0, &wirev1.Nack{}), invalid},
		"move, much": {
			hello(nil, true), subscribe(&wirev1.Subscribe{Id: 1, Group: "g", Where: string(make([]byte, 1<<20-100))}), wirev1.Code_CODE_OK,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			e := w.edge("e1")
			s := w.open(c.first)
			if c.second != nil {
				p := e.welcome(1)
				s.must()
				s.send(c.second)
				if c.want == wirev1.Code_CODE_OK { // once it may be so much, and no more
					p.expect(frameSubscribe, &wirev1.Subscribe{})
					next := proto.CloneOf(c.second)
					next.GetSubscribe().Id = 2
					s.send(next)
					c.want = wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS
				}
				go p.hungUp()
			}
			s.ends(c.want)
		})
	}
}

// Where the connection ends, the stream ends with the edge's reason, and reports whether to come
// back.
func TestTheEdgesReasonsArePassedOn(t *testing.T) {
	for _, want := range []wirev1.Code{wirev1.Code_CODE_SESSION_TAKEN_OVER, wirev1.Code_CODE_ACK_TIMEOUT, wirev1.Code_CODE_SLOW_CONSUMER, wirev1.Code_CODE_FORBIDDEN} {
		for _, move := range []bool{false, true} { // none of these is the edge's own trouble
			w := newWorld(t, nil)
			e := w.edge("e1")
			c := w.open(hello(nil, move))
			p := e.welcome(1)
			p.send(frameError, &wirev1.Error{Code: want, Message: "why"})
			if got, _ := c.ends(want); got != "why" {
				t.Errorf("%v: %q", want, got)
			}
		}
	}
	t.Run("refused", func(t *testing.T) {
		w := newWorld(t, nil)
		w.open(hello(nil, false)).ends(wirev1.Code_CODE_UNAVAILABLE) // there is no edge
		e := w.edge("e1")
		c := w.open(hello(&wirev1.Hello{Token: "t"}, false))
		e.accept().send(frameError, &wirev1.Error{Code: wirev1.Code_CODE_UNSUPPORTED, Message: "no tokens"})
		c.ends(wirev1.Code_CODE_UNSUPPORTED)
	})
	t.Run("gone", func(t *testing.T) {
		w := newWorld(t, nil)
		e := w.edge("e1")
		c := w.open(hello(nil, false))
		p := e.welcome(1)
		c.must()
		_ = p.conn.Close()
		c.ends(wirev1.Code_CODE_UNAVAILABLE)
	})
	t.Run("draining", func(t *testing.T) {
		w := newWorld(t, nil)
		e := w.edge("e1")
		c := w.open(hello(nil, false))
		p := e.welcome(1)
		c.must()
		p.send(frameGoAway, &wirev1.GoAway{Code: wirev1.Code_CODE_DRAINING, ReconnectAfterMs: 700, Addresses: []string{"10.0.0.1:7400"}})
		if g := c.must().GetGoAway(); g.GetReconnectAfterMs() != 700 || len(g.GetAddresses()) > 0 {
			t.Errorf("go_away: %v", g)
		}
		c.send(ack(0, &wirev1.Ack_Entry{Topic: "a", Seq: 1}))
		p.expect(frameAck, &wirev1.Ack{})
		_ = p.conn.Close()
		if _, again := c.ends(wirev1.Code_CODE_DRAINING); again != 700*time.Millisecond {
			t.Errorf("again after %v", again)
		}
	})
}

// An edge that does not answer, refuses for now, or is about to stop is passed over for another
// one.
func TestAnotherEdgeIsTried(t *testing.T) {
	w := newWorld(t, nil)
	dead, full, late, good := w.edge("dead"), w.edge("full"), w.edge("late"), w.edge("good")
	_ = dead.ln.Close()
	full.refuses = true
	w.live(append(w.Homes(), interest.Home{Edge: interest.Edge{ID: "leaving"}, Draining: true})...)
	go func() {
		for {
			select {
			case c := <-late.conns:
				b, _ := wire.Append(nil, frameError, &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: 1000})
				_, _ = c.Write(b)
				_ = c.Close()
			case <-late.done:
				return
			}
		}
	}()
	for i := range uint64(10) {
		c := w.open(hello(nil, false))
		p := good.welcome(i + 1)
		if got := c.must().GetWelcome(); got.GetEdge() != "good" {
			t.Fatalf("welcome: %v", got)
		}
		c.cancel()
		p.hungUp()
	}
}

func TestFewConnectionsArePreferred(t *testing.T) {
	homes := []interest.Home{{Edge: interest.Edge{ID: "a"}, Connections: 100}, {Edge: interest.Edge{ID: "b"}}, {Edge: interest.Edge{ID: "c"}, Draining: true}}
	for range 20 {
		if got := order(homes, nobody); len(got) != 2 || got[0].ID != "b" {
			t.Fatalf("order %v", got)
		}
	}
	if got := order(nil, nobody); len(got) != 0 {
		t.Fatalf("order of nothing: %v", got)
	}
}

// While the backend takes nothing the router reads nothing: what there is waits in sockets, and no
// more.
func TestASlowConsumerHoldsItsEdgeBack(t *testing.T) {
	const n, size = 512, 64 << 10 // 32 MiB
	w := newWorld(t, nil)
	e := w.edge("e1")
	c := w.open(hello(nil, false))
	p := e.welcome(1)
	c.must()
	var sent atomic.Int64
	wrote := make(chan error, 1)
	go func() {
		payload := make([]byte, size)
		for i := range uint64(n) {
			b, err := wire.Append(nil, frameMessage, &wirev1.Message{Topic: "a", Seq: i + 1, Payload: payload})
			if err == nil {
				_, err = p.conn.Write(b)
			}
			if err != nil {
				wrote <- err
				return
			}
			sent.Add(1)
		}
		wrote <- nil
	}()
	// Until nothing moves any more: what is judged is how much there is then.
	for last, still := int64(-1), 0; still < 10; <-time.After(20 * time.Millisecond) {
		now := sent.Load()
		if still++; now != last {
			last, still = now, 0
		}
	}
	if got := sent.Load(); got > n/2 {
		t.Errorf("%d of %d messages left the edge while nobody took any", got, n)
	}
	for seq := uint64(1); seq <= n; seq++ {
		if m := c.must().GetMessage(); m.GetSeq() != seq {
			t.Fatalf("got %d, want %d", m.GetSeq(), seq)
		}
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
}

func TestLimits(t *testing.T) {
	caller := "a"
	w := newWorld(t, func(c *Config) { c.MaxStreams, c.MaxPerCaller = 3, 2 })
	w.service.cfg.Caller = nil
	var leave []func()
	for range 2 {
		l, err := w.service.enter(caller)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	if _, err := w.service.enter(caller); err == nil {
		t.Error("a third stream of one caller")
	}
	l, err := w.service.enter("b")
	if err != nil {
		t.Error(err)
	}
	if _, err := w.service.enter("c"); err == nil {
		t.Error("a fourth stream")
	}
	for _, l := range append(leave, l) {
		l()
	}
	if w.service.count() != 0 || len(w.service.callers) != 0 {
		t.Errorf("%d streams of %v are left", w.service.count(), w.service.callers)
	}
}

func TestADrainEndsStreams(t *testing.T) {
	w := newWorld(t, nil)
	e := w.edge("e1")
	c := w.open(hello(&wirev1.Hello{Session: "s"}, true))
	p := e.welcome(1)
	c.must()
	c.send(ack(1, &wirev1.Ack_Entry{Topic: "a", Seq: 1}))
	go p.hungUp()
	w.service.Drain()
	c.ends(wirev1.Code_CODE_DRAINING)
	w.open(hello(nil, false)).ends(wirev1.Code_CODE_DRAINING)
}
