package pushmesh

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type publishedResult struct {
	result Result
	err    error
}

func publishing1(s *Subscriber, m ClientMessage) chan publishedResult {
	done := make(chan publishedResult, 1)
	go func() {
		r, err := s.Publish(context.Background(), m)
		done <- publishedResult{r, err}
	}()
	return done
}

func (c *edgeConn) publish() *wirev1.Publish {
	c.t.Helper()
	m := &wirev1.Publish{}
	c.expect(wirev1.FrameType_FRAME_TYPE_PUBLISH, m)
	return m
}

func TestPublishesOverTheConnection(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	good := publishing1(s, ClientMessage{Topic: "room/a", Payload: []byte("hi"), Headers: map[string]string{"k": "v"}})
	c := e.welcome() // waits for the connection
	m := c.publish()
	if m.GetTopic() != "room/a" || string(m.GetPayload()) != "hi" || m.GetHeaders()["k"] != "v" || m.GetId() == 0 {
		t.Fatal(m)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: m.GetId(), Seq: 5, Epoch: 7, MessageId: []byte("one of 16 bytes.")})
	if p := <-good; p.err != nil || p.result.Seq != 5 || p.result.Epoch != 7 || p.result.ID != ID([]byte("one of 16 bytes.")) {
		t.Fatal(p)
	}
	bad := publishing1(s, ClientMessage{Topic: "room/a"})
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_RATE_LIMITED, Ref: c.publish().GetId(), RetryAfterMs: 20})
	var refused *Error
	if p := <-bad; !errors.As(p.err, &refused) || refused.Code != CodeRateLimited || refused.RetryAfter != 20*time.Millisecond || refused.Unknown {
		t.Fatal(p)
	}
	if _, err := s.Publish(t.Context(), ClientMessage{Topic: "\xff"}); CodeOf(err) != CodeBadTopic {
		t.Fatalf("a topic that is not UTF-8: %v", err)
	}
}

func TestPublishThroughABreak(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c := e.welcome()
	once := publishing1(s, ClientMessage{Topic: "room/a", Payload: []byte("once")})
	c.publish()
	keyed := publishing1(s, ClientMessage{Topic: "room/a", DedupeKey: "k"})
	c.publish()
	// beyond the window of 2
	third := publishing1(s, ClientMessage{Topic: "room/a", Payload: []byte("third")})
	c.close()
	var unknown *Error
	if p := <-once; !errors.As(p.err, &unknown) || !unknown.Unknown {
		t.Fatal(p)
	}
	c = e.welcome()
	for range 2 {
		m := c.publish()
		if m.GetDedupeKey() != "k" && string(m.GetPayload()) != "third" {
			t.Fatalf("%v was published again", m)
		}
		c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: m.GetId(), Seq: 9, Duplicate: m.GetDedupeKey() != ""})
	}
	if p := <-keyed; p.err != nil || !p.result.Duplicate {
		t.Fatal(p)
	}
	if p := <-third; p.err != nil {
		t.Fatal(p)
	}
	last := publishing1(s, ClientMessage{Topic: "room/a"})
	c.publish()
	go func() { _ = s.Close(in(t, 10*time.Second)) }()
	if p := <-last; p.err == nil {
		t.Fatal("answered by nobody")
	}
}

// What is published again comes in the order of the calls, and before what was never sent.
func TestPublishesAreRepeatedInOrder(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	welcome := &wirev1.Welcome{Version: 1, HeartbeatMs: 30_000, MaxFrame: 1 << 20, PublishWindow: 6}
	c := e.welcomeWith(welcome)
	var all []chan publishedResult
	key := func(i int) string { return string(rune('a' + i)) }
	for i := range 6 {
		all = append(all, publishing1(s, ClientMessage{Topic: "room/a", DedupeKey: key(i)}))
		if m := c.publish(); m.GetDedupeKey() != key(i) {
			t.Fatal(m)
		}
	}
	// nobody waits for it any more: it is not published again
	ctx, cancel := context.WithCancel(t.Context())
	c.close()
	c = e.welcomeWith(welcome)
	late := failed(func(context.Context) error {
		_, err := s.Publish(ctx, ClientMessage{Topic: "room/a", DedupeKey: "late"})
		return err
	})
	for i := range 6 {
		m := c.publish()
		if m.GetDedupeKey() != key(i) {
			t.Fatalf("%v was published again before %q", m, key(i))
		}
		if i == 0 {
			c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: m.GetId(), Seq: 1})
		}
	}
	if m := c.publish(); m.GetDedupeKey() != "late" {
		t.Fatal(m)
	}
	cancel()
	var open *Error
	if err := <-late; !errors.Is(err, context.Canceled) || !errors.As(err, &open) || !open.Unknown {
		t.Fatal(err)
	}
	c.close()
	c = e.welcomeWith(welcome)
	for i := 1; i < 6; i++ {
		m := c.publish()
		if m.GetDedupeKey() != key(i) {
			t.Fatalf("%v was published again before %q", m, key(i))
		}
		c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: m.GetId(), Seq: uint64(i + 1)})
	}
	for i, done := range all {
		if p := <-done; p.err != nil || p.result.Seq != uint64(i+1) {
			t.Fatal(i, p)
		}
	}
}

