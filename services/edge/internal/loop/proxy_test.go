package loop

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/admission"
)

// loopback is where the tests' proxies are.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

const proxied = "PROXY TCP4 192.0.2.1 127.0.0.1 5 7400\r\n"

// v2 headers, with a TLV behind the addresses, and of a health check.
const (
	proxied2 = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x10\xc0\x00\x02\x02\x7f\x00\x00\x01\x00\x05\x1c\xe8\x04\x00\x01x"
	local2   = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
)

// A proxy's clients are counted by their own addresses, however headers are torn and merged with
// what follows.
func TestProxiesSayWhoseConnectionsTheyAre(t *testing.T) {
	l, _ := byHandBehind(t, admission.Limits{AddressConnections: 1, Proxies: loopback})
	hello := frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	come := func(header string, step int) (answer wirev1.FrameType, code wirev1.Code) {
		t.Helper()
		c := dial(t, l)
		accepts, frames, closes := l.stats.Accepts, l.hub.Stats().Frames, l.hub.Stats().Closes
		turnUntil(t, l, "it has come", func() bool { return l.stats.Accepts > accepts })
		for all := append([]byte(header), hello...); len(all) > 0; {
			n := min(step, len(all))
			c.write(all[:n])
			all = all[n:]
			if len(all) > 0 {
				c.arrived(l)
			}
			l.turn()
		}
		turnUntil(t, l, "it is answered", func() bool { return (l.hub.Stats().Frames > frames || l.hub.Stats().Closes != closes) && !l.turn() })
		ft, body, err := c.frame()
		if err != nil {
			t.Fatal(err)
		}
		return ft, codeOf(ft, body)
	}
	const in, refusal = wirev1.FrameType_FRAME_TYPE_WELCOME, wirev1.FrameType_FRAME_TYPE_ERROR
	for _, x := range []struct {
		name   string
		header string
		step   int
		answer wirev1.FrameType
		code   wirev1.Code
	}{
		{"v1", proxied, 1000, in, 0},
		{"the same client again", proxied, 1000, refusal, wirev1.Code_CODE_TOO_MANY_CONNECTIONS},
		{"v2, byte by byte", proxied2, 1, in, 0},
		{"the same client, torn", proxied2, 29, refusal, wirev1.Code_CODE_TOO_MANY_CONNECTIONS},
		{"v1, byte by byte", "PROXY TCP6 2001:db8::7 ::1 5 7400\r\n", 1, in, 0},
		{"a neighbour in its /64", "PROXY TCP6 2001:db8::8 ::1 5 7400\r\n", 20, refusal, wirev1.Code_CODE_TOO_MANY_CONNECTIONS},
		{"the proxy itself", "", 1000, in, 0},
		{"the proxy itself, again", "", 3, in, 0},
		{"the proxy's health check", local2, 5, in, 0},
		{"a client that is not known", "PROXY UNKNOWN\r\n", 7, in, 0},
		{"another, not known either", "PROXY UNKNOWN\r\n", 1000, in, 0},
		{"a malformed header", "PROXY TCP4 nonsense\r\n", 1000, refusal, wirev1.Code_CODE_BAD_FRAME},
		{"a malformed header, torn", "\r\n\r\n\x00\r\nQUIX", 4, refusal, wirev1.Code_CODE_BAD_FRAME},
		{"a client's header behind the proxy's", "PROXY TCP4 192.0.2.9 127.0.0.1 5 7400\r\n" + proxied, 1000, refusal, wirev1.Code_CODE_UNSUPPORTED},
	} {
		if ft, code := come(x.header, x.step); ft != x.answer || code != x.code {
			t.Fatalf("%s: %v %v, want %v %v", x.name, ft, code, x.answer, x.code)
		}
	}
	if l.stats.LastRefused != netip.MustParseAddr("2001:db8::8") || l.stats.AddressRefusals != 3 {
		t.Fatalf("%d were refused, the last one %v", l.stats.AddressRefusals, l.stats.LastRefused)
	}
	if l.peers.rests.Taken() != 0 || l.peers.kept != 0 {
		t.Fatalf("%d bytes of headers are left", l.peers.kept)
	}
}

