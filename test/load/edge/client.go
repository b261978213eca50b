package edge

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// client is one connection with a blocking socket: nothing but the kernel stands between a byte
// that comes and who waits for it.
type client struct {
	fd   int
	have []byte // read and not looked at
	room []byte
}

// clientPatience is how long a read or write may take.
const clientPatience = 10

func dialClient(addr string) (*client, error) {
	return dialAs(addr, &wirev1.Hello{Version: wire.Version, HeartbeatMs: swarm.Never})
}

func dialAs(addr string, hello *wirev1.Hello) (_ *client, err error) {
	defer try.Catch(&err)
	at := try.Get(netip.ParseAddrPort(addr))
	fd := try.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	c := &client{fd: fd, room: make([]byte, 256<<10)}
	err = errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: clientPatience}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: clientPatience}),
		unix.Connect(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}),
	)
	if err == nil {
		err = c.send(frame(wirev1.FrameType_FRAME_TYPE_HELLO, hello))
	}
	if err == nil {
		err = c.until(wirev1.FrameType_FRAME_TYPE_WELCOME, 1)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *client) close() error { return unix.Close(c.fd) }

// frame of a message made by this program.
func frame(t wirev1.FrameType, m proto.Message) []byte {
	b, err := wire.Append(nil, t, m)
	if err != nil {
		panic(err)
	}
	return b
}

func (c *client) send(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(c.fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// until reads until n frames of a type have come.
func (c *client) until(want wirev1.FrameType, n int) error {
	for n > 0 {
		size, t, ok := wire.Header(c.have)
		if ok && len(c.have) >= wire.HeaderSize+size {
			if t == wirev1.FrameType_FRAME_TYPE_ERROR {
				return fmt.Errorf("got an Error: %q", c.have[wire.HeaderSize:wire.HeaderSize+size])
			}
			if t == want {
				n--
			}
			c.have = c.have[wire.HeaderSize+size:]
			continue
		}
		kept := copy(c.room, c.have)
		got, err := unix.Read(c.fd, c.room[kept:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && got == 0 {
			err = errors.New("closed by the edge")
		}
		if err != nil {
			return fmt.Errorf("waiting for %d %v: %w", n, want, err)
		}
		c.have = c.room[:kept+got]
	}
	return nil
}

// pings are the answers that a prober had.
type pings struct {
	took []time.Duration
	// late is how much longer than asked for the prober slept at most: what the machine alone makes
	// of a time.
	late time.Duration
}

// probe pings an edge about every millisecond, in a thread of its own that is first in line for a
// core where that is allowed, while something else goes on.
func probe(addr string, while func() error) (p pings, err error) {
	defer try.Catch(&err)
	c := try.Get(dialClient(addr))
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		// not unlocked: the thread ends with the goroutine, and its rank with it
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
		ended <- p.collect(c, stop)
	}()
	err = while()
	close(stop)
	err = errors.Join(err, <-ended, c.close())
	if err == nil && len(p.took) < 20 {
		err = fmt.Errorf("only %d pings were answered", len(p.took))
	}
	return p, err
}

func (p *pings) collect(c *client, stop <-chan struct{}) error {
	ping := frame(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1})
	const pause = time.Millisecond
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		began := time.Now()
		if err := errors.Join(c.send(ping), c.until(wirev1.FrameType_FRAME_TYPE_PONG, 1)); err != nil {
			return err
		}
		answered := time.Now()
		p.took = append(p.took, answered.Sub(began))
		time.Sleep(pause)
		p.late = max(p.late, time.Since(answered)-pause)
	}
}
