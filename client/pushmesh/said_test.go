package pushmesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// The codes are the protocol's, name and number.
func TestCodesAreTheProtocols(t *testing.T) {
	said := codeConstants(t)
	for n, name := range wirev1.Code_name {
		name = strings.TrimPrefix(name, "CODE_")
		if c := Code(n); c.String() != name {
			t.Errorf("%s is %v", name, c)
		}
		constant := "Code"
		for _, word := range strings.Split(name, "_") {
			constant += word[:1] + strings.ToLower(word[1:])
		}
		constant = strings.Replace(constant, "CodeOk", "CodeOK", 1)
		if value, ok := said[constant]; !ok || value != fmt.Sprint(n) {
			t.Errorf("%s is %q, want %d", constant, value, n)
		}
		delete(said, constant)
	}
	if len(said) > 0 {
		t.Errorf("%v are no codes of the protocol", said)
	}
	if !Code(999).Retryable() || Code(999).String() != "CODE_999" || CodeNone.String() != "NONE" || CodeNone.Retryable() {
		t.Error("codes that the protocol has not")
	}
}

// codeConstants are the constants of type Code that are written as numbers.
func codeConstants(t *testing.T) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if number, ok := spec.Values[0].(*ast.BasicLit); ok && number.Kind == token.INT {
			said[spec.Names[0].Name] = number.Value
		}
		return true
	})
	return said
}

// Errors are found by their reason, wherever they are wrapped.
func TestErrorsAreFoundByTheirReason(t *testing.T) {
	err := &waitError{what: "not subscribed", why: &Error{Code: CodeForbidden}, end: context.DeadlineExceeded}
	if !errors.Is(err, ErrForbidden) || errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || CodeOf(err) != CodeForbidden {
		t.Error(err)
	}
	if ErrForbidden.Error() != "pushmesh: FORBIDDEN" {
		t.Error(ErrForbidden)
	}
	for err, want := range map[error]Code{
		context.Canceled: CodeNone, ErrClosed: CodeNone, ErrSettled: CodeNone,
		&waitError{what: "x", why: errors.New("connection refused"), end: context.Canceled}: CodeUnavailable,
		misconfigured("WithWindow", "is odd"):                                               CodeInvalidArgument,
	} {
		if got := CodeOf(err); got != want {
			t.Errorf("%v has %v, want %v", err, got, want)
		}
	}
	if err := misconfigured("WithWindow", "is odd"); !errors.Is(err, ErrInvalidArgument) || errors.Is(err, ErrForbidden) {
		t.Error(err)
	}
	var unknown *Error
	for why, code := range map[error]Code{nil: CodeUnavailable, errors.New("x"): CodeUnavailable, &Error{Code: CodeOverloaded}: CodeOverloaded} {
		err := &unknownOutcome{err: context.Canceled, why: why}
		if !errors.As(err, &unknown) || !unknown.Unknown || unknown.Code != code || !errors.Is(err, context.Canceled) || why != nil && !errors.Is(err, why) {
			t.Errorf("%v: %+v", err, unknown)
		}
	}
}

// An id is read as it is written, and nothing else is.
func TestIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		text := id.String()
		if id.IsZero() {
			return
		}
		var read ID
		if err := read.UnmarshalText([]byte(text)); err != nil || read != id || len(text) != 36 {
			t.Fatalf("%s is read as %v, %v", text, read, err)
		}
		if read, err := ParseID(strings.ReplaceAll(text, "-", "")); err != nil || read != id {
			t.Fatalf("%s without hyphens: %v, %v", text, read, err)
		}
		if idOf(id[:]) != id {
			t.Fatal(id)
		}
	})
	for _, text := range []string{"", "x", "0190163d-8694-739b-aea5-966c26f8ad9", "0190163d-8694-739b-aea5-966c26f8ad9x", "0190163d8694-739b-aea5-966c26f8ad91-", strings.Repeat("-", 36)} {
		if id, err := ParseID(text); err == nil || !id.IsZero() {
			t.Errorf("%q is read as %v", text, id)
		}
	}
	if (ID{}).String() != "" || !idOf([]byte("short")).IsZero() {
		t.Error("no id")
	}
}