// A proxy that garbles a header ends that connection alone, and is told why.
func TestGarbledHeaderOfAProxyIsRefused(t *testing.T) {
	l, _ := byHandBehind(t, admission.Limits{Proxies: loopback})
	neighbour := subscribed(t, l, 1)[0]
	for n, header := range []string{"PROXY TCP4 192.0.2.1 127.0.0.1 5 74000\r\n", "PROXY \xff\xff\r\n", proxied2[:12] + "\x31" + proxied2[13:]} {
		c := dial(t, l)
		c.write([]byte(header))
		turnUntil(t, l, "it is closed", func() bool { return l.hub.Stats().Closes[wirev1.Code_CODE_BAD_FRAME] == uint64(n+1) && !l.turn() })
		if ft, body, err := c.frame(); err != nil || codeOf(ft, body) != wirev1.Code_CODE_BAD_FRAME {
			t.Fatalf("%q is answered with %v %v, %v", header, ft, codeOf(ft, body), err)
		}
		frames := l.hub.Frames()
		neighbour.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})
		turnUntil(t, l, "the neighbour is answered", func() bool { return l.hub.Frames() > frames && !l.turn() })
		neighbour.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	}
	if n := l.stats.ProxyHeaders; n != 0 {
		t.Fatalf("%d headers were read", n)
	}
}

// Who is no proxy says nothing about itself.
func TestHeadersOfOthersAreRefused(t *testing.T) {
	l, _ := run(t, Limits{})
	for _, header := range []string{proxied, proxied2} {
		c := dial(t, l)
		c.write([]byte(header))
		if e, whole := c.refusal(); whole && e.GetCode() != wirev1.Code_CODE_UNSUPPORTED {
			t.Fatalf("got %v", e)
		}
	}
}

// A header that does not come to its end has the handshake's time.
func TestHeaderThatDripsInIsClosed(t *testing.T) {
	l, _ := byHandBehind(t, admission.Limits{Proxies: loopback})
	c := dial(t, l)
	turnUntil(t, l, "it has come", func() bool { return l.stats.Accepts == 1 })
	c.write([]byte(proxied[:20]))
	c.arrived(l)
	turnUntil(t, l, "the header was read", func() bool { return l.stats.Reads > 0 && !l.turn() })
	if l.peers.kept == 0 {
		t.Fatal("nothing is kept")
	}
	passes(l, time.Hour+time.Second)
	turnUntil(t, l, "it is closed", func() bool { return l.hub.Stats().Closes[wirev1.Code_CODE_HANDSHAKE_TIMEOUT] == 1 && !l.turn() })
	if ft, body, err := c.frame(); err != nil || codeOf(ft, body) != wirev1.Code_CODE_HANDSHAKE_TIMEOUT {
		t.Fatalf("%v %v", ft, err)
	}
	_ = c.Close()
	turnUntil(t, l, "it has gone", func() bool { return l.hub.Stats().Connections == 0 })
	if l.peers.rests.Taken() != 0 || l.door.Held() != 0 {
		t.Fatal("something is left")
	}
}

// Sessions count for whom a proxy connects for, never for the proxy; for an exempt one's, for
// nobody.
func TestSessionsCountForTheClientOfAProxy(t *testing.T) {
	l, _ := byHandBehind(t, admission.Limits{Proxies: loopback, Exempt: []netip.Prefix{netip.MustParsePrefix("192.0.2.128/25")}})
	for _, x := range []struct{ header, want string }{
		{proxied, "192.0.2.1"},
		{"PROXY TCP6 2001:db8::7 ::1 5 7400\r\n", "2001:db8::/64"},
		{"", ""},
		{local2, ""},
		{"PROXY TCP4 192.0.2.200 127.0.0.1 5 7400\r\n", ""},
	} {
		c := dial(t, l)
		accepts := l.stats.Accepts
		turnUntil(t, l, "it has come", func() bool { return l.stats.Accepts > accepts })
		frames := l.hub.Frames()
		c.write(append([]byte(x.header), frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})...))
		turnUntil(t, l, "it is in", func() bool { return l.hub.Frames() > frames && !l.turn() })
		slot := l.peers.len() - 1
		if got := l.origin(slot); got != x.want {
			t.Errorf("behind %q: %q, want %q", x.header, got, x.want)
		}
		if x.header == proxied {
			l.leave(slot, l.peers.get(slot))
			l.peers.get(slot).marks = 0
			if *l.peers.clients.At(int(slot)) != ([16]byte{}) {
				t.Error("its address is kept for the next connection in its slot")
			}
		}
	}
	direct, _ := byHandBehind(t, admission.Limits{})
	dial(t, direct)
	turnUntil(t, direct, "it has come", func() bool { return direct.stats.Accepts > 0 })
	if got := direct.origin(0); got != "127.0.0.1" {
		t.Errorf("without a proxy: %q", got)
	}
}
