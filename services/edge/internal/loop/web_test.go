package loop

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/admission"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/upgrade"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/wsframe"
)

// webConn is a connection's WebSocket as a test speaks it: what is written goes out as a message,
// in one frame or several, and what is read is what binary messages hold.
type webConn struct {
	net.Conn
	in     *bufio.Reader
	left   []byte
	cut    func(n int) int // bytes of the next frame; nil: all
	closed uint16          // status of the Close that came
	pings  int
}

const wsKey = "dGhlIHNhbXBsZSBub25jZQ=="

func request(extra ...string) string {
	return "GET /any/path HTTP/1.1\r\nHost: edge.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + wsKey + "\r\n" +
		strings.Join(extra, "\r\n") + "\r\n\r\n"
}

const protocolHeader = "Sec-WebSocket-Protocol: pushmesh.v1"

// upgraded asks for a WebSocket on a connection.
func upgraded(t testing.TB, raw net.Conn, extra ...string) *client {
	t.Helper()
	c := &client{t, raw}
	c.write([]byte(request(append(extra, protocolHeader)...)))
	w := &webConn{Conn: c, in: bufio.NewReader(c)}
	r, err := http.ReadResponse(w.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusSwitchingProtocols || r.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || r.Header.Get("Sec-Websocket-Protocol") != "pushmesh.v1" {
		t.Fatalf("%s %v", r.Status, r.Header)
	}
	return &client{t, w}
}

func (w *webConn) Write(b []byte) (int, error) {
	var out []byte
	op := byte(wsframe.Binary)
	for rest := b; op != 0 || len(rest) > 0; op = 0 {
		n := len(rest)
		if w.cut != nil {
			n = min(n, w.cut(n))
		}
		first := op
		if n == len(rest) {
			first |= 0x80
		}
		out, rest = masked(out, first, rest[:n]), rest[n:]
	}
	_, err := w.Conn.Write(out)
	return len(b), err
}

// masked appends a frame of a client.
func masked(dst []byte, first byte, p []byte) []byte {
	h := wsframe.AppendHeader(nil, wsframe.Binary, len(p))
	h[0] = first
	h[1] |= 0x80
	mask := [4]byte{1, 2, 3, 4}
	dst = append(append(dst, h...), mask[:]...)
	for i, b := range p {
		dst = append(dst, b^mask[i%4])
	}
	return dst
}

func (w *webConn) Read(b []byte) (int, error) {
	for len(w.left) == 0 {
		op, p, err := w.next()
		switch {
		case err != nil:
			return 0, err
		case op == wsframe.Binary:
			w.left = p
		case op == wsframe.Ping:
			w.pings++
			if _, err := w.Conn.Write(masked(nil, 0x80|byte(wsframe.Pong), p)); err != nil {
				return 0, err
			}
		case op == wsframe.Close:
			w.closed = wsframe.NoStatus
			if len(p) >= 2 {
				w.closed = binary.BigEndian.Uint16(p)
			}
		}
	}
	n := copy(b, w.left)
	w.left = w.left[n:]
	return n, nil
}

// next is the next frame of the edge's, which are never fragmented.
func (w *webConn) next() (op wsframe.Op, p []byte, err error) {
	var h [2]byte
	if _, err := io.ReadFull(w.in, h[:]); err != nil {
		return 0, nil, err
	}
	if h[0]&0xf0 != 0x80 || h[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("a frame begins with %x", h)
	}
	n := uint64(h[1])
	switch n {
	case 126:
		var l uint16
		err = binary.Read(w.in, binary.BigEndian, &l)
		n = uint64(l)
	case 127:
		err = binary.Read(w.in, binary.BigEndian, &n)
	}
	if err != nil {
		return 0, nil, err
	}
	p = make([]byte, n)
	_, err = io.ReadFull(w.in, p)
	return wsframe.Op(h[0] & 0x0f), p, err
}

// gone waits for the end of the connection, and says with what status it was closed.
func (w *webConn) gone(t *testing.T) uint16 {
	t.Helper()
	if _, err := io.Copy(io.Discard, w); err != nil {
		t.Fatal(err)
	}
	return w.closed
}

func TestWebSocket(t *testing.T) {
	eachSender(t, func(t *testing.T, send SendMode) {
		g := guard(t, handshake.Config{}, Config{Send: send})
		t.Run("plain", func(t *testing.T) { overWebSocket(t, g, dial(t, g.Loop).Conn) })
		t.Run("TLS", func(t *testing.T) { overWebSocket(t, g, g.dial(g.client()).Conn) })
		eventually(t, "nothing is left", func() bool {
			s := g.Stats()
			return s.Upgraded == 2 && s.Closes[wirev1.Code_CODE_OK] == 2 && s.Connections == 0 && s.WebSockets == 0 && s.Secure == 0 && s.QueuedBytes == 0 && s.FrameMemory == 0
		})
	})
}

// overWebSocket subscribes, gets short and long messages, and says goodbye.
func overWebSocket(t *testing.T, g *guarded, raw net.Conn) {
	c := upgraded(t, raw)
	w := c.Conn.(*webConn)
	rnd := rand.New(rand.NewPCG(1, 2))
	w.cut = func(int) int { return 1 + rnd.IntN(20) }
	c.hello(&wirev1.Hello{ClientId: "browser"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	w.cut = nil
	last := uint64(0)
	for i, size := range []int{1, 100, 200, 40_000, 200_000} {
		payload := bytes.Repeat([]byte{byte('a' + i)}, size)
		g.mesh.Send("open/1", string(payload))
		if m := c.message(); !bytes.Equal(m.GetPayload(), payload) || m.GetSeq() <= last {
			t.Fatalf("message %d: %d bytes", m.GetSeq(), len(m.GetPayload()))
		} else {
			last = m.GetSeq()
		}
	}
	if _, err := w.Conn.Write(masked(masked(nil, 0x80|byte(wsframe.Ping), []byte("here?")), 0x80|byte(wsframe.Close), []byte{3, 0xe9, 'b', 'y', 'e'})); err != nil {
		t.Fatal(err)
	}
	if op, p, err := w.next(); op != wsframe.Pong || string(p) != "here?" || err != nil {
		t.Fatalf("got %d %q, %v", op, p, err)
	}
	if got := w.gone(t); got != wsframe.GoingAway {
		t.Errorf("closed with %d", got)
	}
	if err := w.Conn.Close(); err != nil {
		t.Error(err)
	}
}

// A client that takes nothing leaves a message half sent: the rest comes first, whatever was queued
// or dropped since.
func TestAMessageThatWasBegunGoesOn(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
			g := guard(t, handshake.Config{}, Config{})
			raw := dial(t, g.Loop).Conn
			if secure {
				raw = g.dial(g.client()).Conn
			}
			c := upgraded(t, raw)
			c.hello(&wirev1.Hello{ClientId: "slow"})
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
			payload := bytes.Repeat([]byte("0123456789"), 3000)
			const all = 600 // 18 MB
			for range all {
				g.mesh.Send("open/1", string(payload))
			}
			eventually(t, "the socket takes nothing", func() bool { return g.Stats().Stalled > 0 })
			c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 5})
			last := uint64(0)
			for last < all {
				ft, body, err := c.frame()
				if err != nil {
					t.Fatalf("behind message %d: %v", last, err)
				}
				if ft != wirev1.FrameType_FRAME_TYPE_MESSAGE {
					continue
				}
				var m wirev1.Message
				if err := proto.Unmarshal(body, &m); err != nil || m.GetSeq() != last+1 || !bytes.Equal(m.GetPayload(), payload) {
					t.Fatalf("behind %d: %d, %d bytes, %v", last, m.GetSeq(), len(m.GetPayload()), err)
				}
				last++
			}
		})
	}
}

