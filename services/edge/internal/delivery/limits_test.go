package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// A client that keeps to the limits which docs/protocol.md names is served, up to the very last
// byte, and one that goes beyond by one is refused with the code that stands there.
func TestEachLimitIsWhereItIsSaidToBe(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	hello := func(set func(m *wirev1.Hello, n int)) func(w *world, n int) string {
		return func(w *world, n int) string {
			c, m := w.dial(), &wirev1.Hello{Version: 1}
			set(m, n)
			c.send(wirev1.FrameType_FRAME_TYPE_HELLO, m)
			return strings.Join(c.texts(), ", ")
		}
	}
	asks := func(before func(c *client, n int) proto.Message) func(w *world, n int) string {
		return func(w *world, n int) string {
			c := w.connect(&wirev1.Hello{ClientId: "ann"})
			var m proto.Message
			if m = before(c, n); m == nil {
				return strings.Join(c.texts(), ", ")
			}
			c.texts()
			switch m := m.(type) {
			case *wirev1.Subscribe:
				m.Id = 7
				c.subscribe(m)
			case *wirev1.Publish:
				m.Id = 7
				c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, m)
			case *wirev1.Claim:
				m.Id = 7
				c.claim(m)
			}
			if got := c.texts(); len(got) > 0 {
				return got[0]
			}
			return "" // it is not answered yet
		}
	}
	for _, one := range []struct {
		what  string
		limit int
		ask   func(w *world, n int) string
		want  string
	}{
		{"bytes of client_id", 64, hello(func(m *wirev1.Hello, n int) { m.ClientId = x(n) }), "Error INVALID_ARGUMENT ref=0"},
		{"bytes of session", 255, hello(func(m *wirev1.Hello, n int) { m.Session = x(n) }), "Error INVALID_ARGUMENT ref=0"},
		{"the version", 1, hello(func(m *wirev1.Hello, n int) { m.Version = uint32(n) }), "Error UNSUPPORTED ref=0"},
		{"bytes of Hello", wire.MaxHello, hello(func(m *wirev1.Hello, n int) {
			m.Features = []string{""}
			m.Features[0] = x(n - proto.Size(m) - 1)
		}), "Error FRAME_TOO_LARGE ref=0"},
		{"bytes of a frame", 8 << 10, func(w *world, n int) string {
			c := w.connect(&wirev1.Hello{})
			// a field that nobody knows
			body := append([]byte{15<<3 | 2, 0xff, 0x3f}, make([]byte, n-3)...)
			body[1], body[2] = byte((n-3)&0x7f|0x80), byte((n-3)>>7)
			frame := make([]byte, wire.HeaderSize, wire.HeaderSize+n)
			wire.PutHeader(frame, n, wirev1.FrameType_FRAME_TYPE_PING)
			c.bytes(append(frame, body...))
			return strings.Join(c.texts(), ", ")
		}, "Error FRAME_TOO_LARGE ref=0"},
		{"subscriptions", 4, asks(func(c *client, n int) proto.Message {
			for i := range n - 1 {
				c.subscribe(&wirev1.Subscribe{Id: uint32(i + 10), Filter: "room/1", Group: []string{"", "g"}[i%2]})
			}
			return &wirev1.Subscribe{Filter: "room/1"}
		}), "Error TOO_MANY_SUBSCRIPTIONS ref=7"},
		{"bytes of where", 4096, asks(func(_ *client, n int) proto.Message {
			return &wirev1.Subscribe{Filter: "room/1", Where: "payload > 1" + strings.Repeat(" ", n-11)}
		}), "Error INVALID_ARGUMENT ref=7"},
		{"bytes of a group's name", 64, asks(func(_ *client, n int) proto.Message {
			return &wirev1.Subscribe{Filter: "room/1", Group: x(n)}
		}), "Error INVALID_ARGUMENT ref=7"},
		{"bytes of a group's name and filter", 254, asks(func(_ *client, n int) proto.Message {
			return &wirev1.Subscribe{Filter: "a/" + x(n-8), Group: x(6)}
		}), "Error INVALID_ARGUMENT ref=7"},
		{"positions", 3, asks(func(_ *client, n int) proto.Message {
			m := &wirev1.Subscribe{Filter: "room/+"}
			for i := range n {
				m.Positions = append(m.Positions, &wirev1.Position{Topic: fmt.Sprint("room/", i)})
			}
			return m
		}), "Error TOO_MANY_TOPICS ref=7"},
		{"topics of a filter", 3, asks(func(c *client, n int) proto.Message {
			for i := range n {
				c.w.mesh.Append(fmt.Sprint("hall/", i), "x")
			}
			return &wirev1.Subscribe{Filter: "hall/+", Ack: true}
		}), "Error TOO_MANY_TOPICS ref=7"},
		{"topics of a filter that appear later", 3, asks(func(c *client, n int) proto.Message {
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "hall/+", Start: wirev1.Start_START_EARLIEST})
			c.texts()
			for i := range n {
				c.w.mesh.Send(fmt.Sprint("hall/", i), "x")
				if got := c.texts(); len(got) != 1 {
					c.w.t.Fatalf("topic %d: %q", i, got)
				} else if strings.HasPrefix(got[0], "Unsub") {
					return &wirev1.Subscribe{Filter: "a//b"}
				}
			}
			return nil
		}), "Error BAD_TOPIC ref=7"},
		{"bytes of a payload", 64, asks(func(_ *client, n int) proto.Message {
			return &wirev1.Publish{Topic: "open/1", Payload: make([]byte, n)}
		}), "Error PAYLOAD_TOO_LARGE ref=7"},
		{"headers", 64, asks(func(_ *client, n int) proto.Message {
			m := &wirev1.Publish{Topic: "open/1", Headers: map[string]string{}}
			for i := range n {
				m.Headers[fmt.Sprint(i)] = "x"
			}
			return m
		}), "Error INVALID_ARGUMENT ref=7"},
		{"publishes that are not answered", 5, asks(func(c *client, n int) proto.Message {
			c.w.mesh.Hold()
			for i := range n - 1 {
				c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: uint32(i % 2 * (i + 10)), Topic: "open/1"})
			}
			return &wirev1.Publish{Topic: "open/1"}
		}), "Error RATE_LIMITED ref=7"},
		{"priority of a claim", 3, asks(func(_ *client, n int) proto.Message {
			return &wirev1.Claim{Op: wirev1.Claim_OP_ACQUIRE, Resource: "seat/1", Priority: uint32(n)}
		}), "Error FORBIDDEN ref=7"},
		{"bytes of a successor", 255, asks(func(_ *client, n int) proto.Message {
			return &wirev1.Claim{Op: wirev1.Claim_OP_RELEASE, Resource: "seat/1", Token: 1, Successor: x(n)}
		}), "Error INVALID_ARGUMENT ref=7"},
		{"claims that are not answered", claims.MaxAsked, asks(func(c *client, n int) proto.Message {
			c.w.mesh.Hold()
			for i := range n - 1 {
				c.claim(&wirev1.Claim{Id: uint32(i + 10), Op: wirev1.Claim_OP_CHECK, Resource: "seat/1"})
			}
			return &wirev1.Claim{Op: wirev1.Claim_OP_CHECK, Resource: "seat/1"}
		}), "Error RATE_LIMITED ref=7"},
		{"resources", claims.MaxHeld, asks(func(c *client, n int) proto.Message {
			c.w.answers(granted, 0)
			for i := range n - 1 {
				c.claim(&wirev1.Claim{Id: uint32(i + 10), Op: wirev1.Claim_OP_ACQUIRE, Resource: fmt.Sprint("seat/", i)})
			}
			return &wirev1.Claim{Op: wirev1.Claim_OP_ACQUIRE, Resource: "seat/last"}
		}), "Error RATE_LIMITED ref=7"},
	} {
		world := func() *world {
			w := newWorld(t, Limits{MaxFrame: 8 << 10, Subscriptions: 4, WildcardTopics: 3, PublishWindow: 5})
			w.table = policy.NewTable([]*pushmeshv1.Namespace{
				{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true, MaxPayload: 64}},
				{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true, MaxClientPriority: 3}}},
			})
			return w
		}
		if got := one.ask(world(), one.limit); strings.HasPrefix(got, "Error") {
			t.Errorf("%d %s: %s", one.limit, one.what, got)
		}
		if got := one.ask(world(), one.limit+1); got != one.want {
			t.Errorf("%d %s: got %q, want %q", one.limit+1, one.what, got, one.want)
		}
	}
}

