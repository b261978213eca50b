package pushmesh

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// The tables of this file are wrong uses of the SDK, tried as a new user would, and what they must
// say. Those of the command are in cmd/pushmesh/internal/cli/firsthour*_test.go.

// ignore is a handler.
func ignore(context.Context, *Delivery) error { return nil }

// What can't work is refused where it is asked for: nothing is connected.
func TestFirstHourRefusals(t *testing.T) {
	subscriber := func(cfg SubscriberConfig) error {
		s, err := NewSubscriber(cfg)
		if err == nil {
			_ = s.Close(in(t, 10*time.Second))
		}
		return err
	}
	backend := func(cfg SubscriberConfig) error {
		s, err := NewBackend(cfg)
		if err == nil {
			_ = s.Close(in(t, 10*time.Second))
		}
		return err
	}
	producer := func(addr string) error {
		p, err := NewProducer(ProducerConfig{Addrs: []string{addr}})
		if err == nil {
			_ = p.Close(in(t, 10*time.Second))
		}
		return err
	}
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{nobody}})
	p, err := NewProducer(ProducerConfig{Addrs: []string{nobody}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close(in(t, time.Millisecond)) }()
	published := func(m Message) error { _, err := p.Publish(t.Context(), m); return err }
	started := func(h Handler, opts ...Option) error { _, err := s.Start("room/a", h, opts...); return err }
	for _, c := range []struct {
		row  string
		err  error
		want string
	}{
		{
			"address without port, subscriber", subscriber(SubscriberConfig{Addrs: []string{"127.0.0.1"}}),
			`pushmesh: SubscriberConfig.Addrs has "127.0.0.1", which must be host:port, like 127.0.0.1:7400`,
		},
		{
			"address with a scheme, subscriber", subscriber(SubscriberConfig{Addrs: []string{"tcp://127.0.0.1:7400"}}),
			`pushmesh: SubscriberConfig.Addrs has "tcp://127.0.0.1:7400", which must be host:port, like 127.0.0.1:7400`,
		},
		{
			"port beyond the last one, subscriber", subscriber(SubscriberConfig{Addrs: []string{"127.0.0.1:74000"}}),
			`pushmesh: SubscriberConfig.Addrs has "127.0.0.1:74000", which must be host:port, like 127.0.0.1:7400`,
		},
		{"port that is no number, producer", producer("127.0.0.1:no port"), `pushmesh: ProducerConfig.Addrs has "127.0.0.1:no port", which must be host:port, like 127.0.0.1:7401`},
		{"address without port, producer", producer("127.0.0.1"), `pushmesh: ProducerConfig.Addrs has "127.0.0.1", which must be host:port, like 127.0.0.1:7401`},
		{"address with a scheme, producer", producer("http://127.0.0.1:7401"), `pushmesh: ProducerConfig.Addrs has "http://127.0.0.1:7401", which must be host:port, like 127.0.0.1:7401`},
		{"what gRPC has a scheme for", producer("unix:/tmp/no.sock"), ""},
		{
			"address without port, backend", backend(SubscriberConfig{Addrs: []string{"127.0.0.1"}}),
			`pushmesh: SubscriberConfig.Addrs has "127.0.0.1", which must be host:port, like 127.0.0.1:7401`,
		},
		{
			"WebSocket of a backend", backend(SubscriberConfig{Addrs: []string{nobody}, WebSocket: true}),
			"pushmesh: SubscriberConfig.WebSocket is for connections to edges: NewBackend takes gRPC's dial options",
		},
		{
			"not UTF-8 in a Producer's message", published(Message{Topic: "room/a", Headers: map[string]string{"name": "a\xff"}}),
			`pushmesh: INVALID_ARGUMENT: Message.Headers: the name of "name" must not be empty, and name and value must be UTF-8`,
		},
		{"not UTF-8 in a Producer's key", published(Message{Topic: "room/a", DedupeKey: "\xff"}), `pushmesh: INVALID_ARGUMENT: Message.DedupeKey "\xff" is not UTF-8`},
		{"nil callback of PublishAsync", p.PublishAsync(t.Context(), Message{Topic: "room/a"}, nil), ""},
		{"nil handler", started(nil), `pushmesh: Handler of the subscription to "room/a" is nil`},
		{"nil option", started(ignore, nil), `pushmesh: Option 1 of the subscription to "room/a" is nil`},
		{
			"Session without ClientID", subscriber(SubscriberConfig{Addrs: []string{nobody}, Session: "phone"}),
			"pushmesh: SubscriberConfig.Session needs ClientID: a session belongs to its client, and an edge makes up another ClientID for every process",
		},
		{"Session without ClientID, with a Token", subscriber(SubscriberConfig{
			Addrs: []string{nobody}, Session: "phone", Token: func(context.Context) (string, error) { return "t", nil },
		}), ""},
		{"TTL below 0", published(Message{Topic: "room/a", TTL: -time.Second}), "pushmesh: INVALID_ARGUMENT: Message.TTL is -1s, it must be above 0, or 0 for none"},
		{
			"FromLast with FromEarliest", started(ignore, FromEarliest(), FromLast(3)),
			`pushmesh: FromLast is a second option that says where the subscription to "room/a" begins: give one of FromEarliest, FromLast, FromSeq and FromSession`,
		},
		{"FromEarliest twice", started(ignore, FromEarliest(), FromEarliest()), `pushmesh: FromEarliest is a second option that says where the subscription to "room/a" begins: give one of FromEarliest, FromLast, FromSeq and FromSession`},
	} {
		if c.err == nil && c.want != "" || c.err != nil && c.err.Error() != c.want {
			t.Errorf("%s: says %q, want %q", c.row, c.err, c.want)
		}
	}
}

