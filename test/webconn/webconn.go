// Package webconn carries native frames in WebSocket messages over a connection that exists, with
// as little of its own as can be, for measurements and replays. Clients that are not ours are tried
// elsewhere.
package webconn

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

const ask = "GET / HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: pushmesh.v1\r\n\r\n"

// The opcodes that an edge sends.
const (
	binaryFrame = 2
	closeFrame  = 8
	pingFrame   = 9
	pongFrame   = 10
)

// Conn is a net.Conn whose bytes are those of frames. Reads answer Pings.
type Conn struct {
	net.Conn
	r     *bufio.Reader
	left  uint64 // of the message in hand
	head  [10]byte
	out   []byte
	write sync.Mutex
}

// Upgrade asks for a WebSocket on a connection that has just begun.
func Upgrade(c net.Conn) (*Conn, error) {
	w := &Conn{Conn: c, r: bufio.NewReaderSize(c, 4<<10)}
	if _, err := io.WriteString(c, ask); err != nil {
		return nil, err
	}
	r, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("the edge answers %s", r.Status)
	}
	return w, r.Body.Close()
}

// Read reads what binary messages hold; io.EOF behind Close.
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
	if op == binaryFrame {
		w.left = n
		return nil
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(w.r, payload); err != nil {
		return err
	}
	switch op {
	case pingFrame:
		return w.send(pongFrame, payload)
	case closeFrame:
		return io.EOF
	}
	return fmt.Errorf("the edge sends a frame with the opcode %d", op)
}

// Write sends b as one message.
func (w *Conn) Write(b []byte) (int, error) {
	if err := w.send(binaryFrame, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// send masks with 0, which is a mask as good as any to an edge, and costs nothing.
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
	w.out = append(append(w.out, 0, 0, 0, 0), b...)
	_, err := w.Conn.Write(w.out)
	return err
}