func TestWhatAWebSocketMayNotSend(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	for name, c := range map[string]struct {
		sent []byte
		want uint16
	}{
		"unmasked":          {[]byte{0x82, 1, 0}, wsframe.Protocol},
		"text":              {masked(nil, 0x81, []byte("{}")), wsframe.Unsupported},
		"huge":              {[]byte{0x82, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4}, wsframe.TooLarge},
		"no Hello":          {masked(nil, 0x82, []byte("not a frame")), wsframe.StatusOf(wirev1.Code_CODE_BAD_FRAME)},
		"bad reason":        {masked(nil, 0x88, []byte{3, 0xe8, 0xff}), wsframe.BadData},
		"close of nothing":  {masked(nil, 0x88, nil), wsframe.NoStatus},
		"close of a reason": {masked(nil, 0x88, []byte{0x0b, 0xb8}), 3000},
	} {
		t.Run(name, func(t *testing.T) {
			w := upgraded(t, dial(t, g.Loop).Conn).Conn.(*webConn)
			if _, err := w.Conn.Write(c.sent); err != nil {
				t.Fatal(err)
			}
			if got := w.gone(t); got != c.want {
				t.Errorf("closed with %d, want %d", got, c.want)
			}
		})
	}
}

// answer is what the loop says to a request, up to its end.
func answer(t *testing.T, g *guarded, req string) (status int, body string) {
	t.Helper()
	c := dial(t, g.Loop)
	c.write([]byte(req))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode == http.StatusSwitchingProtocols {
		_ = c.Close()
		return r.StatusCode, ""
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("behind the answer: %v", err)
	}
	return r.StatusCode, string(b)
}

