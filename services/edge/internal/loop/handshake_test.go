package loop

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
)

func TestHandshakesThatFail(t *testing.T) {
	for _, x := range []struct {
		name string
		cfg  func(*tls.Config)
		want wirev1.Code
		says string // what the client is told
	}{
		{"another protocol", func(c *tls.Config) { c.NextProtos = []string{"h2"} }, wirev1.Code_CODE_UNSUPPORTED, "no application protocol"},
		{"TLS 1.1", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, wirev1.Code_CODE_UNSUPPORTED, "protocol version"},
		{"no suite in common", func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
		}, wirev1.Code_CODE_UNSUPPORTED, "handshake failure"},
		{"a client that does not trust", func(c *tls.Config) { c.RootCAs = nil }, wirev1.Code_CODE_OK, "certificate"},
	} {
		t.Run(x.name, func(t *testing.T) {
			g := guard(t, handshake.Config{}, Config{})
			cfg := g.client()
			x.cfg(cfg)
			c, err := g.over(nil, cfg)
			if err == nil || !strings.Contains(err.Error(), x.says) {
				t.Fatalf("got %v", err)
			}
			_ = c.Close()
			g.closed(x.want, 1)
			if s := g.pool.Stats(); s.Failed != 1 && x.want != wirev1.Code_CODE_OK {
				t.Fatalf("%+v", s)
			}
		})
	}
}

func TestNonsenseInsteadOfTLS(t *testing.T) {
	for name, b := range map[string]string{
		"a ClientHello that is none":      "\x16\x03\x01\x00\x05\x01\x00\x00\x01\xff",
		"a record of 65,535 bytes":        "\x16\x03\x01\xff\xff" + strings.Repeat("x", 1000),
		"a version that is none":          "\x16\x99\x99\x00\x01x",
		"another message":                 "\x16\x03\x01\x00\x04\x14\x00\x00\x00",
		"a record that is an alert, late": "\x16\x03\x01\x00\x01\x01\x15\x03\x01\x00\x02\x01\x00",
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, handshake.Config{}, Config{})
			c := dial(t, g.Loop)
			c.write([]byte(b))
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Logf("%v", err) // cut off, or told
			}
			_ = c.Close()
			eventually(t, "ended", func() bool { s := g.Stats(); return s.Accepts == 1 && s.Connections == 0 })
			if s := g.Stats(); s.Closes[wirev1.Code_CODE_BAD_FRAME]+s.Closes[wirev1.Code_CODE_OK] != 1 || s.Closes[wirev1.Code_CODE_OK] > 0 && !strings.HasSuffix(name, "late") {
				t.Fatalf("%v", s.Closes)
			}
		})
	}
}

// stall makes clients that stop in the middle of shaking hands: one with a part of its first
// record, one that does not answer.
func stall(g *guarded) (half, mute *client) {
	first := firstRecord(g)
	half, mute = dial(g, g.Loop), dial(g, g.Loop)
	half.write(first[:len(first)/2])
	mute.write(first)
	return half, mute
}

// firstRecord is what a client sends first.
func firstRecord(g *guarded) []byte {
	first := make([]byte, 64<<10)
	ours, theirs := net.Pipe()
	go func() { _ = tls.Client(theirs, g.client()).Handshake() }()
	n, err := ours.Read(first)
	if err != nil {
		g.Fatal(err)
	}
	_, _ = ours.Close(), theirs.Close()
	return first[:n]
}

// One address takes all handshakes that there may be, again and again: clients of others get
// through.
func TestAFloodOfHandshakesLeavesOthersTheirPart(t *testing.T) {
	const most = 8
	g := guard(t, handshake.Config{Most: most}, Config{})
	first := firstRecord(g)
	flood := func() {
		for range 2 * most {
			c := dialFrom(g.TB, g.Loop, "127.0.0.2")
			c.write(first)
			_, _ = c.Read(make([]byte, 1)) // the edge's answer, or an alert
		}
	}
	flood()
	if s := g.pool.Stats(); s.UnderWay != most || s.Refused != most || s.GaveWay != 0 {
		t.Fatalf("%+v", s)
	}
	for _, from := range []string{"127.0.0.3", "127.0.0.4", "127.0.0.3"} {
		c, err := g.over(dialFrom(g.TB, g.Loop, from).Conn, g.client())
		if err != nil {
			t.Fatalf("a client at %s: %v", from, err)
		}
		c.hello(&wirev1.Hello{})
		flood()
	}
	s := g.pool.Stats()
	if s.UnderWay > most || s.Full != 3 || s.GaveWay != 3 {
		t.Fatalf("%+v", s)
	}
	if ended := g.Stats().Closes[wirev1.Code_CODE_OVERLOADED]; ended > s.Refused+s.GaveWay {
		t.Fatalf("%d have ended, %+v", ended, s)
	}
}

func TestStalledHandshakesTimeOut(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{Limits: Limits{HandshakeTimeout: 300 * time.Millisecond}})
	half, mute := stall(g)
	for _, c := range []*client{half, mute} {
		_, _ = io.Copy(io.Discard, c) // the edge's answer, then the end
		_ = c.Close()
	}
	g.closed(wirev1.Code_CODE_HANDSHAKE_TIMEOUT, 2)
	// The time is for both, the handshake and Hello.
	c, err := g.over(nil, g.client())
	if err == nil {
		_, _ = io.Copy(io.Discard, c)
	}
	_ = c.Close()
	g.closed(wirev1.Code_CODE_HANDSHAKE_TIMEOUT, 3)
}

func TestTooManyHandshakes(t *testing.T) {
	g := guard(t, handshake.Config{Most: 1}, Config{})
	old := g.dial(g.client())
	old.hello(&wirev1.Hello{})
	_, mute := stall(g)
	eventually(t, "one is under way", func() bool { return g.pool.Stats().UnderWay == 1 })
	c, err := g.over(nil, g.client())
	if err == nil || !strings.Contains(err.Error(), "internal error") {
		t.Fatalf("got %v", err)
	}
	_ = c.Close()
	eventually(t, "refused", func() bool { return g.Stats().Closes[wirev1.Code_CODE_OVERLOADED] == 1 && g.pool.Stats().Refused == 1 })
	// those that are there do not notice
	old.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1})
	old.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	_ = mute.Close()
	eventually(t, "it is gone", func() bool { return g.pool.Stats().UnderWay == 0 })
	g.dial(g.client()).hello(&wirev1.Hello{})
}

func TestStalledHandshakeGivesWay(t *testing.T) {
	g := guard(t, handshake.Config{Most: 1, Patience: time.Millisecond}, Config{})
	_, mute := stall(g)
	_, _ = mute.Read(make([]byte, 1)) // the edge's answer: it waits for the client's now
	eventually(t, "a newcomer gets the place", func() bool {
		c, err := g.over(nil, g.client())
		if err == nil {
			c.hello(&wirev1.Hello{})
		}
		_ = c.Close()
		return err == nil
	})
	_, _ = io.Copy(io.Discard, mute)
	if s := g.pool.Stats(); s.GaveWay != 1 || s.Full == 0 {
		t.Fatalf("%+v", s)
	}
}