// Welcome tells what a client has, which is what it asked for, within bounds, and the default where
// it asked for nothing. Its window is as large as it says.
func TestHelloIsTakenAtItsWordWithinBounds(t *testing.T) {
	for asked, want := range map[uint32]uint32{0: 30_000, 1: 1000, 999: 1000, 1000: 1000, 1001: 1001, 599_999: 599_999, 600_000: 600_000, 600_001: 600_000, 1 << 31: 600_000} {
		w := newWorld(t, Limits{})
		c := w.dial()
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, HeartbeatMs: asked})
		c.take()
		if got := c.got[0].m.(*wirev1.Welcome); got.GetHeartbeatMs() != want || got.GetEdge() != "edge-1" || got.GetConnectionId() == 0 || got.GetClientId() == "" || got.GetVersion() != 1 ||
			got.GetMaxFrame() != 1<<20 || got.GetPublishWindow() != 64 || got.GetResumed() {
			t.Errorf("a heartbeat of %d ms: %v", asked, got)
		}
	}
	for _, one := range []struct{ hello, sub, want uint32 }{
		{0, 0, 256}, {3, 0, 3}, {3, 2, 2}, {3, 4, 3}, {3, 3, 3}, {1, 0, 1}, {70_000, 0, request.MaxWindow}, {70_000, 65_535, 65_535}, {300, 299, 299},
	} {
		w := newWorld(t, Limits{})
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: one.hello})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true, ReceiveWindow: one.sub})
		c.expect("Subscribed 1 head=0")
		at := w.h.conns.Get(c.slot)
		if tr := at.Tracks.At(0); at.Window != max(min(one.hello, request.MaxWindow), one.want) && one.hello > 0 || one.sub > 0 && one.sub < at.Window && uint32(tr.Window) != one.want {
			t.Errorf("%+v: the connection's window is %d, the subscription's %d", one, at.Window, tr.Window)
		}
		if one.want > 300 {
			continue
		}
		for range one.want + 5 {
			w.mesh.Send("room/1", "x")
			c.take()
		}
		if c.texts(); at.Unacked != one.want {
			t.Errorf("%+v: %d messages are un-ACKed", one, at.Unacked)
		}
		c.ack("room/1", 1<<40, true)
		c.texts()
		if want := min(5, one.want); at.Unacked != want {
			t.Errorf("%+v: %d messages are un-ACKed after all were ACKed, want %d", one, at.Unacked, want)
		}
	}
}

