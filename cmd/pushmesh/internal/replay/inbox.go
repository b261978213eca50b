package replay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// readBuffer is shared by all connections that are being read right now: an idle one owns none.
const readBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// ownBuffer is what a connection with TLS has for itself.
const ownBuffer = 4 << 10

// inbox cuts what comes on a connection into frames. Without TLS a read goes straight to the socket
// when it is readable, into a borrowed buffer; the beginning of a frame that is not whole waits in
// rest.
type inbox struct {
	conn net.Conn
	raw  syscall.RawConn // nil: with TLS
	own  []byte          // with TLS
	rest []byte
	try  func(fd uintptr) bool

	buf *[readBuffer]byte
	n   int
	err error
}

func newInbox(conn net.Conn) (*inbox, error) {
	plain, ok := conn.(syscall.Conn)
	if !ok {
		return &inbox{conn: conn, own: make([]byte, ownBuffer)}, nil
	}
	raw, err := plain.SyscallConn()
	if err != nil {
		return nil, err
	}
	in := &inbox{conn: conn, raw: raw}
	in.try = in.tryRead
	return in, nil
}

func (in *inbox) tryRead(fd uintptr) bool {
	in.buf = buffers.Get().(*[readBuffer]byte)
	for {
		in.n, in.err = syscall.Read(int(fd), in.buf[:])
		if !errors.Is(in.err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(in.err, syscall.EAGAIN) {
		buffers.Put(in.buf)
		in.buf = nil
		return false
	}
	return true
}

// read waits for bytes and hands every whole frame that has come to handle, then calls it once with
// type 0: the end of the batch. Bodies are valid during the call alone.
func (in *inbox) read(handle func(t wirev1.FrameType, body []byte) error) error {
	if in.raw == nil {
		n, err := in.conn.Read(in.own)
		if err != nil {
			return err
		}
		return in.cut(in.own[:n], handle)
	}
	if err := in.raw.Read(in.try); err != nil {
		return err
	}
	buf := in.buf
	in.buf = nil
	defer buffers.Put(buf)
	switch {
	case in.err != nil:
		return fmt.Errorf("read: %w", in.err)
	case in.n == 0:
		return io.EOF
	}
	return in.cut(buf[:in.n], handle)
}

// cut handles the frames in what was read.
func (in *inbox) cut(data []byte, handle func(t wirev1.FrameType, body []byte) error) error {
	if len(in.rest) > 0 {
		in.rest = append(in.rest, data...)
		data = in.rest
	}
	for {
		n, t, ok := wire.Header(data)
		if !ok || len(data) < wire.HeaderSize+n {
			break
		}
		if err := handle(t, data[wire.HeaderSize:wire.HeaderSize+n]); err != nil {
			return err
		}
		data = data[wire.HeaderSize+n:]
	}
	// data may lie in rest itself: append moves it to the front
	in.rest = append(in.rest[:0], data...)
	if len(in.rest) == 0 && cap(in.rest) > readBuffer {
		in.rest = nil
	}
	return handle(0, nil)
}
