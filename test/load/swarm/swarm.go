// Package swarm is many subscribers on one thread: a lean epoll client, so that the server under
// test, not its load, is what a machine is busy with. A connection costs a few dozen bytes here and
// has no goroutine.
package swarm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Config of a swarm.
type Config struct {
	Addr string // IPv4 address and port of the server
	// Addrs are those of several servers, among which connections take turns; Addr is not looked at
	// then.
	Addrs   []string
	Dialect Dialect
	Conns   int
	// First is the number of the first connection, for Dialect.Hello.
	First int
	// From is the address that connection n comes from: ports of one pair of addresses are finite.
	// nil spreads them over 127.0.1.x.
	From func(n int) [4]byte
	// Heartbeat is how often every connection pings while Beat is called; 0: never.
	Heartbeat time.Duration
	// Alone says that nothing else goes on in the process: what waits keeps its processor, and does
	// not wake the runtime's monitor.
	Alone bool
	// Message, if set, sees every delivery: the connection's number within the swarm and the frame,
	// valid until it returns.
	Message func(conn int, frame []byte)
}

// pending is how many connections may wait for the answers to their hello: enough to keep a server
// busy, too few to flood its backlog.
const pending = 200

// patience with a server that does not answer.
const patience = 2 * time.Minute

// Swarm of connections. All methods are called by one goroutine.
type Swarm struct {
	cfg    Config
	addrs  []unix.SockaddrInet4
	poller int
	conns  []conn
	events []unix.EpollEvent
	buf    []byte

	waiting  int // connections whose hello isn't answered in full
	received uint64
	pongs    uint64

	goal    uint32 // deliveries that Await waits for
	reached int    // connections that have them

	beating time.Time // when the first Beat was
	beats   int
}

type conn struct {
	fd    int32
	got   uint32 // deliveries since Restart
	ready int32  // Ready frames to come
	rest  []byte // of a frame that came in part
}

// New makes a swarm without connections.
func New(cfg Config) (*Swarm, error) {
	if len(cfg.Addrs) == 0 {
		cfg.Addrs = []string{cfg.Addr}
	}
	var addrs []unix.SockaddrInet4
	for _, addr := range cfg.Addrs {
		at, err := netip.ParseAddrPort(addr)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())})
	}
	if cfg.From == nil {
		cfg.From = func(n int) [4]byte { return [4]byte{127, 0, 1, byte(1 + n/8000)} }
	}
	s := &Swarm{
		cfg: cfg, addrs: addrs,
		conns: make([]conn, 0, cfg.Conns), events: make([]unix.EpollEvent, 512), buf: make([]byte, 256<<10),
	}
	var err error
	s.poller, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return s, err
}

// Dial makes a swarm and connects all of it.
func Dial(ctx context.Context, cfg Config) (*Swarm, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	for !s.Connected() {
		if err := errors.Join(s.Connect(1), ctx.Err()); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Connected says that every connection is up and subscribed.
func (s *Swarm) Connected() bool { return len(s.conns) == s.cfg.Conns && s.waiting == 0 }

// Subscribed is how many connections are.
func (s *Swarm) Subscribed() int { return len(s.conns) - s.waiting }

// Connect opens up to n more connections and reads what came meanwhile; it waits only while too
// many are unanswered.
func (s *Swarm) Connect(n int) error {
	for ; n > 0 && len(s.conns) < s.cfg.Conns; n-- {
		if err := s.open(); err != nil {
			return fmt.Errorf("connection %d: %w", len(s.conns), err)
		}
	}
	last, progress := s.waiting, time.Now()
	// Once there are too many, half of them are awaited: a wake for each answer costs more than the
	// answer.
	for most := pending; s.waiting > most || len(s.conns) == s.cfg.Conns && s.waiting > 0; most = pending / 2 {
		if err := s.Turn(time.Second); err != nil {
			return err
		}
		if s.waiting < last {
			last, progress = s.waiting, time.Now()
		} else if time.Since(progress) > patience {
			return fmt.Errorf("%d connections are left unanswered", s.waiting)
		}
	}
	return s.Turn(0)
}

func (s *Swarm) open() error {
	n := len(s.conns)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	if err := s.begin(fd, n); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	hello, ready := s.cfg.Dialect.Hello(s.cfg.First + n)
	s.conns = append(s.conns, conn{fd: int32(fd), ready: int32(ready)})
	s.waiting++
	err = write(fd, hello)
	if errors.Is(err, unix.EAGAIN) {
		// on loopback a connection is there at once, unless the server's backlog is full
		err = errors.Join(writable(fd), write(fd, hello))
	}
	return err
}

// writable waits until a connection is there, or has failed.
func writable(fd int) error {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(patience.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (s *Swarm) begin(fd, n int) error {
	// A reset instead of a FIN at the end leaves no port in TIME_WAIT, and the port is chosen only
	// when both ends are known.
	err := errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: s.cfg.From(n)}),
	)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, &s.addrs[n%len(s.addrs)]); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect: %w", err)
	}
	// A socket that was read until it had no more need not be looked at again.
	return unix.EpollCtl(s.poller, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(n)})
}

