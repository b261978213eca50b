package uring

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

const (
	// batch is how many sends the kernel is given at once. 64 to 256 cost the same, 1,024 more:
	// requests leave the caches.
	batch = 256

	// pieces is how many a batch may have where sockets are owed more than one.
	pieces = 8 * poll.MaxPieces

	// few sends go out one by one: entering the ring costs what it saves for these.
	few = 8
)

// Sender is a poll.Sender. One goroutine makes it, uses it and closes it.
//
// The kernel looks at nothing but in Flush, and is done when Flush returns: Go's memory is lent to
// it as by any system call, and Go's collector does not move what is on the heap.
type Sender struct {
	ring    *ring // nil once it has failed: then plain writes do
	iovs    []unix.Iovec
	msgs    []unix.Msghdr
	sends   []send // of the batch
	vectors int    // of iovs used
	results []poll.Result
	settle  func(userData uint64, res int32)
	plain   poll.Writer
}

// send is one of a batch.
type send struct {
	fd         int
	pieces     [][]byte
	first, end int // in iovs
}

// New makes a sender, and tries it.
func New() (*Sender, error) {
	s := &Sender{
		iovs: make([]unix.Iovec, pieces), msgs: make([]unix.Msghdr, batch),
		sends: make([]send, 0, batch), results: make([]poll.Result, 0, batch),
	}
	s.settle = s.completed
	var err error
	if s.ring, err = newRing(uint32(batch)); err != nil {
		return nil, fmt.Errorf("uring: %w", err)
	}
	if err := s.try(); err != nil {
		return nil, fmt.Errorf("uring: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

// try sends through a pair of sockets: a filter of system calls may let a ring be made and nothing
// be done with it.
func (s *Sender) try() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) }()
	s.Add(pair[0], [][]byte{[]byte("a")})
	s.Add(pair[0], [][]byte{[]byte("b"), []byte("c")})
	s.enter()
	for _, r := range s.done() {
		if r.Err != nil {
			return fmt.Errorf("send: %w", r.Err)
		}
	}
	var got [4]byte
	if n, err := unix.Read(pair[1], got[:]); err != nil || string(got[:n]) != "abc" {
		return fmt.Errorf("sent abc, got %q: %w", got[:max(n, 0)], errors.Join(err, errors.ErrUnsupported))
	}
	if s.ring == nil {
		return errors.ErrUnsupported
	}
	return nil
}

// Mode implements poll.Sender.
func (s *Sender) Mode() poll.Mode {
	if s.ring == nil {
		return poll.ModeWrite
	}
	return poll.ModeUring
}

// Full implements poll.Sender.
func (s *Sender) Full() bool { return len(s.sends) == batch || s.vectors+poll.MaxPieces > pieces }

// errLost says that the kernel took a send and the ring failed before it answered: how much was
// sent nobody knows.
var errLost = errors.New("uring: the ring failed with a send under way")

// Add implements poll.Sender.
func (s *Sender) Add(fd int, bufs [][]byte) {
	first := s.vectors
	for _, b := range bufs {
		if len(b) > 0 && s.vectors-first < poll.MaxPieces {
			v := &s.iovs[s.vectors]
			v.Base = unsafe.SliceData(b)
			v.SetLen(len(b))
			s.vectors++
		}
	}
	s.results = append(s.results[:len(s.sends)], poll.Result{})
	s.sends = append(s.sends, send{fd, bufs, first, s.vectors})
}

// Flush implements poll.Sender.
func (s *Sender) Flush() []poll.Result {
	if s.ring == nil || len(s.sends) <= few {
		s.write()
	} else {
		s.enter()
	}
	return s.done()
}

func (s *Sender) write() {
	for i := range s.sends {
		s.results[i].N, s.results[i].Err = s.plain.Write(s.sends[i].fd, s.sends[i].pieces)
	}
}

// enter gives the kernel all sends that have bytes.
func (s *Sender) enter() {
	submits := uint32(0)
	for i := range s.sends {
		if v := s.iovs[s.sends[i].first:s.sends[i].end]; len(v) > 0 {
			s.push(i, v)
			submits++
		}
	}
	if submits > 0 {
		if untaken, err := s.ring.submit(submits, s.settle); err != nil {
			s.fail(untaken)
		}
	}
}

func (s *Sender) push(i int, v []unix.Iovec) {
	e := sqe{op: opSend, fd: int32(s.sends[i].fd), msgFlags: poll.SendFlags, userData: uint64(i)}
	if len(v) == 1 {
		e.addr, e.len = uintptr(unsafe.Pointer(v[0].Base)), uint32(v[0].Len)
	} else {
		m := &s.msgs[i]
		m.Iov = &v[0]
		m.SetIovlen(len(v))
		e.op, e.addr, e.len = opSendmsg, uintptr(unsafe.Pointer(m)), 1
	}
	s.results[i].Err = errLost // until it is answered
	s.ring.push(e)
}

// done ends the batch.
func (s *Sender) done() []poll.Result {
	n := len(s.sends)
	clear(s.sends)
	clear(s.iovs[:s.vectors])
	s.sends, s.vectors = s.sends[:0], 0
	return s.results[:n]
}

func (s *Sender) completed(i uint64, res int32) { s.results[i] = poll.ResultOf(res) }

// fail ends the ring: plain writes do from now on, and for the last of the batch, which the kernel
// has not looked at.
func (s *Sender) fail(untaken uint32) {
	_ = s.Close()
	for i := len(s.sends) - 1; i >= 0 && untaken > 0; i-- {
		if r := &s.results[i]; errors.Is(r.Err, errLost) {
			r.N, r.Err = s.plain.Write(s.sends[i].fd, s.sends[i].pieces)
			untaken--
		}
	}
}

// Close implements poll.Sender.
func (s *Sender) Close() error {
	if s.ring == nil {
		return nil
	}
	err := s.ring.close()
	s.ring = nil
	return err
}
