// Package link is one connection to an edge: its frames, in and out, and its Pings.
package link

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// ReadBuffer is how many bytes are read ahead. A frame beyond that has memory of its own.
const ReadBuffer = 4 << 10

// Conn is one connection to an edge. One goroutine reads it; anybody writes. A timer, not a
// goroutine, sends the Pings, so that no handler can hold them up.
type Conn struct {
	writer
	br      *bufio.Reader
	welcome *wirev1.Welcome
	beat    time.Duration
	rtt     atomic.Uint32 // µs, of the last Ping that was answered
	// unreported is rtt until a Ping has told the edge; 0: nothing new.
	unreported atomic.Uint32
	// waiting is when the reader began to wait for the socket, by clock; 0: it doesn't wait.
	waiting atomic.Int64
	body    []byte // of the frame last returned by Next, where it lies outside br
	skip    int    // bytes of br that it took

	mu     sync.Mutex
	pinger *time.Timer
	closed bool
}

// New is a connection over conn.
func New(conn net.Conn) *Conn {
	c := &Conn{writer: writer{conn: conn, clock: newClock()}}
	c.br = bufio.NewReaderSize(heardReader{c}, ReadBuffer)
	return c
}

// clock is what a connection counts times from: a moment before it began, so that 0 is none of
// them.
type clock struct{ start time.Time }

func newClock() clock { return clock{time.Now().Add(-1)} }

func (c clock) now() time.Duration { return time.Since(c.start) }

// heardReader notes when the reader waits, so that the pinger can tell a silent edge from a busy
// handler.
type heardReader struct{ c *Conn }

func (r heardReader) Read(p []byte) (int, error) {
	r.c.waiting.Store(int64(r.c.clock.now()))
	n, err := r.c.conn.Read(p)
	r.c.waiting.Store(0)
	return n, err
}

// Unanswered is the end of a connection whose Hello was sent and not answered.
type Unanswered struct {
	Addr string
	Err  error
}

func (u *Unanswered) Error() string {
	if errors.Is(u.Err, net.ErrClosed) || errors.Is(u.Err, os.ErrDeadlineExceeded) {
		return "pushmesh: " + u.Addr + " accepts connections but does not answer: is it an edge's port (7400)?"
	}
	return "pushmesh: " + u.Addr + " ended the connection without an answer (" + u.Err.Error() + "): is it an edge's port (7400), and does it want TLS?"
}

func (u *Unanswered) Unwrap() error { return u.Err }

// Greet sends a Hello frame to the edge at addr and returns its answer: the first Welcome, Error or
// GoAway.
func (c *Conn) Greet(hello []byte, addr string) (wirev1.FrameType, []byte, error) {
	if _, err := c.conn.Write(hello); err != nil {
		return 0, nil, fmt.Errorf("pushmesh: no answer from %s: %w", addr, err)
	}
	if head, err := c.br.Peek(wire.HeaderSize); err == nil && !greets(head) {
		return 0, nil, errors.New("pushmesh: " + addr + " accepts connections but does not speak pushmesh: is it an edge's port (7400)?")
	}
	for {
		t, body, err := c.Next()
		switch {
		case err != nil:
			return 0, nil, &Unanswered{addr, err}
		case answersHello(t):
			return t, body, nil
		}
	}
}

func answersHello(t wirev1.FrameType) bool {
	switch t {
	case wirev1.FrameType_FRAME_TYPE_WELCOME, wirev1.FrameType_FRAME_TYPE_ERROR, wirev1.FrameType_FRAME_TYPE_GO_AWAY:
		return true
	}
	return false
}

// greets reports whether an edge may have answered Hello with a frame that begins so. What gRPC,
// HTTP and TLS servers say first looks like other frames, or like very long ones.
func greets(head []byte) bool {
	n, t, _ := wire.Header(head)
	_, known := wirev1.FrameType_name[int32(t)]
	// an unknown one is of a later version
	return (answersHello(t) || !known) && n <= wire.DefaultMaxFrame
}

// SetWelcome notes what the edge said in its Welcome, before anything else is read or written.
func (c *Conn) SetWelcome(w *wirev1.Welcome) {
	c.welcome = w
	c.most = int(w.GetMaxFrame())
	c.beat = max(time.Duration(w.GetHeartbeatMs())*time.Millisecond, time.Second)
	if w.GetHeartbeatMs() == 0 {
		c.beat = 30 * time.Second
	}
}

// Welcome is what the edge said in its Welcome.
func (c *Conn) Welcome() *wirev1.Welcome { return c.welcome }

// Next reads one frame. body is valid until the next call.
func (c *Conn) Next() (wirev1.FrameType, []byte, error) {
	if c.skip > 0 {
		if _, err := c.br.Discard(c.skip); err != nil {
			return 0, nil, err
		}
		c.skip = 0
	}
	c.body = nil
	head, err := c.br.Peek(wire.HeaderSize)
	if err != nil {
		return 0, nil, err
	}
	n, t, _ := wire.Header(head)
	if wire.HeaderSize+n <= c.br.Size() {
		frame, err := c.br.Peek(wire.HeaderSize + n)
		if err != nil {
			return t, nil, err
		}
		c.skip = wire.HeaderSize + n
		return t, frame[wire.HeaderSize:], nil
	}
	if _, err := c.br.Discard(wire.HeaderSize); err != nil {
		return t, nil, err
	}
	c.body = make([]byte, n)
	_, err = io.ReadFull(c.br, c.body)
	return t, c.body, err
}

// ReadUntil has reads fail from a time on.
func (c *Conn) ReadUntil(at time.Time) error { return c.conn.SetReadDeadline(at) }

// Close ends the connection at once. It may be called often.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	if c.pinger != nil {
		c.pinger.Stop()
	}
	// The error is that of a connection that is being given up.
	_ = c.conn.Close()
}

// HangUp sends what waits and lets the edge read it: closing with unread bytes in the socket would
// reset the connection and take the last ACKs with it.
func (c *Conn) HangUp(within time.Duration) {
	_ = c.Flush()
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		if c.conn.SetReadDeadline(time.Now().Add(within)) == nil {
			_, _ = io.Copy(io.Discard, c.conn)
		}
	}
	c.Close()
}
