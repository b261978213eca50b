package link

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// maxQueued is how many bytes may wait for a socket that takes none before the connection is given
// up.
const maxQueued = 4 << 20

// writer coalesces: whoever finds it idle writes for everybody who appends meanwhile.
type writer struct {
	conn  net.Conn
	clock clock
	most  int // bytes of a body that the edge takes; 0: it did not say

	out   sync.Mutex // guards what follows
	buf   []byte
	spare []byte
	busy  bool
	since time.Duration // when the write under way began, by clock
	err   error
}

var errStuck = errors.New("pushmesh: the edge takes no bytes")

// Unsendable is why one frame was refused: nothing of it is sent, and the connection goes on.
type Unsendable struct {
	Code    wirev1.Code
	Message string
}

func (u *Unsendable) Error() string { return u.Message }

// Append puts frames into the buffer without writing it.
func (w *writer) Append(f func([]byte) []byte) {
	w.out.Lock()
	defer w.out.Unlock()
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

// Put appends one frame without writing it. One that can't be encoded, or that the edge would close
// the connection for, is refused alone.
func (w *writer) Put(t wirev1.FrameType, m proto.Message) (bad *Unsendable) {
	w.Append(func(b []byte) []byte {
		out, err := wire.Append(b, t, m)
		size := len(out) - len(b) - wire.HeaderSize
		switch {
		case err != nil:
			bad = &Unsendable{wirev1.Code_CODE_INVALID_ARGUMENT, err.Error()}
		case w.most > 0 && size > w.most:
			bad = &Unsendable{wirev1.Code_CODE_FRAME_TOO_LARGE, fmt.Sprintf("it has %d bytes as a frame, and the edge takes %d", size, w.most)}
		default:
			return out
		}
		return b
	})
	return bad
}

// Send puts one frame and flushes.
func (w *writer) Send(t wirev1.FrameType, m proto.Message) error {
	if bad := w.Put(t, m); bad != nil {
		return bad
	}
	return w.Flush()
}

// Flush writes until nothing is left, unless somebody else is at it. A write that fails closes the
// connection, and its reader reports that.
func (w *writer) Flush() error {
	w.out.Lock()
	defer w.out.Unlock()
	for !w.busy && len(w.buf) > 0 && w.err == nil {
		out := w.buf
		w.buf, w.busy, w.since = nil, true, w.clock.now()
		w.out.Unlock()
		_, err := w.conn.Write(out)
		w.out.Lock()
		w.busy = false
		if cap(out) <= ReadBuffer {
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
	w.out.Lock()
	defer w.out.Unlock()
	if !w.busy {
		return 0
	}
	return w.clock.now() - w.since
}