// A new token is answered for the connection that there is, and for no other.
func TestRefreshToken(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	if _, err := s.RefreshToken(t.Context(), "early"); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	c := e.welcome()
	if err := s.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	type refreshed struct {
		at  time.Time
		err error
	}
	refresh := func(token string) (uint32, chan refreshed) {
		t.Helper()
		done := make(chan refreshed, 1)
		go func() {
			at, err := s.RefreshToken(context.Background(), token)
			done <- refreshed{at, err}
		}()
		m := &wirev1.RefreshToken{}
		if c.expect(wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, m); m.GetToken() != token {
			t.Fatal(m)
		}
		return m.GetId(), done
	}
	id, done := refresh("good")
	c.send(wirev1.FrameType_FRAME_TYPE_REFRESHED, &wirev1.Refreshed{Id: id, ExpiresAt: 1_795_000_600_000_000})
	if x := <-done; x.err != nil || !x.at.Equal(time.Unix(1_795_000_600, 0)) {
		t.Fatal(x)
	}
	id, done = refresh("eve's")
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_FORBIDDEN, Ref: id})
	if x := <-done; !errors.Is(x.err, ErrForbidden) {
		t.Fatal(x)
	}
	_, done = refresh("cut off")
	c.close()
	if x := <-done; !errors.Is(x.err, ErrUnavailable) {
		t.Fatal(x)
	}
}

func TestPublishWindow(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c := e.welcome() // allows 2
	results := []chan publishedResult{publishing1(s, ClientMessage{Topic: "a"}), publishing1(s, ClientMessage{Topic: "a"}), publishing1(s, ClientMessage{Topic: "a"})}
	first := c.publish()
	c.publish()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Publish(ctx, ClientMessage{Topic: "a"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("beyond the window: %v", err)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: first.GetId(), Seq: 1})
	c.publish() // there is room again
	c.close()
	answered := 0
	for _, r := range results {
		if p := <-r; p.err == nil {
			answered++
		}
	}
	if answered != 1 {
		t.Fatalf("%d answered", answered)
	}
}

func TestWildcardResumesEveryTopic(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	got := newSeqLog()
	start(t, s, "room/#", got.handle, WithAck())
	c := e.welcome()
	m := c.subscribe()
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Positions: []*wirev1.Subscribed_TopicPosition{
		{Topic: "room/a", Epoch: 7, Head: 10, Recovered: true}, {Topic: "room/b", Epoch: 7, Head: 20, Recovered: true},
	}})
	c.message("room/a", 11, 0)
	c.message("room/new", 1, 0) // appeared later: the edge has not named its epoch
	c.message("room/tick", 0, 0)
	c.ackedThrough("room/new", 1)
	c.close()
	c = e.welcome()
	positions := map[string]*wirev1.Position{}
	for _, p := range c.subscribe().GetPositions() {
		positions[p.GetTopic()] = p
	}
	for _, want := range []*wirev1.Position{{Topic: "room/a", Epoch: 7, Seq: 11}, {Topic: "room/b", Epoch: 7, Seq: 20}, {Topic: "room/new", Seq: 1}} {
		if !proto.Equal(positions[want.GetTopic()], want) {
			t.Errorf("resumed with %v, want %v", positions[want.GetTopic()], want)
		}
	}
	if len(positions) != 3 {
		t.Errorf("resumed %v", positions)
	}
	got.wait(t, 11, 1, 0)
}

func TestTooManyTopicsResumeLive(t *testing.T) {
	e := newFakeEdge(t)
	gaps := make(chan Gap, 1)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, OnGap: func(g Gap) { gaps <- g }})
	start(t, s, "#", newSeqLog().handle)
	c := e.welcome()
	m := &wirev1.Subscribed{Id: c.subscribe().GetId()}
	for i := range maxPositions + 1 {
		m.Positions = append(m.Positions, &wirev1.Subscribed_TopicPosition{Topic: "t/" + string(rune('0'+i)), Epoch: 7, Head: 1, Recovered: true})
	}
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, m)
	c.close()
	c = e.welcome()
	if again := c.subscribe(); len(again.GetPositions()) != 0 || again.GetStart() != wirev1.Start_START_LIVE {
		t.Fatalf("%d positions", len(again.GetPositions()))
	}
	if g := <-gaps; g.Code != CodeTooManyTopics || g.Filter != "#" {
		t.Fatal(g)
	}
}
