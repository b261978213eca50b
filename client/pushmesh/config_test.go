package pushmesh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// At its bounds a configuration is taken, one beyond them is refused before anything is dialled.
func TestBoundsOfAConfiguration(t *testing.T) {
	for name, x := range map[string]struct{ good, bad SubscriberConfig }{
		"ClientID":          {SubscriberConfig{ClientID: strings.Repeat("x", 64)}, SubscriberConfig{ClientID: strings.Repeat("x", 65)}},
		"ReceiveWindow":     {SubscriberConfig{ReceiveWindow: 1 << 20}, SubscriberConfig{ReceiveWindow: 1<<20 + 1}},
		"ReceiveWindow ":    {SubscriberConfig{ReceiveWindow: 1}, SubscriberConfig{ReceiveWindow: -1}},
		"SessionTTL":        {SubscriberConfig{SessionTTL: math.MaxUint32 * time.Second}, SubscriberConfig{SessionTTL: math.MaxUint32*time.Second + 1}},
		"Heartbeat":         {SubscriberConfig{Heartbeat: math.MaxUint32 * time.Millisecond}, SubscriberConfig{Heartbeat: math.MaxUint32*time.Millisecond + 1}},
		"SessionTTL, least": {SubscriberConfig{SessionTTL: 0}, SubscriberConfig{SessionTTL: -1}},
		"Heartbeat, least":  {SubscriberConfig{Heartbeat: 0}, SubscriberConfig{Heartbeat: -1}},
		"Session":           {SubscriberConfig{ClientID: "c", Session: "é"}, SubscriberConfig{ClientID: "c", Session: "\xe9"}},
		"Agent":             {SubscriberConfig{Agent: "é"}, SubscriberConfig{Agent: "\xe9"}},
	} {
		x.good.Addrs, x.bad.Addrs = []string{nobody}, []string{nobody}
		if err := x.good.setDefaults(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := x.bad.setDefaults(); err == nil || !strings.Contains(err.Error(), strings.Trim(strings.Split(name, ",")[0], " ")) {
			t.Errorf("%s beyond its bound: %v", name, err)
		}
	}
	if _, err := NewSubscriber(SubscriberConfig{}); err == nil {
		t.Error("a subscriber without addresses")
	}
	for _, bad := range []ProducerConfig{{}, {Addrs: []string{nobody}, Window: -1}, {Addrs: []string{nobody}, Buffer: -1}, {Addrs: []string{nobody}, MaxWait: -1}} {
		if p, err := NewProducer(bad); err == nil {
			_ = p.Close(in(t, 10*time.Second))
			t.Errorf("%+v was taken", bad)
		}
	}
}

// What a configuration leaves out is what its documentation says; what it says stays.
func TestDefaultsOfAConfiguration(t *testing.T) {
	c := SubscriberConfig{Addrs: []string{nobody}}
	if err := c.setDefaults(); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintln(c.ReceiveWindow, c.AckDelay, c.MinBackoff, c.MaxBackoff, c.DialTimeout, c.Agent, c.TLS == nil), "256 2ms 100ms 10s 5s pushmesh-go true\n"; got != want {
		t.Errorf("defaults %s, want %s", got, want)
	}
	if c.lookup == nil || c.Dial == nil {
		t.Error("nobody looks names up, or dials")
	}
	c = SubscriberConfig{Addrs: []string{nobody}, ReceiveWindow: 1, AckDelay: 1, MinBackoff: time.Hour, DialTimeout: 1, Agent: "x"}
	if err := c.setDefaults(); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintln(c.ReceiveWindow, c.AckDelay, c.MinBackoff, c.MaxBackoff, c.DialTimeout, c.Agent), "1 1ns 1h0m0s 1h0m0s 1ns x\n"; got != want {
		t.Errorf("a configuration %s, want %s", got, want)
	}
	p, err := NewProducer(ProducerConfig{Addrs: []string{nobody}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close(in(t, 10*time.Second)) }()
	d := p.cfg
	if got, want := fmt.Sprintln(d.Window, d.Buffer, d.MaxWait, d.MinBackoff, d.MaxBackoff, d.DialTimeout, d.SilentTimeout, d.AnswerTimeout, d.MoveAfter),
		"0 1024 0s 50ms 5s 3s 2s 15s 10m0s\n"; got != want || p.credit != nil {
		t.Errorf("defaults %s, want %s", got, want)
	}
}

// Which codes say "try again" is the protocol's table.
func TestWhatMayBeTriedAgain(t *testing.T) {
	f, err := os.Open("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		cells := strings.Split(lines.Text(), " | ")
		if len(cells) != 3 {
			continue
		}
		c, ok := wirev1.Code_value["CODE_"+cells[1]]
		if !ok {
			continue
		}
		seen++
		e := &Error{Code: Code(c)}
		if says := strings.HasPrefix(cells[2], "try again"); e.Retryable() != says {
			t.Errorf("%s: may be tried again: %v, the protocol says %q", cells[1], e.Retryable(), cells[2])
		}
	}
	if seen < len(wirev1.Code_name)-1 {
		t.Errorf("the protocol's table has %d of %d codes", seen, len(wirev1.Code_name))
	}
}

// What gRPC says is said in the mesh's codes, whose own word wins, with the time to come back.
func TestErrorsOfCalls(t *testing.T) {
	for c, want := range map[codes.Code]Code{
		codes.InvalidArgument: CodeInvalidArgument, codes.OutOfRange: CodeInvalidArgument, codes.Unauthenticated: CodeUnauthenticated,
		codes.PermissionDenied: CodeForbidden, codes.Unimplemented: CodeUnsupported, codes.ResourceExhausted: CodeOverloaded,
		codes.Internal: CodeInternal, codes.Unknown: CodeInternal, codes.DataLoss: CodeInternal,
		codes.Unavailable: CodeUnavailable, codes.DeadlineExceeded: CodeUnavailable, codes.Canceled: CodeUnavailable,
	} {
		if e := fromStatus(status.Error(c, "why")); e.Code != want || e.Message != "why" || e.RetryAfter != 0 {
			t.Errorf("%v is %+v, want %v", c, e, want)
		}
	}
	for reason, want := range map[string]Code{"CONFLICT": CodeConflict, "OF A LATER MESH": CodeInternal} {
		st, err := status.New(codes.Internal, "why").WithDetails(&errdetails.ErrorInfo{Reason: reason}, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		if e := fromStatus(st.Err()); e.Code != want || e.RetryAfter != time.Minute {
			t.Errorf("%s is %+v", reason, e)
		}
	}
	if e := fromStatus(errors.New("broken")); e.Code != CodeUnavailable || e.Message != "broken" {
		t.Errorf("%+v", e)
	}
	if CodeOf(nil) != CodeOK || CodeOf(errors.New("x")) != CodeNone || CodeOf(fmt.Errorf("x: %w", &Error{Code: CodeForbidden})) != CodeForbidden {
		t.Error("CodeOf")
	}
	for e, want := range map[error]string{
		&Error{Code: CodeForbidden}:                                     "pushmesh: FORBIDDEN",
		&Error{Code: CodeForbidden, Message: "not you"}:                 "pushmesh: FORBIDDEN: not you",
		NackAfter(time.Second, errors.New("busy")):                      "again after 1s: busy",
		&link.Unanswered{Addr: "a:1", Err: io.EOF}:                      "pushmesh: a:1 ended the connection without an answer (EOF): is it an edge's port (7400), and does it want TLS?",
		&link.Unanswered{Addr: "a:1", Err: net.ErrClosed}:               "pushmesh: a:1 accepts connections but does not answer: is it an edge's port (7400)?",
		&goAway{why: &Error{Code: CodeDraining}}:                        "told to go away: pushmesh: DRAINING",
		&moving{to: reconnect.Place{Addr: "b:1"}}:                       "moving to the router at b:1",
		&unknownOutcome{err: context.Canceled}:                          "pushmesh: no answer yet, the message may have been published: context canceled",
		fmt.Errorf("x: %w", NackAfter(time.Second, errors.New("busy"))): "x: again after 1s: busy",
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e, want)
		}
	}
}

// What can't work is refused where it is asked for, and not by an edge later.
func TestSubscriptionsThatCanNotWork(t *testing.T) {
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{nobody}})
	h := func(context.Context, *Delivery) error { return nil }
	positions := func(n int) Option { return FromPositions(make([]Position, n)...) }
	for name, x := range map[string]struct {
		filter string
		h      Handler
		opt    Option
	}{
		"a bad filter":        {"a//b", h, WithAck()},
		"no handler":          {"a", nil, WithAck()},
		"no session":          {"a", h, FromSession()},
		"too many positions":  {"a", h, positions(maxPositions + 1)},
		"a window of nothing": {"a", h, WithWindow(3)},
	} {
		if _, err := s.Start(x.filter, x.h, x.opt); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := s.Start("#", h, positions(maxPositions)); err != nil {
		t.Error(err)
	}
	if _, err := s.Start("a", h, WithRankTopK(1)); err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.subs) != 2 {
		t.Errorf("%d subscriptions, want those that can work", len(s.subs))
	}
}

// milliseconds are rounded up, and bounded.
func TestDurationsOnTheWire(t *testing.T) {
	for d, want := range map[time.Duration]uint32{
		-time.Second: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Second: 1000, math.MaxUint32 * time.Millisecond: math.MaxUint32, 60 * 24 * time.Hour: math.MaxUint32,
	} {
		if got := ext.Milliseconds(d); got != want {
			t.Errorf("%v is %d ms, want %d", d, got, want)
		}
	}
	for in, want := range map[string]string{"short": "short", "12345678": "12345678", "123456789": "12345678", "1234567é": "1234567", "\u20ac\u20ac\u20ac": "\u20ac\u20ac"} {
		if got := truncate(in, 8); got != want {
			t.Errorf("%q in 8 bytes is %q, want %q", in, got, want)
		}
	}
	if got := truncate("\x80\x80\x80", 2); got != "" {
		t.Errorf("%q", got)
	}
}