// Whoever waits for a mesh that is not there learns why, and errors.Is still finds the context's
// end.
func TestFirstHourWrongAddresses(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	edge := newFakeEdge(t)
	// An edge ends the connection of whoever speaks something else.
	go func() {
		for c := range edge.conns {
			_, _ = c.br.Peek(4)
			c.close()
		}
	}()
	defer func() {
		edge.stop()
		close(edge.conns)
	}()
	router := newFakeRouter(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	subscribe := func(cfg SubscriberConfig) func(context.Context) error {
		return func(ctx context.Context) error {
			cfg.MinBackoff, cfg.MaxBackoff, cfg.Agent = time.Millisecond, time.Millisecond, t.Name()
			s, err := NewSubscriber(cfg)
			if err != nil {
				return err
			}
			defer func() { _ = s.Close(in(t, 10*time.Second)) }()
			_, err = s.Subscribe(ctx, "room/a", ignore)
			return err
		}
	}
	publish := func(addr string) func(context.Context) error {
		return func(ctx context.Context) error {
			p, err := NewProducer(ProducerConfig{Addrs: []string{addr}, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
			if err != nil {
				return err
			}
			defer func() { _ = p.Close(in(t, time.Millisecond)) }()
			_, err = p.Publish(ctx, Message{Topic: "room/a"})
			return err
		}
	}
	at := func(l net.Listener) string { return l.Addr().String() }
	for _, c := range []struct {
		row  string
		do   func(context.Context) error
		want string // and the end of the context
	}{
		{
			"nobody listens", subscribe(SubscriberConfig{Addrs: []string{nobody}}),
			"pushmesh: not subscribed: no connection: dial tcp 127.0.0.1:1: connect: connection refused",
		},
		{
			"a router's port", subscribe(SubscriberConfig{Addrs: []string{router.addr}}),
			"pushmesh: not subscribed: " + router.addr + " accepts connections but does not speak pushmesh: is it an edge's port (7400)?",
		},
		{
			"an HTTP port", subscribe(SubscriberConfig{Addrs: []string{at(web.Listener)}, DialTimeout: 50 * time.Millisecond}),
			"pushmesh: not subscribed: " + at(web.Listener) + " accepts connections but does not answer: is it an edge's port (7400)?",
		},
		{
			"a port where nobody answers", subscribe(SubscriberConfig{Addrs: []string{at(silent)}, DialTimeout: 50 * time.Millisecond}),
			"pushmesh: not subscribed: " + at(silent) + " accepts connections but does not answer: is it an edge's port (7400)?",
		},
		{
			"TLS where there is none", subscribe(SubscriberConfig{Addrs: []string{at(web.Listener)}, TLS: &tls.Config{ServerName: "edge", MinVersion: tls.VersionTLS12}}),
			"pushmesh: not subscribed: no connection to " + at(web.Listener) + ": the TLS handshake failed: tls: first record does not look like a TLS handshake",
		},
		{"an unknown host", subscribe(SubscriberConfig{Addrs: []string{"nowhere.invalid:7400"}}), "pushmesh: not subscribed: no connection: dial tcp: lookup nowhere.invalid"},
		{
			"NewBackend to an edge", subscribe(SubscriberConfig{Addrs: []string{edge.addr()}, Dial: throughRouter()}),
			"pushmesh: not subscribed: UNAVAILABLE: " + edge.addr() + " accepts connections but does not speak gRPC: is it a router's port (7401)?",
		},
		{
			"NewBackend to nobody", subscribe(SubscriberConfig{Addrs: []string{nobody}, Dial: throughRouter()}),
			"pushmesh: not subscribed: UNAVAILABLE: no connection: dial tcp 127.0.0.1:1: connect: connection refused",
		},
		{"a Producer at a closed port", publish(nobody), "pushmesh: not published: UNAVAILABLE: no connection: dial tcp 127.0.0.1:1: connect: connection refused"},
		{
			"a Producer at an edge's port", publish(edge.addr()),
			"pushmesh: not published: UNAVAILABLE: " + edge.addr() + " accepts connections but does not speak gRPC: is it a router's port (7401)?",
		},
	} {
		var err error
		for within := 50 * time.Millisecond; ; within *= 4 {
			// a busy machine takes longer to find out
			ctx, cancel := context.WithTimeout(t.Context(), within)
			err = c.do(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || within > patience/2 || strings.HasPrefix(err.Error(), c.want) {
				break
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), c.want) || !strings.HasSuffix(err.Error(), "(context deadline exceeded)") {
			t.Errorf("%s: says %q, want %q", c.row, err, c.want)
		}
	}
}

// A subscription that the mesh refuses for now says so to who waits for it, and so does a publish.
func TestFirstHourRefusedForNow(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	sub := start(t, s, "room/a", ignore)
	c := e.welcome()
	m := c.subscribe()
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE, Message: "no store owns shard 294", Ref: m.GetId(), RetryAfterMs: 60_000})
	c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})
	for within := 50 * time.Millisecond; ; within *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		err := sub.Ready(ctx)
		cancel()
		if want := "pushmesh: not subscribed: UNAVAILABLE: no store owns shard 294 (context deadline exceeded)"; err != nil && err.Error() == want {
			break
		} else if within > patience/2 {
			t.Fatalf("says %q, want %q", err, want)
		}
	}
	r := newFakeRouter(t)
	r.decide = func(*pushmeshv1.PublishStreamRequest_Item) *streamResult {
		return &streamResult{Code: wirev1.Code_CODE_UNAVAILABLE, Error: "no store owns shard 294"}
	}
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}})
	for within := 50 * time.Millisecond; ; within *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		_, err := p.Publish(ctx, Message{Topic: "room/a"})
		cancel()
		want := "pushmesh: no answer yet, the message may have been published: context deadline exceeded; UNAVAILABLE: no store owns shard 294"
		if err != nil && err.Error() == want {
			break
		} else if within > patience/2 {
			t.Fatalf("says %q, want %q", err, want)
		}
	}
}

