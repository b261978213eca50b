package firehose

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
	"unsafe"

	"github.com/pushmesh/pushmesh/test/load/try"
	"golang.org/x/sys/unix"
)

// patience with a server that does nothing.
const patience = time.Minute

// Frames of HTTP/2 (RFC 9113, section 6), as far as a call needs them.
const (
	h2Data         = 0
	h2Headers      = 1
	h2Reset        = 3
	h2Settings     = 4
	h2Ping         = 6
	h2GoAway       = 7
	h2WindowUpdate = 8

	h2Ack        = 1 // of settings and pings
	h2EndStream  = 1
	h2EndHeaders = 4

	h2HeaderSize    = 9
	h2InitialWindow = 4 // a setting
	h2DefaultWindow = 65_535
	grpcHeaderSize  = 5

	stream  = 1       // the only one
	windows = 4 << 20 // of what the server may send
)

// link is a connection with one gRPC call, without blocking but in await. Its system calls are raw
// ones: the scheduler has nothing else to run.
type link struct {
	fd       int
	in       []byte // read and not taken
	body     []byte // of the call, not taken
	buf      []byte
	conn     int // bytes that may be sent on the connection, and on the stream
	call     int
	initial  int // of a stream, as the server says
	consumed int // bytes of the answer since the windows were opened last
}

func (l *link) open(ctx context.Context, addr, method string) (err error) {
	defer try.Catch(&err)
	c := try.Get((&net.Dialer{}).DialContext(ctx, "tcp", addr))
	f, err := c.(*net.TCPConn).File()
	try.Do(errors.Join(err, c.Close()))
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	try.Do(errors.Join(err, f.Close()))
	*l = link{fd: fd, buf: make([]byte, 64<<10), conn: h2DefaultWindow, call: h2DefaultWindow, initial: h2DefaultWindow}
	hello := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	hello = appendFrame(hello, h2Settings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, h2InitialWindow}, windows))
	hello = appendFrame(hello, h2WindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, windows))
	var head []byte
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", addr}, {"te", "trailers"}, {"content-type", "application/grpc"},
	} {
		head = appendText(appendText(append(head, 0), h[0]), h[1]) // a literal that is not indexed
	}
	if err := errors.Join(unix.SetNonblock(fd, true), l.write(appendFrame(hello, h2Headers, h2EndHeaders, stream, head))); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return nil
}

// appendText appends a string of a header, of up to 126 bytes (RFC 7541, section 5.2).
func appendText(dst []byte, s string) []byte { return append(append(dst, byte(len(s))), s...) }

func appendHead(dst []byte, size int, kind, flags byte, stream uint32) []byte {
	dst = append(dst, byte(size>>16), byte(size>>8), byte(size), kind, flags)
	return binary.BigEndian.AppendUint32(dst, stream)
}

func appendFrame(dst []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	return append(appendHead(dst, len(payload), kind, flags, stream), payload...)
}

// appendMessage appends a message of the call, in one frame: 16 KiB at most.
func appendMessage(dst, message []byte) []byte {
	dst = appendHead(dst, grpcHeaderSize+len(message), h2Data, 0, stream)
	dst = binary.BigEndian.AppendUint32(append(dst, 0), uint32(len(message)))
	return append(dst, message...)
}

// room takes what a message needs of the windows; false where they are too small now.
func (l *link) room(message int) bool {
	n := grpcHeaderSize + message
	if n > min(l.conn, l.call) {
		return false
	}
	l.conn, l.call = l.conn-n, l.call-n
	return true
}

func (l *link) write(b []byte) error {
	for len(b) > 0 {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(l.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			b = b[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			if err := l.await(unix.POLLOUT, time.Now().Add(patience)); err != nil {
				return err
			}
		default:
			return os.NewSyscallError("write", errno)
		}
	}
	return nil
}

// await waits until the socket can be read or written.
func (l *link) await(events int16, until time.Time) error {
	for time.Now().Before(until) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(l.fd), Events: events}}, 100)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return errors.New("the server does nothing")
}

// read takes what there is, and gives every message of the answer to take.
func (l *link) read(take func(message []byte) error) error {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(l.fd), uintptr(unsafe.Pointer(unsafe.SliceData(l.buf))), uintptr(len(l.buf)))
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return nil
		case errno != 0:
			return os.NewSyscallError("read", errno)
		case n == 0:
			return errors.New("closed by the server")
		}
		l.in = append(l.in, l.buf[:n]...)
		if err := errors.Join(l.cut(), l.messages(take)); err != nil || int(n) < len(l.buf) {
			return err
		}
	}
}

// cut handles the whole frames that were read.
func (l *link) cut() error {
	b := l.in
	for len(b) >= h2HeaderSize {
		size := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if len(b) < h2HeaderSize+size {
			break
		}
		if err := l.frame(b[3], b[4], binary.BigEndian.Uint32(b[5:]), b[h2HeaderSize:h2HeaderSize+size]); err != nil {
			return err
		}
		b = b[h2HeaderSize+size:]
	}
	l.in = l.in[:copy(l.in, b)]
	return nil
}

func (l *link) frame(kind, flags byte, of uint32, payload []byte) error {
	switch {
	case kind == h2Reset, kind == h2GoAway, (kind == h2Headers || kind == h2Data) && flags&h2EndStream != 0:
		return fmt.Errorf("the server ended the call: frame %d, %x", kind, payload)
	case kind == h2Data:
		l.body = append(l.body, payload...)
		return l.consume(len(payload))
	case kind == h2Settings && flags&h2Ack == 0:
		for ; len(payload) >= 6; payload = payload[6:] {
			if v := int(binary.BigEndian.Uint32(payload[2:])); binary.BigEndian.Uint16(payload) == h2InitialWindow {
				l.call, l.initial = l.call+v-l.initial, v
			}
		}
		return l.write(appendFrame(nil, h2Settings, h2Ack, 0, nil))
	case kind == h2Ping && flags&h2Ack == 0:
		return l.write(appendFrame(nil, h2Ping, h2Ack, 0, payload))
	case kind == h2WindowUpdate && len(payload) == 4:
		if n := int(binary.BigEndian.Uint32(payload)); of == 0 {
			l.conn += n
		} else {
			l.call += n
		}
	}
	return nil
}

// consume opens the windows again once half of them are used.
func (l *link) consume(n int) error {
	if l.consumed += n; l.consumed < windows/2 {
		return nil
	}
	more := binary.BigEndian.AppendUint32(nil, uint32(l.consumed))
	l.consumed = 0
	return l.write(appendFrame(appendFrame(nil, h2WindowUpdate, 0, 0, more), h2WindowUpdate, 0, stream, more))
}

func (l *link) messages(take func(message []byte) error) error {
	b := l.body
	for len(b) >= grpcHeaderSize {
		end := grpcHeaderSize + int(binary.BigEndian.Uint32(b[1:]))
		if len(b) < end {
			break
		}
		if err := take(b[grpcHeaderSize:end]); err != nil {
			return err
		}
		b = b[end:]
	}
	l.body = l.body[:copy(l.body, b)]
	return nil
}

// Close closes the connection.
func (l *link) Close() error { return unix.Close(l.fd) }
