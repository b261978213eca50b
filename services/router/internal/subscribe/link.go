package subscribe

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

const (
	readBuffer = 16 << 10
	// heartbeat of the router's own Pings.
	heartbeat = 5 * time.Second
)

// link is a connection to an edge. One goroutine reads it; anybody writes through up, whose
// goroutine sends.
type link struct {
	conn     net.Conn
	edge     interest.Edge
	br       *bufio.Reader
	up       *toEdge
	welcome  *wirev1.Welcome
	greeting []byte // body of Welcome
	away     *code.Error
	body     []byte      // of the frame last returned by next, where it lies outside br
	skip     int         // bytes of br that it took
	release  func() bool // of the stream's context
	closed   sync.Once
}

func newLink(conn net.Conn, silent time.Duration) *link {
	return &link{conn: conn, br: bufio.NewReaderSize(patient{conn, silent}, readBuffer), up: newUpward(conn, silent)}
}

// patient reads with a patience for each read. A reader that waits for its own side, and not for
// the edge, is not judged.
type patient struct {
	net.Conn
	silent time.Duration
}

func (p patient) Read(b []byte) (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(p.silent)); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

func gone(text string) *code.Error {
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, retrySoon, text)
}

// broken is the reason in what a read or a write failed with.
func broken(err error) *code.Error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return gone("the edge stopped answering")
	}
	return gone("the connection to the edge ended")
}

// handshake says Hello and waits for Welcome. Its error has the edge's reason.
func (l *link) handshake(hello *wirev1.Hello) error {
	frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	if err != nil {
		return invalid("hello: %v", err)
	}
	if len(frame)-wire.HeaderSize > wire.MaxHello {
		return code.New(wirev1.Code_CODE_FRAME_TOO_LARGE, "hello is too long: it has more than 4 KiB together with what the router adds")
	}
	if _, err := l.conn.Write(frame); err != nil {
		return broken(err)
	}
	for {
		t, body, err := l.next()
		if err != nil {
			return err
		}
		switch t {
		case wirev1.FrameType_FRAME_TYPE_WELCOME:
			l.welcome, l.greeting = &wirev1.Welcome{}, append([]byte(nil), body...)
			if err := proto.Unmarshal(body, l.welcome); err != nil {
				return code.New(wirev1.Code_CODE_INTERNAL, "the edge's Welcome can't be decoded")
			}
			return nil
		case wirev1.FrameType_FRAME_TYPE_ERROR, wirev1.FrameType_FRAME_TYPE_GO_AWAY:
			e, _ := reason(t, body)
			return e
		}
	}
}

// reason of an Error or GoAway, and the request that it answers.
func reason(t wirev1.FrameType, body []byte) (*code.Error, uint32) {
	bad := code.New(wirev1.Code_CODE_INTERNAL, "the edge's frame can't be decoded")
	if t == wirev1.FrameType_FRAME_TYPE_GO_AWAY {
		var m wirev1.GoAway
		if proto.Unmarshal(body, &m) != nil {
			return bad, 0
		}
		return code.Retry(m.GetCode(), time.Duration(m.GetReconnectAfterMs())*time.Millisecond, m.GetReason()), 0
	}
	var m wirev1.Error
	if proto.Unmarshal(body, &m) != nil {
		return bad, 0
	}
	return code.Retry(m.GetCode(), time.Duration(m.GetRetryAfterMs())*time.Millisecond, m.GetMessage()), m.GetRef()
}

// next reads one frame. body is valid until the next call. Its error has a reason.
func (l *link) next() (wirev1.FrameType, []byte, error) {
	t, body, err := l.read()
	switch {
	case err == nil:
		return t, body, nil
	case l.away != nil:
		return 0, nil, l.away
	}
	return 0, nil, broken(err)
}

func (l *link) read() (wirev1.FrameType, []byte, error) {
	if _, err := l.br.Discard(l.skip); err != nil {
		return 0, nil, err
	}
	l.skip, l.body = 0, nil
	head, err := l.br.Peek(wire.HeaderSize)
	if err != nil {
		return 0, nil, err
	}
	n, t, _ := wire.Header(head)
	if wire.HeaderSize+n <= l.br.Size() {
		frame, err := l.br.Peek(wire.HeaderSize + n)
		if err != nil {
			return 0, nil, err
		}
		l.skip = wire.HeaderSize + n
		return t, frame[wire.HeaderSize:], nil
	}
	if _, err := l.br.Discard(wire.HeaderSize); err != nil {
		return 0, nil, err
	}
	l.body = make([]byte, n)
	_, err = io.ReadFull(l.br, l.body)
	return t, l.body, err
}

// more reports whether next has a whole frame without waiting.
func (l *link) more() bool {
	ready, err := l.br.Peek(min(l.br.Buffered(), l.skip+wire.HeaderSize))
	if err != nil || len(ready) < l.skip+wire.HeaderSize {
		return false
	}
	n, _, _ := wire.Header(ready[l.skip:])
	return l.br.Buffered() >= l.skip+wire.HeaderSize+n
}

// finish sends what waits and says that nothing follows: the edge takes the last ACKs in, and hangs
// up.
func (l *link) finish() {
	if !l.up.finish() {
		l.close()
		return
	}
	if c, ok := l.conn.(interface{ CloseWrite() error }); !ok || c.CloseWrite() != nil {
		l.close()
	}
}

// close ends the connection at once. It may be called often.
func (l *link) close() {
	l.closed.Do(func() {
		_ = l.conn.Close() // it is being given up
		l.up.stop()
	})
}
