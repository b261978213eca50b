// Package websocket connects to a mesh with what others have made: the cases of Autobahn's test
// suite, sent as bytes; WebSocket clients of npm, Go and Debian; proxies; and, apart, a browser.
package websocket

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

// Opcodes, and status codes of Close, of RFC 6455.
const (
	opContinuation, opText, opBinary, opClose, opPing, opPong = 0, 1, 2, 8, 9, 10

	statusNormal, statusGoingAway, statusProtocol, statusUnsupported, statusNone, statusBadData = 1000, 1001, 1002, 1003, 1005, 1007
	// and the code
	statusOurs = 4000
)

const fin = 0x80

// patience is how long a connection may last; a busy machine is no failure.
const patience = time.Minute

// frame is a frame as a client sends it. first is FIN, the reserved bits and the opcode.
func frame(first byte, payload []byte) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = append(b, 0x80|126, byte(n>>8), byte(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:]) // it never fails
	b = append(b, mask[:]...)
	at := len(b)
	b = append(b, payload...)
	for i := range payload {
		b[at+i] ^= mask[i%4]
	}
	return b
}

// closeFrame is a Close frame.
func closeFrame(status uint16, reason string) []byte {
	return frame(fin|opClose, append(binary.BigEndian.AppendUint16(nil, status), reason...))
}

// fragments is a message in frames of size bytes at most.
func fragments(op byte, payload []byte, size int) (all [][]byte) {
	for first := op; ; first = opContinuation {
		n := min(size, len(payload))
		if n == len(payload) {
			return append(all, frame(fin|first, payload))
		}
		all = append(all, frame(first, payload[:n]))
		payload = payload[n:]
	}
}

// conn is a WebSocket of which every byte is the test's.
type conn struct {
	net.Conn
	in *bufio.Reader
	carrier
}

// carrier is what messages are: frames of the mesh in binary messages or, of pushmesh.v1.json, in
// text messages.
type carrier struct{ text bool }

// upgrade asks for a WebSocket on a connection.
func upgrade(raw net.Conn, headers ...string) (*conn, error) {
	request := "GET / HTTP/1.1\r\nHost: edge.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
		strings.Join(headers, "\r\n") + "\r\n\r\n"
	err := raw.SetDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = io.WriteString(raw, request)
	}
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, in: bufio.NewReader(raw)}
	r, err := http.ReadResponse(c.in, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the request was not answered: %w", err)
	case r.StatusCode != http.StatusSwitchingProtocols:
		_ = r.Body.Close()
		return nil, fmt.Errorf("the request was answered %s", r.Status)
	case r.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", r.Header.Get("Sec-Websocket-Extensions") != "":
		return nil, fmt.Errorf("the request was answered with %v", r.Header)
	}
	c.text = r.Header.Get("Sec-Websocket-Protocol") == jsonText
	return c, nil
}

// The subprotocols.
const (
	native   = "pushmesh.v1"
	jsonText = "pushmesh.v1.json"
)