// Options that say nothing together are refused before anything is asked.
func TestOptionsThatContradict(t *testing.T) {
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{nobody}, ClientID: "c", Session: "s"})
	inline := newTestSubscriber(t, SubscriberConfig{Addrs: []string{nobody}, Inline: true})
	at := FromPositions(Position{Topic: "a", Seq: 1})
	for name, x := range map[string]struct {
		s     *Subscriber
		opts  []Option
		field string // "": it is taken
	}{
		"twice":                  {s, []Option{WithAck(), WithAck()}, "WithAck"},
		"two groups":             {s, []Option{WithGroup("a"), WithGroup("b")}, "WithGroup"},
		"two starts":             {s, []Option{FromLast(1), FromSession()}, "FromSession"},
		"a session's positions":  {s, []Option{FromSession(), at}, "FromPositions"},
		"positions twice":        {s, []Option{at, at}, "FromPositions"},
		"two positions":          {s, []Option{FromSeq(1, 2), at}, "FromPositions"},
		"positions and a start":  {s, []Option{FromEarliest(), at}, ""},
		"a group of a session":   {s, []Option{WithGroup("g"), FromSession()}, "FromSession"},
		"a group's filter":       {s, []Option{WithWhere("true"), WithGroup("g")}, "WithWhere"},
		"a group of no name":     {s, []Option{WithGroup("")}, "WithGroup"},
		"the last, and not":      {s, []Option{FromLast(1), WithoutLast()}, "FromLast"},
		"nobody at work":         {s, []Option{WithConcurrency(0)}, "WithConcurrency"},
		"a window of nothing":    {s, []Option{WithWindow(5)}, "WithWindow"},
		"a group's window":       {s, []Option{WithWindow(5), WithGroup("g")}, ""},
		"a session's ACKs":       {s, []Option{FromSession(), WithWindow(5)}, ""},
		"both ways to ACK":       {s, []Option{WithAck(), WithManualAck()}, ""},
		"inline, several":        {inline, []Option{WithConcurrency(2)}, "WithManualAck"},
		"inline, ACKed later":    {inline, []Option{WithManualAck()}, "WithManualAck"},
		"inline, without either": {inline, []Option{WithAck()}, ""},
	} {
		_, err := x.s.Start("a", fine, x.opts...)
		var bad *ConfigError
		if errors.As(err, &bad); x.field == "" && err != nil || x.field != "" && (bad == nil || bad.Field != x.field) {
			t.Errorf("%s: %v, want %q", name, err, x.field)
		}
	}
	if _, err := s.Pull(t.Context(), "a", WithConcurrency(2)); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
}

// logged is where a Logger writes.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// A Logger is told of what a Subscriber does by itself, and why.
func TestWhatIsLogged(t *testing.T) {
	e := newFakeEdge(t)
	var l logged
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{nobody, e.addr()}, Logger: slog.New(slog.NewTextHandler(&l, nil)), MaxBackoff: time.Millisecond})
	start(t, s, "room/a", func(context.Context, *Delivery) error { return errors.New("the printer is out of paper") }, WithAck())
	c := e.welcome()
	if err := s.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.subscribed(7, 0, true)
	c.message("room/a", 1, 0)
	c.nacked(1)
	c.progress(&wirev1.Progress{Topic: "room/a", Epoch: 7, From: 2, To: 3, Code: wirev1.Code_CODE_RETENTION})
	for _, text := range []string{`"pushmesh: connected" edge=edge-a`, `out of paper`, `"pushmesh: gap" filter=room/a topic=room/a missed=2`} {
		waitUntil(t, func() bool { return l.has(text) })
	}
	c.close()
	waitUntil(t, func() bool { return l.has("pushmesh: disconnected") })
	// the other address is tried first
	waitUntil(t, func() bool { return l.has("pushmesh: no connection") })
	c = e.welcome()
	m := c.subscribe()
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: m.GetId(), Code: wirev1.Code_CODE_FORBIDDEN, Message: "not here"})
	waitUntil(t, func() bool { return l.has(`"pushmesh: subscription refused" filter=room/a`) })
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_UNAUTHENTICATED})
	waitUntil(t, func() bool { return l.has("pushmesh: refused for good") })
}

