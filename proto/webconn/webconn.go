// Package webconn carries frames of the push protocol in binary WebSocket messages (subprotocol
// pushmesh.v1, docs/websocket.md) over a connection that exists, for clients.
package webconn

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
)

// Subprotocol that is asked for.
const Subprotocol = "pushmesh.v1"

// The opcodes that an edge sends.
const (
	continuation = 0
	binaryFrame  = 2
	closeFrame   = 8
	pingFrame    = 9
	pongFrame    = 10
)

// mostControl is how many bytes a control frame holds.
const mostControl = 125

// Conn is a net.Conn whose bytes are those of frames. Reads answer Pings, and end with io.EOF
// behind Close. One goroutine reads; any may write, each Write as one message.
type Conn struct {
	net.Conn
	r     *bufio.Reader
	left  uint64 // of the frame in hand
	head  [10]byte
	write sync.Mutex
	out   []byte
}

func newConn(c net.Conn) *Conn { return &Conn{Conn: c, r: bufio.NewReaderSize(c, 4<<10)} }

// Upgrade asks for a WebSocket on a connection that has just begun, its TLS included. host is what
// the request names. The connection is the caller's to close where it fails.
func Upgrade(c net.Conn, host string) (*Conn, error) {
	w := newConn(c)
	key := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, rand.Uint64()), rand.Uint64())
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+
		base64.StdEncoding.EncodeToString(key)+"\r\nSec-WebSocket-Protocol: "+Subprotocol+"\r\n\r\n")
	if err != nil {
		return nil, fmt.Errorf("the request for a WebSocket can't be sent: %w", err)
	}
	r, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return nil, fmt.Errorf("the request for a WebSocket is not answered: %w", err)
	}
	defer func() { _ = r.Body.Close() }()
	switch {
	case r.StatusCode != http.StatusSwitchingProtocols:
		why, _ := io.ReadAll(io.LimitReader(r.Body, 200))
		return nil, fmt.Errorf("the request for a WebSocket is answered %s %s", r.Status, why)
	case r.Header.Get("Sec-Websocket-Protocol") != Subprotocol:
		return nil, fmt.Errorf("the server does not speak %s over WebSocket, but %q", Subprotocol, r.Header.Get("Sec-Websocket-Protocol"))
	}
	return w, nil
}

// Read implements net.Conn.
func (w *Conn) Read(b []byte) (int, error) {
	for w.left == 0 {
		if err := w.next(); err != nil {
			return 0, err
		}
	}
	n, err := w.r.Read(b[:min(uint64(len(b)), w.left)])
	w.left -= uint64(n)
	return n, err
}

// next reads a header, and all of a control frame.
func (w *Conn) next() error {
	if _, err := io.ReadFull(w.r, w.head[:2]); err != nil {
		return err
	}
	op, n := w.head[0]&0x0f, uint64(w.head[1])
	switch n {
	case 126:
		if _, err := io.ReadFull(w.r, w.head[:2]); err != nil {
			return err
		}
		n = uint64(binary.BigEndian.Uint16(w.head[:]))
	case 127:
		if _, err := io.ReadFull(w.r, w.head[:8]); err != nil {
			return err
		}
		n = binary.BigEndian.Uint64(w.head[:])
	}
	if op == binaryFrame || op == continuation {
		w.left = n
		return nil
	}
	if n > mostControl {
		return fmt.Errorf("a WebSocket frame with the opcode %d has %d bytes", op, n)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(w.r, payload); err != nil {
		return err
	}
	switch op {
	case pingFrame:
		return w.send(pongFrame, payload)
	case pongFrame:
		return nil
	case closeFrame:
		return io.EOF
	}
	return fmt.Errorf("a WebSocket frame has the opcode %d", op)
}

// Write implements net.Conn.
func (w *Conn) Write(b []byte) (int, error) {
	if err := w.send(binaryFrame, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// send writes b as one frame, masked as RFC 6455 wants it for the sake of proxies.
func (w *Conn) send(op byte, b []byte) error {
	w.write.Lock()
	defer w.write.Unlock()
	w.out = append(w.out[:0], 0x80|op)
	switch n := len(b); {
	case n < 126:
		w.out = append(w.out, 0x80|byte(n))
	case n < 1<<16:
		w.out = binary.BigEndian.AppendUint16(append(w.out, 0x80|126), uint16(n))
	default:
		w.out = binary.BigEndian.AppendUint64(append(w.out, 0x80|127), uint64(n))
	}
	mask := binary.LittleEndian.AppendUint32(nil, rand.Uint32())
	w.out = append(w.out, mask...)
	at := len(w.out)
	w.out = append(w.out, b...)
	for i := range w.out[at:] {
		w.out[at+i] ^= mask[i&3]
	}
	_, err := w.Conn.Write(w.out)
	if cap(w.out) > 64<<10 {
		w.out = nil
	}
	return err
}