// Names with control characters are refused wherever they would be shown to people: the whole of
// both ranges, and nothing beside them.
func TestControlCharactersAreRefused(t *testing.T) {
	for r := rune(1); r < 0x120; r++ {
		control := r < 0x20 || r >= 0x7f && r <= 0x9f
		name := "a" + string(r)
		for _, m := range []*wirev1.Hello{{ClientId: name}, {Session: name}} {
			w := newWorld(t, Limits{})
			c := w.dial()
			m.Version = 1
			c.send(wirev1.FrameType_FRAME_TYPE_HELLO, m)
			if got := c.texts(); (got[0] != "Welcome") != control {
				t.Errorf("%q: %q", name, got)
			}
		}
		if r != '/' && request.HasControl(name) != control {
			t.Errorf("%q", name)
		}
	}
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Group: "a\x01"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Group: "a/b"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", GroupKey: "header:k"})
	c.expect("Error INVALID_ARGUMENT ref=1", "Error INVALID_ARGUMENT ref=1", "Error INVALID_ARGUMENT ref=1")
}

// What is published with a dedupe key is published once where a log remembers keys; elsewhere the
// key is refused, not passed over.
func TestDedupeKeysAreForDurableTopics(t *testing.T) {
	w := newWorld(t, Limits{})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true}}, {Prefix: "talk", Policy: &pushmeshv1.Policy{ClientPublish: true}},
	})
	c := w.connect(&wirev1.Hello{})
	for i, m := range []*wirev1.Publish{{Topic: "open/1", DedupeKey: "k"}, {Topic: "talk/1", DedupeKey: "k"}, {Topic: "talk/1"}, {Topic: "open/1"}} {
		m.Id = uint32(i + 1)
		c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, m)
	}
	c.expect("Published 1", "Error UNSUPPORTED ref=2", "Published 3", "Published 4")
	if n := len(w.mesh.Published); n != 3 || w.mesh.Published[0].GetDedupeKey() != "k" {
		t.Fatalf("published: %v", w.mesh.Published)
	}
}