func TestRequestsOnTheSubscribersPort(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	for _, c := range []struct {
		req    string
		status int
		says   string
	}{
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 200, "edge of pushmesh"},
		{"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", 200, "ok"},
		{"GET /livez HTTP/1.0\r\n\r\n", 200, "ok"},
		{"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", 404, "subscribers"},
		{"DELETE / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 405, "GET"},
		{"GARBAGE\r\n\r\n", 400, "HTTP"},
		{"GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 9000) + "\r\n\r\n", 431, "8192"},
		{request("Sec-WebSocket-Protocol: mqtt"), 400, "pushmesh.v1"},
		{strings.Replace(request(protocolHeader), "Version: 13", "Version: 8", 1), 426, "13"},
		{strings.Replace(request(protocolHeader), wsKey, "short", 1), 400, "16 bytes"},
		{request(protocolHeader, "Origin: https://evil.example"), 403, "--websocket-origins"},
		{request(protocolHeader, "Origin: null"), 403, "origin"},
		{request(protocolHeader, "Origin: https://edge.example"), 101, ""},
		{strings.Replace(request(protocolHeader), "/any/path", "/?token=abc", 1), 400, "--websocket-query-token"},
	} {
		if status, body := answer(t, g, c.req); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%.60q: %d %q", c.req, status, body)
		}
	}
	eventually(t, "nothing is left", func() bool {
		s := g.Stats()
		return s.Connections == 0 && s.FrameMemory == 0 && s.WebSockets == 0 && s.Answered == 3 && s.Denied == 10
	})
}

// A request that does not come whole in time is answered so, and one that drips in byte by byte is
// taken.
func TestRequestsThatDrip(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	c := dial(t, g.Loop)
	for _, b := range []byte(request(protocolHeader)) {
		c.write([]byte{b})
	}
	w := &webConn{Conn: c, in: bufio.NewReader(c)}
	r, err := http.ReadResponse(w.in, nil)
	if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	(&client{t, w}).hello(&wirev1.Hello{ClientId: "drips"})

	// long enough for the beginning to come
	late := guard(t, handshake.Config{}, Config{Limits: Limits{HandshakeTimeout: 2 * time.Second}})
	if status, body := answer(t, late, "GET / HT"); status != http.StatusRequestTimeout {
		t.Errorf("%d %q", status, body)
	}
}

