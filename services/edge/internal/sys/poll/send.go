package poll

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sender sends what sockets are owed, many at a time. It belongs to one goroutine.
type Sender interface {
	// Add takes what pieces hold, in order, for a socket. A socket comes once a batch; the pieces
	// must stay as they are, and referenced, until Flush. Pieces beyond MaxPieces are left.
	Add(fd int, pieces [][]byte)
	// Full says that no more can be added before Flush.
	Full() bool
	// Flush ends the batch, with a result for each Add in order. They are good until the next Add.
	// Nothing is under way then.
	Flush() []Result
	// Mode is how it sends now.
	Mode() Mode
	Close() error
}

// Result of one send: how many bytes the kernel took, and ErrAgain where it had no room for any.
type Result struct {
	N   int
	Err error
}

// Mode is a way to send.
type Mode string

// Modes of sending.
const (
	ModeAuto  Mode = "auto"  // ModeUring where the kernel allows it
	ModeUring Mode = "uring" // a system call for a batch of sockets
	ModeWrite Mode = "write" // a system call for each socket
)

// MaxPieces is how many a kernel takes at once.
const MaxPieces = 1024

// Writer is the Sender that needs nothing of a kernel: it sends in Add. It makes no garbage.
type Writer struct {
	iov     []unix.Iovec
	msg     unix.Msghdr
	results []Result
}

// writerBatch bounds what waits for its result.
const writerBatch = 256

// NewWriter makes a Writer.
func NewWriter() *Writer { return &Writer{results: make([]Result, 0, writerBatch)} }

// Add implements Sender.
func (w *Writer) Add(fd int, pieces [][]byte) {
	n, err := w.Write(fd, pieces)
	w.results = append(w.results, Result{n, err})
}

// Full implements Sender.
func (w *Writer) Full() bool { return len(w.results) >= writerBatch }

// Flush implements Sender.
func (w *Writer) Flush() []Result {
	r := w.results
	w.results = w.results[:0]
	return r
}

// Mode implements Sender.
func (w *Writer) Mode() Mode { return ModeWrite }

// Close implements Sender.
func (w *Writer) Close() error { return nil }

// Write sends once, what pieces hold in order, and says how many bytes were taken. Pieces beyond
// MaxPieces are left.
func (w *Writer) Write(fd int, pieces [][]byte) (int, error) {
	w.iov = w.iov[:0]
	for _, b := range pieces {
		if len(b) == 0 {
			continue
		}
		if len(w.iov) == MaxPieces {
			break
		}
		v := unix.Iovec{Base: unsafe.SliceData(b)}
		v.SetLen(len(b))
		w.iov = append(w.iov, v)
	}
	if len(w.iov) == 0 {
		return 0, nil
	}
	defer clear(w.iov)
	for {
		n, errno := w.send(fd)
		switch errno {
		case 0:
			return n, nil
		case unix.EINTR:
		default:
			return 0, again("send", errno)
		}
	}
}

// ResultOf makes a Result of what a kernel's send returned: bytes, or an errno below 0.
func ResultOf(res int32) Result {
	switch {
	case res >= 0:
		return Result{N: int(res)}
	case unix.Errno(-res) == unix.EINTR:
		return Result{} // nothing was sent, and the socket may have room
	case unix.Errno(-res) == unix.EAGAIN:
		return Result{Err: ErrAgain}
	}
	return Result{Err: fmt.Errorf("poll: send: %w", unix.Errno(-res))}
}
