// Package webconn carries frames of the push protocol in binary WebSocket messages (subprotocol
// pushmesh.v1, docs/websocket.md) over a connection that exists, for clients.
package webconn

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
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
	shut  bool // Close was said: nothing comes behind it
}

func newConn(c net.Conn) *Conn { return &Conn{Conn: c, r: bufio.NewReaderSize(c, 4<<10)} }

// Request is what asks for a WebSocket. host is that of the server, and may have a port.
func Request(host, subprotocol string) string {
	key := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, rand.Uint64()), rand.Uint64())
	return "GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		base64.StdEncoding.EncodeToString(key) + "\r\nSec-WebSocket-Protocol: " + subprotocol + "\r\n\r\n"
}

// Upgrade asks for a WebSocket on a connection that has just begun, its TLS included, and closes it
// where there will be none, or ctx ends before. host is what the request names.
func Upgrade(ctx context.Context, c net.Conn, host string) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	w, err := upgrade(c, host)
	if !stop() {
		return nil, ctx.Err() // which has closed it
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return w, nil
}

func upgrade(c net.Conn, host string) (*Conn, error) {
	w := newConn(c)
	if _, err := io.WriteString(c, Request(host, Subprotocol)); err != nil {
		return nil, fmt.Errorf("the request for a WebSocket can't be sent: %w", err)
	}
	r, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return nil, fmt.Errorf("the request for a WebSocket is not answered by HTTP: %w", err)
	}
	defer func() { _ = r.Body.Close() }()
	switch {
	case r.StatusCode != http.StatusSwitchingProtocols:
		why, _ := io.ReadAll(io.LimitReader(r.Body, 200))
		return nil, fmt.Errorf("the request for a WebSocket is answered %s: %s", r.Status, bytes.TrimSpace(why))
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
		if err := w.send(pongFrame, payload); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
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

// CloseWrite says Close, with status 1000: nothing is written behind it. Reads end where the server
// has said so, too; whoever closes before may take what was written along.
func (w *Conn) CloseWrite() error {
	return w.send(closeFrame, binary.BigEndian.AppendUint16(nil, normalClosure))
}

// normalClosure is the status of a connection that has served its purpose.
const normalClosure = 1000

// final is the bit of a frame that ends its message.
const final = 0x80

func (w *Conn) send(op byte, b []byte) error {
	w.write.Lock()
	defer w.write.Unlock()
	if w.shut {
		return net.ErrClosed
	}
	w.shut = op == closeFrame
	w.out = AppendFrame(w.out[:0], final|op, b)
	_, err := w.Conn.Write(w.out)
	if cap(w.out) > 64<<10 {
		w.out = nil
	}
	return err
}

// AppendFrame appends a client's frame of WebSocket whose first byte is given, masked as RFC 6455
// wants it for the sake of proxies.
func AppendFrame(dst []byte, first byte, b []byte) []byte {
	dst = append(dst, first)
	switch n := len(b); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 0x80|127), uint64(n))
	}
	var mask [4]byte
	binary.LittleEndian.PutUint32(mask[:], rand.Uint32())
	dst = append(dst, mask[:]...)
	at := len(dst)
	dst = append(dst, b...)
	for i := range dst[at:] {
		dst[at+i] ^= mask[i&3]
	}
	return dst
}