// Who floods with Pings and reads nothing has a few Pongs queued, and no more.
func TestAFloodOfPings(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{Buffers: poll.Buffers{Send: 4 << 10, NotSent: 4 << 10}})
	c := upgraded(t, dial(t, g.Loop).Conn)
	c.hello(&wirev1.Hello{ClientId: "floods"})
	var pings []byte
	for range 1000 {
		pings = masked(pings, 0x80|byte(wsframe.Ping), bytes.Repeat([]byte("p"), wsframe.MaxControl))
	}
	before := g.Stats().ReadBytes
	w := c.Conn.(*webConn)
	for range 80 { // 10 MB
		if _, err := w.Conn.Write(pings); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all is read", func() bool { return g.Stats().ReadBytes-before >= uint64(80*len(pings)) })
	if s := g.Stats(); s.QueuedBytes > mostPongs+1024 {
		t.Errorf("%d bytes are queued", s.QueuedBytes)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
	var pong wirev1.Pong
	for op := wsframe.Pong; op != wsframe.Binary; {
		var err error
		if op, w.left, err = w.next(); err != nil {
			t.Fatal(err)
		}
	}
	if c.read(wirev1.FrameType_FRAME_TYPE_PONG, &pong); pong.GetSentAt() != 7 {
		t.Errorf("%v", &pong)
	}
}

// The edge asks a silent client for a Pong, which keeps the connection; one that does not answer is
// closed.
func TestASilentWebSocketIsAsked(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	c := upgraded(t, dial(t, g.Loop).Conn)
	c.hello(&wirev1.Hello{ClientId: "hidden", HeartbeatMs: 2500})
	w := c.Conn.(*webConn)
	for w.pings < 2 { // 6.25 s, which is as long as a client may be silent
		op, p, err := w.next()
		if err != nil || op != wsframe.Ping {
			t.Fatalf("got %d %q, %v, after %d Pings", op, p, err, w.pings)
		}
		w.pings++
		if _, err := w.Conn.Write(masked(nil, 0x80|byte(wsframe.Pong), p)); err != nil {
			t.Fatal(err)
		}
	}
	ops := []wsframe.Op{wsframe.Ping, wsframe.Binary, wsframe.Close} // the binary one is the Error
	for _, want := range ops {
		op, p, err := w.next()
		if op != want || err != nil {
			t.Fatalf("got %d %q, %v, want %d", op, p, err, want)
		}
		if op == wsframe.Close && binary.BigEndian.Uint16(p) != wsframe.StatusOf(wirev1.Code_CODE_IDLE_TIMEOUT) {
			t.Errorf("closed with %x", p)
		}
	}
}

func TestTheAddressThatAProxyNames(t *testing.T) {
	proxies, err := admission.ParsePrefixes("", []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	door := admission.New(admission.Limits{AddressConnections: 1, Forwarders: proxies})
	g := guard(t, handshake.Config{}, Config{Door: door, Web: &upgrade.Policy{Forwards: door.Forwards}})
	first := upgraded(t, dial(t, g.Loop).Conn, "X-Forwarded-For: 9.9.9.9, 203.0.113.7, 127.0.0.1")
	first.hello(&wirev1.Hello{ClientId: "a"})
	upgraded(t, dial(t, g.Loop).Conn, "X-Forwarded-For: 203.0.113.8").hello(&wirev1.Hello{ClientId: "b"})
	second := upgraded(t, dial(t, g.Loop).Conn, "X-Forwarded-For: 203.0.113.7:4711")
	if e, whole := second.refusal(); whole && e.GetCode() != wirev1.Code_CODE_TOO_MANY_CONNECTIONS {
		t.Errorf("%v", e)
	}
	eventually(t, "the refusal is told", func() bool { return g.Stats().LastRefused == netip.MustParseAddr("203.0.113.7") })
	_ = first.Close()
	eventually(t, "there is room again", func() bool { return g.Stats().Connections == 1 })
	upgraded(t, dial(t, g.Loop).Conn, "X-Forwarded-For: 203.0.113.7").hello(&wirev1.Hello{ClientId: "c"})
}
