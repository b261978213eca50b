package pushmesh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

const (
	readBuffer = 4 << 10
	// maxQueued is how many bytes may wait for a socket that takes none before the connection is
	// given up.
	maxQueued = 4 << 20
)

// base is what this process's opaque Ping times count from.
var base = time.Now()

// link is one connection to an edge. One goroutine reads it; anybody writes through w. A timer, not
// a goroutine, sends the Pings, so that no handler can hold them up.
type link struct {
	conn    net.Conn
	br      *bufio.Reader
	w       writer
	welcome *wirev1.Welcome
	beat    time.Duration
	rtt     atomic.Uint32 // µs, of the last Ping that was answered
	// unreported is rtt until a Ping has told the edge; 0: nothing new.
	unreported atomic.Uint32
	// waiting is when the reader began to wait for the socket, since base; 0: it doesn't wait.
	waiting atomic.Int64
	body    []byte // of the frame last returned by next, where it lies outside br
	skip    int    // bytes of br that it took

	mu     sync.Mutex
	pinger *time.Timer
	closed bool
}

func newLink(conn net.Conn) *link {
	l := &link{conn: conn}
	l.w.conn = conn
	l.br = bufio.NewReaderSize(heardReader{l}, readBuffer)
	return l
}

// heardReader notes when the reader waits, so that the pinger can tell a silent edge from a busy
// handler.
type heardReader struct{ l *link }

func (r heardReader) Read(p []byte) (int, error) {
	r.l.waiting.Store(int64(time.Since(base)))
	n, err := r.l.conn.Read(p)
	r.l.waiting.Store(0)
	return n, err
}

// open dials, says Hello and waits for Welcome.
func (s *Subscriber) open(ctx context.Context, at place) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	hello := &wirev1.Hello{
		Version: wire.Version, ClientId: s.clientID(), Session: s.cfg.Session, HeartbeatMs: milliseconds(s.cfg.Heartbeat),
		ReceiveWindow: uint32(s.cfg.ReceiveWindow), Agent: s.cfg.Agent, SessionTtlS: uint32((s.cfg.SessionTTL + time.Second - 1) / time.Second),
		Profile: s.cfg.Profile, ProfileVector: s.cfg.ProfileVector,
	}
	if s.cfg.Token != nil {
		token, err := s.cfg.Token(ctx)
		if err != nil {
			return nil, fmt.Errorf("pushmesh: token: %w", err)
		}
		hello.Token = token
	}
	frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	if err != nil {
		return nil, &Error{Code: wirev1.Code_CODE_INVALID_ARGUMENT, Message: err.Error()}
	}
	if len(frame)-wire.HeaderSize > wire.MaxHello {
		return nil, &Error{Code: wirev1.Code_CODE_FRAME_TOO_LARGE, Message: fmt.Sprintf("Hello has %d bytes, %d at most: a shorter Token, Profile or ProfileVector helps", len(frame)-wire.HeaderSize, wire.MaxHello)}
	}
	conn, err := s.dial(ctx, at)
	if err != nil {
		return nil, err
	}
	l := newLink(conn)
	stop := context.AfterFunc(ctx, func() { l.close() })
	err = l.handshake(frame, at.addr)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *link) handshake(hello []byte, addr string) error {
	if _, err := l.conn.Write(hello); err != nil {
		return fmt.Errorf("pushmesh: no answer from %s: %w", addr, err)
	}
	if head, err := l.br.Peek(wire.HeaderSize); err == nil && !greets(head) {
		return &noEdge{addr}
	}
	for {
		t, body, err := l.next()
		if err != nil {
			return &unanswered{addr, err}
		}
		switch t {
		case wirev1.FrameType_FRAME_TYPE_WELCOME:
			l.welcome = &wirev1.Welcome{}
			if err := proto.Unmarshal(body, l.welcome); err != nil {
				return errBadMessage
			}
			l.w.most = int(l.welcome.GetMaxFrame())
			l.beat = max(time.Duration(l.welcome.GetHeartbeatMs())*time.Millisecond, time.Second)
			if l.welcome.GetHeartbeatMs() == 0 {
				l.beat = 30 * time.Second
			}
			return nil
		case wirev1.FrameType_FRAME_TYPE_ERROR:
			return decodeError(body)
		case wirev1.FrameType_FRAME_TYPE_GO_AWAY:
			return decodeGoAway(body)
		}
	}
}