// Connected waits for a connection, and says what stands in the way.
func TestConnected(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Connected(over); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Connected(t.Context()) }()
	c := e.welcome()
	if err := <-done; err != nil {
		t.Error(err)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_FORBIDDEN})
	<-s.Done()
	if err := s.Connected(t.Context()); !errors.Is(err, ErrForbidden) {
		t.Error(err)
	}
	lost := newTestSubscriber(t, SubscriberConfig{Addrs: []string{nobody}, MaxBackoff: time.Millisecond})
	waitUntil(t, func() bool { return lost.faultOf() != nil })
	if err := lost.Connected(over); !errors.Is(err, context.Canceled) || CodeOf(err) != CodeUnavailable {
		t.Error(err)
	}
	_ = lost.Close(t.Context())
	if err := lost.Connected(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// A Producer tells of its routers, in its log and by callbacks, and answers futures.
func TestAProducersConnections(t *testing.T) {
	r := newFakeRouter(t)
	var l logged
	failures, connects, ends := make(chan error, 1000), make(chan string, 10), make(chan error, 10)
	p := newTestProducer(t, ProducerConfig{
		Addrs: []string{nobody, r.addr}, MaxBackoff: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&l, nil)),
		OnConnect: func(addr string) { connects <- addr }, OnDisconnect: func(err error) { ends <- err },
		OnConnectFailed: func(err error) {
			select {
			case failures <- err:
			default:
			}
		},
	})
	if addr := <-connects; addr != r.addr {
		t.Errorf("connected to %s", addr)
	}
	if err := p.Connected(t.Context()); err != nil {
		t.Error(err)
	}
	f, err := p.PublishFuture(t.Context(), Message{Topic: "room/a"})
	if err != nil {
		t.Fatal(err)
	}
	<-f.Done()
	if res, err := f.Wait(t.Context()); err != nil || res.Seq != 1 {
		t.Errorf("%v, %v", res, err)
	}
	if _, err := p.PublishFuture(t.Context(), Message{Topic: "a//b"}); !errors.Is(err, ErrBadTopic) {
		t.Error(err)
	}
	r.stop()
	if err := <-ends; CodeOf(err) != CodeUnavailable {
		t.Errorf("ended with %v", err)
	}
	if err := <-failures; CodeOf(err) != CodeUnavailable {
		t.Errorf("failed with %v", err)
	}
	for _, text := range []string{`"pushmesh: connected" router=` + r.addr, "pushmesh: disconnected", "pushmesh: no connection"} {
		waitUntil(t, func() bool { return l.has(text) })
	}
	late, err := p.PublishFuture(t.Context(), Message{Topic: "room/a"})
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var unknown *Error
	if _, err := late.Wait(over); !errors.Is(err, context.Canceled) || !errors.As(err, &unknown) || !unknown.Unknown {
		t.Errorf("not answered: %v", err)
	}
	if err := p.Connected(over); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := p.Close(over); err == nil {
		t.Error("closed with a message that has no answer")
	}
	if _, err := late.Wait(t.Context()); err == nil {
		t.Error("a message that was left has no error")
	}
	if err := p.Connected(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// A token that there will be no more of ends a Subscriber, and another error of Token does not.
func TestNoToken(t *testing.T) {
	e := newFakeEdge(t)
	calls := 0
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, MaxBackoff: time.Millisecond, Token: func(context.Context) (string, error) {
		if calls++; calls < 3 {
			return "", errors.New("the backend is away")
		}
		return "", fmt.Errorf("logged out: %w", ErrNoToken)
	}})
	<-s.Done()
	if err := s.Err(); !errors.Is(err, ErrUnauthenticated) || calls != 3 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// A subscription whose wait ends is not left at the edge, unless it is a session's: that would lose
// its place.
func TestAWaitThatEndsUnsubscribes(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}, ClientID: "c", Session: "s"})
	c := e.welcome()
	for _, o := range []Option{FromSession(), WithAck()} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.Subscribe(ctx, "room/a", fine, o)
			done <- err
		}()
		m := c.subscribe()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if m.GetStart() == wirev1.Start_START_SESSION {
			continue // what comes next is the other one's
		}
		var u wirev1.Unsubscribe
		if c.expect(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &u); u.GetId() != m.GetId() {
			t.Errorf("unsubscribed %v, want %d", &u, m.GetId())
		}
	}
}
