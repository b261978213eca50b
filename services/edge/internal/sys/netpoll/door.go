package netpoll

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// mostCallers is how many accepted connections may wait for one loop; then the kernel holds them.
const mostCallers = 64

// door is the listener of an edge: who comes is dealt to the loops that listen, in turns. Loops and
// a goroutine of its own deal.
type door struct {
	addr netip.AddrPort

	mu     sync.Mutex
	fd     int      // -1: closed
	file   *os.File // of fd, once somebody listens
	open   []*Poller
	next   int // to be dealt to, counted on and on
	users  int // that have not left
	closed chan struct{}
}

// caller is a connection that was accepted and belongs to no loop yet.
type caller struct {
	fd   int
	from netip.Addr
}

func newDoor(addr string, b poll.Buffers) (*door, error) {
	fd, at, err := poll.Bind(context.Background(), addr, b)
	if err != nil {
		return nil, err
	}
	return &door{addr: at, fd: fd}, nil
}

// enter has p take its share of those who come.
func (d *door) enter(p *Poller) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file == nil {
		if err := d.listen(); err != nil {
			return err
		}
	}
	d.open = append(d.open, p)
	p.signal(called) // somebody may have come already
	return nil
}

func (d *door) listen() error {
	if err := poll.Listen(d.fd); err != nil {
		return err
	}
	file := os.NewFile(uintptr(d.fd), "listener")
	raw, err := file.SyscallConn()
	if err == nil {
		err = file.SetDeadline(time.Time{}) // refused where Go's poller did not take the descriptor
	}
	if err != nil {
		d.fd = -1
		return fmt.Errorf("netpoll: %w", errors.Join(err, file.Close()))
	}
	d.file, d.closed = file, make(chan struct{})
	go func() {
		pprof.SetGoroutineLabels(labels("edge-listener"))
		defer close(d.closed)
		_ = raw.Read(func(uintptr) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			if err := d.deal(); errors.Is(err, poll.ErrFull) && len(d.open) > 0 {
				d.open[0].signal(called) // who meets the same, counts it, and tries again
			}
			return false // until the file is closed
		})
	}()
	return nil
}

// deal takes from the kernel who waits there, until an error says why no more. It ends early, and
// without one, where every loop has enough to accept: each of them goes on with it.
func (d *door) deal() error {
	for len(d.open) > 0 {
		p := d.nextWithRoom()
		if p == nil {
			return nil
		}
		fd, from, err := poll.Accept(d.fd)
		if err != nil {
			return err
		}
		p.callers = append(p.callers, caller{fd, from})
		p.signal(called)
		d.next++
	}
	return poll.ErrAgain
}

func (d *door) nextWithRoom() *Poller {
	for range d.open {
		if p := d.open[d.next%len(d.open)]; len(p.callers) < mostCallers {
			return p
		}
		d.next++
	}
	return nil
}

// accept is a poller's Accept. Who waits in the kernel is dealt first, so that a loop that finds
// nobody has seen all who came before.
func (d *door) accept(p *Poller) (fd int, from netip.Addr, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(p.callers) == 0 {
		err = d.deal()
	}
	if len(p.callers) == 0 {
		if err == nil {
			err = poll.ErrAgain // the others have enough, and go on
		}
		return -1, from, err
	}
	next := p.callers[0]
	p.callers = p.callers[:copy(p.callers, p.callers[1:])]
	return next.fd, next.from, nil
}

// leave ends p's share. The last one to leave closes the door.
func (d *door) leave(p *Poller) {
	d.mu.Lock()
	if p.left {
		d.mu.Unlock()
		return
	}
	p.left = true
	d.users--
	for i, q := range d.open {
		if q == p {
			d.open = append(d.open[:i], d.open[i+1:]...)
			break
		}
	}
	d.pass(p)
	file, closed, fd := d.file, d.closed, d.fd
	last := d.users == 0
	if last {
		d.fd = -1
	}
	d.mu.Unlock()
	switch {
	case !last:
	case file != nil:
		_ = file.Close()
		<-closed
	case fd >= 0:
		closeFD(fd)
	}
}

// pass gives those that p has not accepted to the others. Where there are none they are cut off, as
// the kernel does with who waits at a socket that is closed.
func (d *door) pass(p *Poller) {
	for i, c := range p.callers {
		if len(d.open) == 0 {
			closeFD(c.fd)
			continue
		}
		q := d.open[i%len(d.open)]
		q.callers = append(q.callers, c)
		q.signal(called)
	}
	p.callers = nil
}