// greets reports whether an edge may have answered Hello with a frame that begins so. What gRPC,
// HTTP and TLS servers say first looks like other frames, or like very long ones.
func greets(head []byte) bool {
	n, t, _ := wire.Header(head)
	switch t {
	case wirev1.FrameType_FRAME_TYPE_WELCOME, wirev1.FrameType_FRAME_TYPE_ERROR, wirev1.FrameType_FRAME_TYPE_GO_AWAY:
		return n <= wire.DefaultMaxFrame
	}
	_, known := wirev1.FrameType_name[int32(t)]
	return !known && n <= wire.DefaultMaxFrame // of a later version
}

// next reads one frame. body is valid until the next call.
func (l *link) next() (wirev1.FrameType, []byte, error) {
	if l.skip > 0 {
		if _, err := l.br.Discard(l.skip); err != nil {
			return 0, nil, err
		}
		l.skip = 0
	}
	l.body = nil
	head, err := l.br.Peek(wire.HeaderSize)
	if err != nil {
		return 0, nil, err
	}
	n, t, _ := wire.Header(head)
	if wire.HeaderSize+n <= l.br.Size() {
		frame, err := l.br.Peek(wire.HeaderSize + n)
		if err != nil {
			return t, nil, err
		}
		l.skip = wire.HeaderSize + n
		return t, frame[wire.HeaderSize:], nil
	}
	if _, err := l.br.Discard(wire.HeaderSize); err != nil {
		return t, nil, err
	}
	l.body = make([]byte, n)
	_, err = io.ReadFull(l.br, l.body)
	return t, l.body, err
}

// close ends the connection at once. It may be called often.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.pinger != nil {
		l.pinger.Stop()
	}
	// The error is that of a connection that is being given up.
	_ = l.conn.Close()
}

// hangUp sends what waits and lets the edge read it: closing with unread bytes in the socket would
// reset the connection and take the last ACKs with it.
func (l *link) hangUp(within time.Duration) {
	_ = l.w.flush()
	if c, ok := l.conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		if l.conn.SetReadDeadline(time.Now().Add(within)) == nil {
			_, _ = io.Copy(io.Discard, l.conn)
		}
	}
	l.close()
}

// writer coalesces: whoever finds it idle writes for everybody who appends meanwhile.
type writer struct {
	conn  net.Conn
	most  int // bytes of a body that the edge takes; 0: it did not say
	mu    sync.Mutex
	buf   []byte
	spare []byte
	busy  bool
	since time.Duration // when the write under way began, since base
	err   error
}

var errStuck = errors.New("pushmesh: the edge takes no bytes")

// append puts frames into the buffer without writing it.
func (w *writer) append(f func([]byte) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if len(w.buf) > maxQueued {
		w.err = errStuck
		_ = w.conn.Close()
		return
	}
	if w.buf == nil {
		w.buf, w.spare = w.spare, nil
	}
	w.buf = f(w.buf)
}

// put appends one frame without writing it. One that can't be encoded, or that the edge would close
// the connection for, is refused alone.
func (w *writer) put(t wirev1.FrameType, m proto.Message) (bad *Error) {
	w.append(func(b []byte) []byte {
		out, err := wire.Append(b, t, m)
		size := len(out) - len(b) - wire.HeaderSize
		switch {
		case err != nil:
			bad = invalid("%v", err)
		case w.most > 0 && size > w.most:
			bad = &Error{Code: wirev1.Code_CODE_FRAME_TOO_LARGE, Message: fmt.Sprintf("it has %d bytes as a frame, and the edge takes %d", size, w.most)}
		default:
			return out
		}
		return b
	})
	return bad
}

// send appends one frame and flushes.
func (w *writer) send(t wirev1.FrameType, m proto.Message) error {
	if bad := w.put(t, m); bad != nil {
		return bad
	}
	return w.flush()
}

// flush writes until nothing is left, unless somebody else is at it.
func (w *writer) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.busy && len(w.buf) > 0 && w.err == nil {
		out := w.buf
		w.buf, w.busy, w.since = nil, true, time.Since(base)
		w.mu.Unlock()
		_, err := w.conn.Write(out)
		w.mu.Lock()
		w.busy = false
		if cap(out) <= readBuffer {
			w.spare = out[:0]
		}
		if err != nil {
			w.err = err
			_ = w.conn.Close() // the reader finds out
		}
	}
	return w.err
}

// stuckFor is how long the write under way has taken.
func (w *writer) stuckFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.busy {
		return 0
	}
	return time.Since(base) - w.since
}