// write writes what always fits into the buffer of a socket whose other end reads.
func write(fd int, b []byte) error {
	n, err := unix.Write(fd, b)
	if err == nil && n < len(b) {
		err = fmt.Errorf("wrote %d of %d bytes", n, len(b))
	}
	return err
}

// Turn waits for something to read, at most so long, and reads it.
func (s *Swarm) Turn(wait time.Duration) error {
	_, err := s.turn(wait)
	return err
}

// Drain reads all that has come so far, and doesn't wait.
func (s *Swarm) Drain() error {
	for {
		if n, err := s.turn(0); err != nil || n < len(s.events) {
			return err
		}
	}
}

func (s *Swarm) turn(wait time.Duration) (events int, err error) {
	events, err = s.wait(int(wait.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for i := range s.events[:events] {
		at := int(s.events[i].Fd)
		if err := s.read(at, s.events[i].Events != unix.EPOLLIN); err != nil {
			return events, fmt.Errorf("connection %d after %d messages: %w", at, s.conns[at].got, err)
		}
	}
	return events, nil
}

func (s *Swarm) wait(ms int) (events int, err error) {
	if !s.cfg.Alone {
		return unix.EpollWait(s.poller, s.events, ms)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.poller), uintptr(unsafe.Pointer(unsafe.SliceData(s.events))), uintptr(len(s.events)), uintptr(ms), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// read reads until there is no more, because what it leaves is not told of again. The end of a
// connection comes after what is read in part only.
func (s *Swarm) read(at int, ends bool) error {
	c := &s.conns[at]
	for {
		kept := copy(s.buf, c.rest)
		n, err := unix.Read(int(c.fd), s.buf[kept:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return errors.New("closed by the server")
		}
		if err := s.frames(at, s.buf[:kept+n]); err != nil || !ends && kept+n < len(s.buf) {
			return err
		}
	}
}

// frames takes the frames that b holds, and keeps what is left of it.
func (s *Swarm) frames(at int, b []byte) error {
	c := &s.conns[at]
	for len(b) > 0 {
		size, kind, err := s.cfg.Dialect.Next(b)
		if err != nil {
			return err
		}
		if size == 0 {
			break
		}
		if kind == Message {
			s.message(at, b[:size])
		} else if err := s.control(c, kind); err != nil {
			return err
		}
		b = b[size:]
	}
	if len(b) == 0 {
		c.rest = nil
	} else {
		c.rest = append(c.rest[:0], b...)
	}
	return nil
}

func (s *Swarm) message(at int, frame []byte) {
	s.received++
	c := &s.conns[at]
	if c.got++; c.got == s.goal {
		s.reached++
	}
	if s.cfg.Message != nil {
		s.cfg.Message(at, frame)
	}
}

func (s *Swarm) control(c *conn, kind Kind) error {
	switch kind {
	case Ready:
		if c.ready--; c.ready == 0 {
			s.waiting--
		}
	case Asked:
		return write(int(c.fd), s.cfg.Dialect.Pong())
	case Alive:
		s.pongs++
	}
	return nil
}

// Close closes every connection.
func (s *Swarm) Close() error {
	var errs []error
	for i := range s.conns {
		errs = append(errs, unix.Close(int(s.conns[i].fd)))
	}
	s.conns = nil
	return errors.Join(append(errs, unix.Close(s.poller))...)
}