// A frame that can't be decoded ends the connection, whichever it is and however much of it was
// right, and none that follows it is heeded.
func TestWhatCannotBeDecodedEndsTheConnection(t *testing.T) {
	for name, body := range map[string][]byte{
		"a tag":                    {0xff},
		"a length":                 {1<<3 | 2, 9, 1},
		"a number":                 {1 << 3, 0xff},
		"an entry":                 {1<<3 | 2, 1, 0xff},
		"a number in an entry":     {1<<3 | 2, 2, 2 << 3, 0xff},
		"a topic in an entry":      {1<<3 | 2, 2, 1<<3 | 2, 9},
		"an epoch in an entry":     {1<<3 | 2, 3, 5<<3 | 1, 1, 2},
		"an unknown field in it":   {1<<3 | 2, 3, 9<<3 | 2, 9, 1},
		"behind one that is whole": append([]byte{1<<3 | 2, 10, 1<<3 | 2, 6}, append([]byte("room/1"), 2<<3, 1, 1<<3|2, 1, 0xff)...),
	} {
		for _, ft := range []wirev1.FrameType{
			wirev1.FrameType_FRAME_TYPE_ACK, wirev1.FrameType_FRAME_TYPE_NACK, wirev1.FrameType_FRAME_TYPE_PING, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE,
			wirev1.FrameType_FRAME_TYPE_PUBLISH, wirev1.FrameType_FRAME_TYPE_CLAIM, wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN,
		} {
			if (strings.Contains(name, "entry") || strings.Contains(name, " it") || strings.Contains(name, "whole")) && ft != wirev1.FrameType_FRAME_TYPE_ACK {
				continue // others have no entries there
			}
			w := newWorld(t, Limits{})
			c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
			w.mesh.Live(w.mesh.Append("room/1", "a")...)
			c.expect("Subscribed 1 head=0", "room/1/1")
			frame := make([]byte, wire.HeaderSize)
			wire.PutHeader(frame, len(body), ft)
			c.bytes(slices.Concat(frame, body, pingFrame(t)))
			c.expect("Error BAD_FRAME ref=0")
			if s := w.h.Stats(); s.Closes[wirev1.Code_CODE_BAD_FRAME] != 1 || s.Connections != 0 || s.Frames > 3 {
				t.Errorf("%s in %v: %d frames, closes %v", name, ft, s.Frames, s.Closes)
			}
		}
	}
}

// A subscription with wildcards that says neither positions nor a seq behind which it starts begins
// where the log is.
func TestAfterNothingIsFromHereOn(t *testing.T) {
	w := newWorld(t, Limits{})
	w.mesh.Append("room/1", "a", "b")
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+", Start: wirev1.Start_START_AFTER_SEQ})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/1", Start: wirev1.Start_START_AFTER_SEQ})
	w.mesh.Send("room/1", "c")
	c.expect("Subscribed 1 head=0 room/1:2", "Subscribed 2 head=2", "room/1/1 subs=[2]", "room/1/2 subs=[2]", "room/1/3 subs=[1]", "room/1/3 subs=[2]")
}

// A newest message that stands for those before it says so, whether these were skipped in the queue
// or never came to the edge.
func TestWhatNeverCameToAConflatedSubscriptionIsNamed(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Overflow: wirev1.Overflow_OVERFLOW_CONFLATE})
	w.mesh.Send("room/1", "a")
	w.mesh.Append("room/1", "lost", "lost")
	w.mesh.Send("room/1", "d")
	c.expect("Subscribed 1 head=0", "room/1/1", "Progress room/1 2..3 CONFLATED", "room/1/4")
	if n := w.h.Stats().Drops[wirev1.Code_CODE_CONFLATED]; n != 2 || w.mesh.Reads != 0 {
		t.Fatalf("%d are counted, %d reads", n, w.mesh.Reads)
	}
	c.slow = true
	w.mesh.Live(upstreamtest.Run("talk", 0, 0, "x")...)
	w.mesh.Send("room/1", "e")
	w.mesh.Append("room/1", "lost")
	w.mesh.Send("room/1", "g")
	w.mesh.Append("room/1", "lost")
	w.mesh.Send("room/1", "i")
	c.reads("room/1/5", "Progress room/1 6..8 CONFLATED", "room/1/9")
}
