package netpoll

import (
	"fmt"
	"os"
	"runtime/pprof"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// conn is a socket that is watched.
type conn struct {
	slot, gen uint32
	file      *os.File // Go's poller knows it
	raw       syscall.RawConn
	stuck     bool // somebody watches for room; the loop's

	// The poller's lock guards these.
	news    news // since the last Events
	dropped bool
}

// news of a connection: it stands among ready while there is any.
type news struct{ readable, writable, broken bool }

var watching, waiting = labels("edge-socket"), labels("edge-stuck-socket")

// Add implements poll.Poller: a goroutine watches the socket until Drop.
func (p *Poller) Add(fd int, slot, gen uint32) error {
	c := &conn{slot: slot, gen: gen, file: os.NewFile(uintptr(fd), "subscriber")}
	// whatever becomes of it, Drop closes the file
	p.conns[fd] = c
	if err := c.file.SetDeadline(time.Time{}); err != nil {
		// refused where Go's poller did not take the descriptor
		return fmt.Errorf("netpoll: %w", err)
	}
	var err error
	if c.raw, err = c.file.SyscallConn(); err != nil {
		return fmt.Errorf("netpoll: %w", err)
	}
	go func() {
		pprof.SetGoroutineLabels(watching)
		// The first call comes at once: there may be something that came before Go's poller knew
		// the socket. Each other one is an edge.
		_ = c.raw.Read(func(fd uintptr) bool {
			fault, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
			p.tell(c, news{readable: true, broken: err != nil || fault != 0})
			return false // until the file is closed
		})
	}()
	return nil
}

// Stuck implements poll.Poller: another goroutine waits for room, one for a connection at most.
func (p *Poller) Stuck(fd int) {
	c := p.conns[fd]
	if c == nil || c.stuck {
		return
	}
	c.stuck = true
	go func() {
		pprof.SetGoroutineLabels(waiting)
		// An edge before the first call is lost, so that each call looks for itself.
		_ = c.raw.Write(func(fd uintptr) bool {
			has := hasRoom(int(fd))
			if has {
				p.tell(c, news{writable: true})
			}
			return has
		})
	}()
}

// hasRoom says that a send would not meet poll.ErrAgain.
func hasRoom(fd int) bool {
	for {
		one := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		switch n, err := unix.Poll(one, 0); err {
		case unix.EINTR:
		case nil:
			return n > 0
		default:
			return true // the send says what is wrong
		}
	}
}

// tell adds to what the loop is to know.
func (p *Poller) tell(c *conn, n news) {
	p.mu.Lock()
	if !c.dropped {
		if c.news == (news{}) {
			p.ready = append(p.ready, c)
		}
		c.news = news{c.news.readable || n.readable, c.news.writable || n.writable, c.news.broken || n.broken}
	}
	p.mu.Unlock()
	p.wake()
}

// event is what the loop is told. Whether the peer has ended Go's poller does not say, so the loop
// reads until there is no more.
func (c *conn) event() poll.Event {
	if c.news.writable {
		c.stuck = false
	}
	return poll.Event{
		Slot: c.slot, Gen: c.gen, Readable: c.news.readable, HungUp: c.news.readable, Writable: c.news.writable, Broken: c.news.broken,
	}
}

// Drop implements poll.Poller. Nobody watches the socket any more when it returns.
func (p *Poller) Drop(fd int) error {
	c := p.conns[fd]
	if c == nil {
		closeFD(fd)
		return fmt.Errorf("netpoll: descriptor %d is not watched", fd)
	}
	delete(p.conns, fd)
	p.mu.Lock()
	c.dropped = true
	p.mu.Unlock()
	return c.file.Close()
}