// open upgrades a new connection to addr.
func open(t *testing.T, addr, subprotocol string) *conn {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	c, err := upgrade(raw, "Sec-WebSocket-Protocol: "+subprotocol)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// content is what a message holds that carries a frame.
func (c carrier) content(ft wirev1.FrameType, m proto.Message) []byte {
	if c.text {
		return asText(ft, m)
	}
	b, err := wire.Append(nil, ft, m)
	if err != nil {
		panic(err) // it is the test's own
	}
	return b
}

// asText is a frame as JSON.
func asText(ft wirev1.FrameType, m proto.Message) []byte {
	b, err := protojson.Marshal(m)
	if err != nil {
		panic(err) // it is the test's own
	}
	return fmt.Appendf(nil, `{"%s":%s}`, strings.ToLower(strings.TrimPrefix(ft.String(), "FRAME_TYPE_")), b)
}

// op is that of the messages of the subprotocol.
func (c carrier) op() byte {
	if c.text {
		return opText
	}
	return opBinary
}

// send sends a frame of the mesh in a message.
func (c *conn) send(ft wirev1.FrameType, m proto.Message) error {
	_, err := c.Write(frame(fin|c.op(), c.content(ft, m)))
	return err
}

// next is the edge's next WebSocket frame, which is never fragmented and never masked.
func (c *conn) next() (op byte, payload []byte, err error) {
	var h [2]byte
	if _, err := io.ReadFull(c.in, h[:]); err != nil {
		return 0, nil, err
	}
	if h[0]&0xf0 != fin || h[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("a frame of the edge begins with %x", h)
	}
	n := uint64(h[1])
	switch n {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(c.in, b[:])
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		_, err = io.ReadFull(c.in, b[:])
		n = binary.BigEndian.Uint64(b[:])
	}
	if err != nil {
		return 0, nil, err
	}
	if n > wire.MaxBody {
		return 0, nil, fmt.Errorf("a frame of the edge is %d bytes long", n)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(c.in, payload)
	return h[0] & 0x0f, payload, err
}

// seen is what has come from an edge.
type seen struct {
	pongs    []string
	answers  []uint64 // sent_at of Pong frames of the mesh
	messages []*wirev1.Message
	errors   []*wirev1.Error
	others   []proto.Message
	pings    int
	status   uint16 // of Close; 0: none has come
}

// take reads one WebSocket frame into s. Pings are answered.
func (c *conn) take(s *seen) error {
	op, p, err := c.next()
	switch {
	case err != nil:
		return err
	case s.status != 0:
		return fmt.Errorf("behind Close comes a frame with opcode %d", op)
	case op == opPong:
		s.pongs = append(s.pongs, string(p))
	case op == opPing:
		s.pings++
		_, err = c.Write(frame(fin|opPong, p))
	case op == opClose && len(p) == 0:
		s.status = statusNone
	case op == opClose && len(p) > 1:
		s.status = binary.BigEndian.Uint16(p)
	case op == c.op():
		err = c.message(s, p)
	default:
		err = fmt.Errorf("a frame with opcode %d, %d bytes", op, len(p))
	}
	return err
}

// message takes what a message holds: whole frames of the mesh.
func (c *conn) message(s *seen, p []byte) error {
	if c.text {
		m, err := fromText(p)
		if err == nil {
			s.add(m)
		}
		return err
	}
	if len(p) == 0 {
		return errors.New("an empty message")
	}
	for len(p) > 0 {
		n, ft, ok := wire.Header(p)
		if !ok || len(p) < wire.HeaderSize+n {
			return fmt.Errorf("a message ends within a frame: %d bytes are left, a frame has %d", len(p), n)
		}
		m, err := wireclient.Frame(ft, p[wire.HeaderSize:wire.HeaderSize+n])
		if err != nil {
			return err
		}
		s.add(m)
		p = p[wire.HeaderSize+n:]
	}
	return nil
}

func (s *seen) add(m proto.Message) {
	switch m := m.(type) {
	case *wirev1.Pong:
		s.answers = append(s.answers, m.GetSentAt())
	case *wirev1.Message:
		s.messages = append(s.messages, m)
	case *wirev1.Error:
		s.errors = append(s.errors, m)
	default:
		s.others = append(s.others, m)
	}
}

// until takes frames until ok.
func (c *conn) until(s *seen, what string, ok func() bool) error {
	for !ok() {
		if err := c.take(s); err != nil {
			return fmt.Errorf("waiting for %s, with %d Pongs, %d answers, %d messages, %v, %v, status %d: %w", what, len(s.pongs), len(s.answers), len(s.messages), s.errors, s.others, s.status, err)
		}
	}
	return nil
}

// end takes frames until the edge has closed the connection, after Close.
func (c *conn) end(s *seen) error {
	for {
		err := c.take(s)
		switch {
		case errors.Is(err, io.EOF) && s.status != 0:
			return nil
		case err != nil:
			return fmt.Errorf("waiting for the end, with %d Pongs, %d answers, %v, status %d: %w", len(s.pongs), len(s.answers), s.errors, s.status, err)
		}
	}
}

// hello says Hello and waits for Welcome.
func (c *conn) hello(h *wirev1.Hello) error {
	h.Version = wire.Version
	if h.GetHeartbeatMs() == 0 {
		h.HeartbeatMs = 600_000
	}
	if err := c.send(wirev1.FrameType_FRAME_TYPE_HELLO, h); err != nil {
		return err
	}
	_, err := expect[*wirev1.Welcome](c, &seen{}, "Welcome")
	return err
}

// expect waits for a frame of the mesh.
func expect[M proto.Message](c *conn, s *seen, what string) (M, error) {
	for {
		for i, m := range s.others {
			if is, ok := m.(M); ok {
				s.others = s.others[i+1:]
				return is, nil
			}
		}
		n := len(s.others)
		if err := c.until(s, what, func() bool { return len(s.others) > n || len(s.errors) > 0 }); err != nil || len(s.errors) > 0 {
			var none M
			return none, errors.Join(fmt.Errorf("no %s, but %v", what, s.errors), err)
		}
	}
}
