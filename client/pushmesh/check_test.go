package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/client/internal/limits"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// text is anything that a string may hold.
func text(most int) *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[a-z]{1,8}(/[a-z]{1,8}){0,2}`), rapid.String(), rapid.SampledFrom([]string{"", "\xff", "a/\xc3", "$x", "a//b", "+", "a/#", "\x00", "é"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(0, most), func(n int) string { return strings.Repeat("x", n) }),
	)
}

// anyMessage has any value in every field.
func anyMessage() *rapid.Generator[Message] {
	floats := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}))
	return rapid.Custom(func(t *rapid.T) Message {
		m := Message{
			Topic: text(300).Draw(t, "topic"), Payload: make([]byte, rapid.SampledFrom([]int{0, 1, 300 << 10, 1 << 20, 5 << 20}).Draw(t, "payload")),
			Headers: rapid.MapOfN(text(200), text(9000), 0, 70).Draw(t, "headers"), DedupeKey: text(300).Draw(t, "key"),
			Priority: rapid.SampledFrom([]uint32{0, 1, 9, 10, math.MaxUint32}).Draw(t, "priority"),
			TTL:      rapid.SampledFrom([]time.Duration{0, 1, -1, time.Hour, math.MaxInt64, math.MinInt64}).Draw(t, "ttl"),
			Features: rapid.MapOfN(text(70), floats, 0, 70).Draw(t, "features"), Vector: make([]float32, rapid.IntRange(0, 5000).Draw(t, "vector")),
			Traceparent: text(300).Draw(t, "traceparent"),
		}
		m.DeliverAt = rapid.SampledFrom([]time.Time{{}, time.Unix(-1, 0), time.Now(), time.Now().Add(400 * 24 * time.Hour), time.Unix(math.MaxInt32<<20, 0)}).Draw(t, "deliver_at")
		return m
	})
}

// mostly leaves fields of a message as they would be, so that one bad field is met alone too.
func mostly(m Message, keep uint) Message {
	for i, clear := range []func(){
		func() { m.Topic = "room/a" }, func() { m.Payload = nil }, func() { m.Headers = nil }, func() { m.DedupeKey = "" }, func() { m.Priority = 0 }, func() { m.TTL = 0 },
		func() { m.Features = nil }, func() { m.Vector = nil }, func() { m.Traceparent = "" }, func() { m.DeliverAt = time.Time{} },
	} {
		if keep&(1<<i) == 0 {
			clear()
		}
	}
	return m
}

// Whatever is published is answered, and so is the good message behind it, by the same Producer
// from the first to the last.
func TestNoMessageStopsAProducer(t *testing.T) {
	r := newFakeRouter(t)
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	good := 0
	rapid.Check(t, func(t *rapid.T) {
		m := mostly(anyMessage().Draw(t, "message"), rapid.Uint().Draw(t, "kept"))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		answered := make(chan error, 1)
		if err := p.PublishAsync(ctx, m, func(_ Result, err error) { answered <- err }); err != nil {
			answered <- err
		}
		good++
		res, err := p.Publish(ctx, Message{Topic: "room/good", Payload: fmt.Append(nil, good)})
		if err != nil || res.Seq != uint64(good) {
			t.Fatalf("the good message behind %q was answered %+v, %v", m.Topic, res, err)
		}
		select {
		case err := <-answered:
			var e *Error
			if err != nil && (!errors.As(err, &e) || e.Retryable() || e.Unknown || e.Message == "") {
				t.Fatalf("refused with %v, want what is wrong", err)
			}
		case <-ctx.Done():
			t.Fatal("no answer")
		}
	})
	if log := r.log("room/good"); len(log) != good {
		t.Fatalf("%d good messages arrived, want %d", len(log), good)
	}
}

// Likewise over a subscriber's connection, which stays.
func TestNoMessageStopsASubscriber(t *testing.T) {
	e := &scriptEdge{}
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{"edge"}, Dial: e.dial})
	rapid.Check(t, func(t *rapid.T) {
		m := mostly(anyMessage().Draw(t, "message"), rapid.Uint().Draw(t, "kept"))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := s.Publish(ctx, ClientMessage{Topic: m.Topic, Payload: m.Payload, Headers: m.Headers, DedupeKey: m.DedupeKey})
		var refused *Error
		if err != nil && (!errors.As(err, &refused) || refused.Retryable() || refused.Unknown || refused.Message == "") {
			t.Fatalf("refused with %v, want what is wrong", err)
		}
		if _, err := s.Publish(ctx, ClientMessage{Topic: "room/good"}); err != nil {
			t.Fatalf("the good message behind %q: %v", m.Topic, err)
		}
	})
	if st := s.Stats(); st.Connects != 1 {
		t.Fatalf("%d connections", st.Connects)
	}
}

// At its bounds a message is taken; one more is refused, with the field's name.
func TestBoundsOfAMessage(t *testing.T) {
	headers := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint(i)] = ""
		}
		return m
	}
	features := func(n int) map[string]float64 {
		m := map[string]float64{}
		for i := range n {
			m[fmt.Sprint(i)] = 0
		}
		return m
	}
	for name, c := range map[string]struct {
		good, bad Message
		code      Code
	}{
		"topic ":     {Message{Topic: strings.Repeat("x", 255)}, Message{Topic: strings.Repeat("x", 256)}, CodeBadTopic},
		"level":      {Message{Topic: "a/b"}, Message{Topic: "a/b/"}, CodeBadTopic},
		"wildcard":   {Message{Topic: "a"}, Message{Topic: "a/+"}, CodeBadTopic},
		"control":    {Message{Topic: "a b"}, Message{Topic: "a\tb"}, CodeBadTopic},
		"own":        {Message{Topic: "a/$"}, Message{Topic: "$a"}, CodeForbidden},
		"Priority":   {Message{Priority: 9}, Message{Priority: 10}, CodeInvalidArgument},
		"DedupeKey":  {Message{DedupeKey: strings.Repeat("x", 256)}, Message{DedupeKey: strings.Repeat("x", 257)}, CodeInvalidArgument},
		"DedupeKey ": {Message{DedupeKey: "é"}, Message{DedupeKey: "\xe9"}, CodeInvalidArgument},
		"TTL":        {Message{TTL: 1}, Message{TTL: -1}, CodeInvalidArgument},
		"DeliverAt":  {Message{DeliverAt: time.UnixMicro(1)}, Message{DeliverAt: time.UnixMicro(0)}, CodeInvalidArgument},
		"Headers":    {Message{Headers: headers(64)}, Message{Headers: headers(65)}, CodeInvalidArgument},
		"Headers ":   {Message{Headers: map[string]string{"k": strings.Repeat("x", 8191)}}, Message{Headers: map[string]string{"k": strings.Repeat("x", 8192)}}, CodeInvalidArgument},
		"Headers: ":  {Message{Headers: map[string]string{"k": ""}}, Message{Headers: map[string]string{"": "v"}}, CodeInvalidArgument},
		"Headers:: ": {Message{Headers: map[string]string{"é": "é"}}, Message{Headers: map[string]string{"\xff": "v"}}, CodeInvalidArgument},
		":Headers: ": {Message{Headers: map[string]string{"k": "é"}}, Message{Headers: map[string]string{"k": "\xff"}}, CodeInvalidArgument},
		"Features":   {Message{Features: features(64)}, Message{Features: features(65)}, CodeInvalidArgument},
		"Features: ": {Message{Features: map[string]float64{strings.Repeat("x", 64): 1}}, Message{Features: map[string]float64{strings.Repeat("x", 65): 1}}, CodeInvalidArgument},
		"Vector":     {Message{Vector: make([]float32, 4096)}, Message{Vector: make([]float32, 4097)}, CodeInvalidArgument},
		"Payload": {
			Message{Payload: make([]byte, limits.MaxPayload)}, Message{Payload: make([]byte, limits.MaxPayload+1)}, CodePayloadTooLarge,
		},
	} {
		for _, m := range []*Message{&c.good, &c.bad} {
			if m.Topic == "" {
				m.Topic = "room/a"
			}
		}
		if e := c.good.check(); e != nil {
			t.Errorf("%s: %v", name, e)
		}
		switch e := c.bad.check(); {
		case e == nil:
			t.Errorf("%s: one too many was taken", name)
		case e.Code != c.code || !strings.Contains(e.Message, strings.Trim(name, ": ")) && c.code == CodeInvalidArgument:
			t.Errorf("%s: %v", name, e)
		}
	}
}

// The longest frame is the edge's to say. What is longer is refused alone: the edge would close the
// connection, for good.
func TestAFrameThatTheEdgeDoesNotTake(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c := e.welcome() // takes 1 MiB
	if _, err := s.Publish(t.Context(), ClientMessage{Topic: "room/a", Payload: make([]byte, 1<<20)}); CodeOf(err) != CodeFrameTooLarge {
		t.Fatal(err)
	}
	if err := check(t.Context(), s, strings.Repeat("x", 1<<20)); CodeOf(err) != CodeFrameTooLarge {
		t.Fatal(err)
	}
	sub := start(t, s, "room/a", func(context.Context, *Delivery) error { return nil }, WithWhere(strings.Repeat("x", 1<<20)))
	if err := sub.Ready(t.Context()); CodeOf(err) != CodeFrameTooLarge {
		t.Fatal(err)
	}
	good := publishing1(s, ClientMessage{Topic: "room/a"})
	c.send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: c.publish().GetId(), Seq: 1})
	if p := <-good; p.err != nil {
		t.Fatal(p)
	}
}

// A callback may be missing.
func TestPublishAsyncWithoutACallback(t *testing.T) {
	r := newFakeRouter(t)
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	if err := p.PublishAsync(t.Context(), Message{Topic: "room/a"}, nil); err != nil {
		t.Fatal(err)
	}
	flush(t, p)
	if log := r.log("room/a"); len(log) != 1 {
		t.Fatal(log)
	}
}

// A topic beyond those that a producer id numbers waits for nobody, and is not refused where
// nothing may wait.
func TestATopicTooManyWaitsForNobody(t *testing.T) {
	for _, maxWait := range []time.Duration{0, patience} {
		r := newFakeRouter(t)
		r.decide = func(it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
			if it.GetMessage().GetTopic() == "room/stuck" {
				return refusal(CodeUnavailable, time.Millisecond)
			}
			return nil
		}
		p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}, MaxWait: maxWait})
		p.most = 3
		if err := p.PublishAsync(t.Context(), Message{Topic: "room/stuck"}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for i := range 20 {
			if _, err := p.Publish(ctx, Message{Topic: fmt.Sprint("room/", i)}); err != nil {
				t.Fatalf("topic %d, MaxWait %v: %v", i, maxWait, err)
			}
		}
		p.mu.Lock()
		if n := len(p.topics); n > 4 {
			t.Errorf("%d topics are kept, want the stuck one and 3", n)
		}
		p.mu.Unlock()
	}
}

// However often the id changes, and whatever breaks: each message is in its topic's log once, in
// order.
func TestOnceAndInOrderUnderManyIDs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newFakeRouter(t)
		defer r.stop()
		chance := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 200).Draw(rt, "chance")
		var at int
		next := func() int { // by the router, one at a time; all is well in the end
			if at++; at > 300 {
				return 9
			}
			return chance[at%len(chance)]
		}
		r.decide = func(*pushmeshv1.PublishStreamRequest_Item) *streamResult {
			if next() == 0 {
				return refusal(CodeOverloaded, time.Microsecond)
			}
			return nil
		}
		r.drop = func(*pushmeshv1.PublishStreamRequest_Item) bool {
			first := next() == 1
			return first && next() == 1
		}
		p, err := NewProducer(ProducerConfig{Addrs: []string{r.addr}, MinBackoff: time.Microsecond, MaxBackoff: time.Millisecond})
		if err != nil {
			rt.Fatal(err)
		}
		p.most = rapid.IntRange(1, 5).Draw(rt, "topics of an id")
		topics := rapid.SliceOfN(rapid.IntRange(0, 7), 1, 120).Draw(rt, "topics")
		want := map[string]int{}
		var mu sync.Mutex
		for _, n := range topics {
			topic := fmt.Sprint("room/", n)
			err := p.PublishAsync(t.Context(), Message{Topic: topic, Payload: fmt.Append(nil, want[topic])}, func(_ Result, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(topic, ": ", err)
				}
			})
			if err != nil {
				rt.Fatal(err)
			}
			want[topic]++
		}
		flush(t, p)
		if err := p.Close(in(t, 10*time.Second)); err != nil {
			rt.Fatal(err)
		}
		for topic, n := range want {
			log := r.log(topic)
			for i := range max(len(log), n) {
				if i >= len(log) || i >= n || log[i] != fmt.Sprint(i) {
					rt.Fatalf("%s holds %v, want 0 to %d", topic, log, n-1)
				}
			}
		}
	})
}

// What a request holds is bounded by all that messages have, not by payloads alone: a router takes
// 64 MiB.
func TestARequestIsBoundedByHeadersToo(t *testing.T) {
	m := Message{Topic: "room/a", Headers: map[string]string{"k": strings.Repeat("x", 8000)}, Vector: make([]float32, 4000), Features: map[string]float64{"f": 1}, DedupeKey: "k"}
	if have, want := m.size(), proto.Size(request(m)); have < want {
		t.Fatalf("counted as %d bytes, it has %d", have, want)
	}
	r := newFakeRouter(t)
	r.inFlight = "1000"
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	for range 500 {
		if err := p.PublishAsync(t.Context(), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, p)
	r.mu.Lock()
	defer r.mu.Unlock()
	if most := maxBatchBytes/m.size() + 1; r.most > most {
		t.Fatalf("%d messages in one request, want %d at most", r.most, most)
	}
}