// What only a log gives is asked of a topic that has none: OnGap says so, once.
func TestFirstHourEphemeralTopic(t *testing.T) {
	for row, opts := range map[string][]Option{
		"WithAck": {WithAck()}, "FromEarliest": {FromEarliest()}, "FromSession": {FromSession()}, "FromSeq": {FromSeq(0, 9)}, "live": nil,
	} {
		e := newFakeEdge(t)
		gaps := make(chan Gap, 10)
		s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, ClientID: "c", Session: "s", OnGap: func(g Gap) { gaps <- g }})
		got := make(chan struct{}, 10)
		sub := start(t, s, "nosuch/x", func(context.Context, *Delivery) error { got <- struct{}{}; return nil }, opts...)
		for range 2 { // and not again after a reconnect
			c := e.welcome()
			c.subscribed(0, 0, false)
			if err := sub.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.message("nosuch/x", 0, 0)
			<-got // the answer before it was dealt with
			c.close()
		}
		_ = s.Close(in(t, 10*time.Second))
		close(gaps)
		var told []Gap
		for g := range gaps {
			told = append(told, g)
		}
		if opts == nil && len(told) > 0 || opts != nil && (len(told) != 1 || told[0] != Gap{Filter: "nosuch/x", Topic: "nosuch/x", Code: CodeUnsupported}) {
			t.Errorf("%s: gaps %+v", row, told)
		}
	}
}

// A handler that closes its Subscriber would wait for itself: it learns that at once.
func TestFirstHourCloseInAHandler(t *testing.T) {
	for _, inline := range []bool{false, true} {
		e := newFakeEdge(t)
		s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, Inline: inline})
		closed := make(chan error, 1)
		start(t, s, "room/a", func(context.Context, *Delivery) error {
			closed <- s.Close(in(t, 10*time.Second))
			return nil
		})
		c := e.welcome()
		c.subscribed(7, 0, true)
		c.message("room/a", 1, 0)
		want := "pushmesh: Close was called by a handler, for which it would have to wait: the subscriber closes when the handler has returned; call Close outside of handlers"
		if err := <-closed; err == nil || err.Error() != want {
			t.Errorf("inline %t: says %q, want %q", inline, err, want)
		}
		within(t, "the end", s.Done())
	}
}
