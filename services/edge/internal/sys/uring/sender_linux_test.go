package uring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// senders runs a test with every kind of sender: plain writes, a ring, and a ring that fails as the
// test begins. Where the kernel allows no ring, New must say why.
func senders(t *testing.T, test func(t *testing.T, s poll.Sender)) {
	on := func(name string, open func(t *testing.T) poll.Sender) {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			test(t, s)
		})
	}
	on("write", func(*testing.T) poll.Sender { return poll.NewWriter() })
	if why := allowed(); why != nil {
		if !errors.Is(why, unix.ENOSYS) && !errors.Is(why, unix.EPERM) && !errors.Is(why, unix.EACCES) {
			t.Fatal(why)
		}
		return
	}
	on("ring", func(t *testing.T) poll.Sender { return newSender(t) })
	on("a ring that fails", func(t *testing.T) poll.Sender {
		s := newSender(t)
		breakRing(t, s)
		return s
	})
}

func allowed() error {
	s, err := New()
	if err != nil {
		return err
	}
	return s.Close()
}

func newSender(t testing.TB) *Sender {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if s.Mode() != poll.ModeUring {
		t.Fatalf("mode %s", s.Mode())
	}
	return s
}

// breakRing puts a descriptor in the ring's place that is no ring.
func breakRing(t *testing.T, s *Sender) {
	t.Helper()
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(s.ring.fd); err != nil {
		t.Fatal(err)
	}
	s.ring.fd = null
}

// pair is two connected sockets; the first has a small buffer if room is above 0.
func pair(t testing.TB, room int) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if room > 0 {
		if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, room); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { poll.Close(fds[0]); poll.Close(fds[1]) })
	return fds[0], fds[1]
}

// loopback is a TCP connection.
func loopback(t testing.TB) (a, b int) {
	t.Helper()
	listener, at, err := poll.Bind(t.Context(), "127.0.0.1:0", poll.Buffers{})
	if err != nil {
		t.Fatal(err)
	}
	defer poll.Close(listener)
	if err := poll.Listen(listener); err != nil {
		t.Fatal(err)
	}
	if b, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(b, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	for a, _, err = poll.Accept(listener); errors.Is(err, poll.ErrAgain); a, _, err = poll.Accept(listener) {
		wait(t, listener)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(b, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { poll.Close(a); poll.Close(b) })
	return a, b
}

// wait waits until there is something to read or to accept: over loopback it may come a moment
// after it was sent.
func wait(t testing.TB, fd int) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(time.Minute); ; {
		if n, _ := unix.Poll(fds, 1000); n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing comes")
		}
	}
}

// receive reads n bytes, and what came with them.
func receive(t testing.TB, fd, n int) (got []byte) {
	t.Helper()
	for got = drain(t, fd); len(got) < n; got = append(got, drain(t, fd)...) {
		wait(t, fd)
	}
	return got
}

// drain reads what has come.
func drain(t testing.TB, fd int) (got []byte) {
	t.Helper()
	buf := make([]byte, 64<<10)
	for {
		n, err := poll.Read(fd, buf)
		if errors.Is(err, poll.ErrAgain) || n == 0 && err == nil {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
	}
}

func TestPiecesInOrderUpToTheKernelsMost(t *testing.T) {
	senders(t, func(t *testing.T, s poll.Sender) {
		a, b := loopback(t)
		c, d := pair(t, 0)
		var many [][]byte
		for i := range poll.MaxPieces + 10 {
			many = append(many, nil, []byte{byte(i), byte(i >> 8)}, []byte{})
		}
		s.Add(a, many)
		s.Add(c, [][]byte{nil, []byte("one"), {}})
		r := s.Flush()
		if len(r) != 2 || r[0] != (poll.Result{N: 2 * poll.MaxPieces}) || r[1] != (poll.Result{N: 3}) {
			t.Fatalf("%+v", r)
		}
		if got := receive(t, b, 2*poll.MaxPieces); !bytes.Equal(got, bytes.Join(many[:3*poll.MaxPieces], nil)) {
			t.Fatalf("got %d bytes that were not sent", len(got))
		}
		if got := drain(t, d); string(got) != "one" {
			t.Fatalf("got %q", got)
		}
	})
}

func TestNothingToSend(t *testing.T) {
	senders(t, func(t *testing.T, s poll.Sender) {
		a, b := pair(t, 0)
		if r := s.Flush(); len(r) != 0 {
			t.Fatalf("%+v", r)
		}
		s.Add(a, nil)
		s.Add(a, [][]byte{nil, {}})
		if r := s.Flush(); len(r) != 2 || r[0] != (poll.Result{}) || r[1] != (poll.Result{}) {
			t.Fatalf("%+v", r)
		}
		if got := drain(t, b); len(got) > 0 {
			t.Fatalf("got %q", got)
		}
	})
}

func TestFullSocketTakesAPartThenNothing(t *testing.T) {
	senders(t, func(t *testing.T, s poll.Sender) {
		a, b := loopback(t)
		if err := unix.SetsockoptInt(a, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<10); err != nil {
			t.Fatal(err)
		}
		big := bytes.Repeat([]byte("0123456789"), 1<<20)
		sent, partial := 0, false
		for {
			s.Add(a, [][]byte{big[sent : sent+1], big[sent+1:]})
			r := s.Flush()[0]
			if errors.Is(r.Err, poll.ErrAgain) {
				break
			}
			if r.Err != nil || r.N == 0 {
				t.Fatalf("%+v", r)
			}
			sent += r.N
			partial = true
		}
		if !partial || sent >= len(big) {
			t.Fatalf("sent %d", sent)
		}
		if got := receive(t, b, 1); !bytes.HasPrefix(big, got) {
			t.Fatalf("got %d bytes that were not sent", len(got))
		}
	})
}

func TestBrokenSocketsAmongGoodOnes(t *testing.T) {
	senders(t, func(t *testing.T, s poll.Sender) {
		full, _ := pair(t, 1)
		for err := error(nil); err == nil; _, err = unix.Write(full, make([]byte, 4096)) {
		}
		for round := range 3 {
			gone, peer := pair(t, 0)
			if err := unix.Shutdown(peer, unix.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
			good, reader := pair(t, 0)
			for _, fd := range []int{gone, good, 1 << 20, full} {
				s.Add(fd, [][]byte{[]byte("he"), []byte("llo")})
			}
			r := s.Flush()
			if !errors.Is(r[0].Err, unix.EPIPE) || r[1] != (poll.Result{N: 5}) || !errors.Is(r[2].Err, unix.EBADF) || !errors.Is(r[3].Err, poll.ErrAgain) {
				t.Fatalf("round %d: %+v", round, r)
			}
			if got := drain(t, reader); string(got) != "hello" {
				t.Fatalf("got %q", got)
			}
		}
	})
}

// stream is what one socket is owed: numbers that no other socket's stream has.
type stream struct {
	fd, peer  int
	owed, got []byte
	sent      int
}

func (x *stream) pieces(r *rand.Rand) (bufs [][]byte) {
	rest := x.owed[x.sent:]
	for len(rest) > 0 && len(bufs) < 40 {
		n := min(r.IntN(200), len(rest))
		bufs = append(bufs, bytes.Clone(rest[:n]))
		rest = rest[n:]
	}
	return bufs
}

// Thousands of sockets with little room, some never read for a while, get their own bytes and no
// others, in order; what was given to the sender is scribbled over as soon as Flush returns.
func TestStreamsStayApart(t *testing.T) {
	senders(t, func(t *testing.T, s poll.Sender) {
		const sockets, numbers = 2000, 1500
		r := rand.New(rand.NewPCG(1, 2))
		var all []*stream
		for i := range sockets {
			x := &stream{}
			x.fd, x.peer = pair(t, 1)
			for n := range numbers {
				x.owed = binary.BigEndian.AppendUint32(x.owed, uint32(i*numbers+n))
			}
			all = append(all, x)
		}
		again := 0
		for left := sockets; left > 0; {
			left = 0
			var in []*stream
			var given [][][]byte
			settle := func() {
				for i, res := range s.Flush() {
					if errors.Is(res.Err, poll.ErrAgain) {
						again++
					} else if res.Err != nil {
						t.Fatal(res.Err)
					}
					in[i].sent += res.N
				}
				for _, bufs := range given {
					for _, b := range bufs {
						clear(b)
					}
				}
				in, given = in[:0], given[:0]
			}
			for _, x := range all {
				if r.IntN(3) == 0 {
					x.got = append(x.got, drain(t, x.peer)...)
				}
				if len(x.got) == len(x.owed) {
					continue
				}
				left++
				bufs := x.pieces(r)
				s.Add(x.fd, bufs)
				in, given = append(in, x), append(given, bufs)
				if s.Full() {
					settle()
				}
			}
			settle()
		}
		for i, x := range all {
			if !bytes.Equal(x.got, x.owed) {
				t.Fatalf("stream %d differs", i)
			}
		}
		if again == 0 {
			t.Fatal("no socket was ever full")
		}
	})
}

func TestNoGarbage(t *testing.T) {
	senders(t, func(t *testing.T, s poll.Sender) {
		a, b := pair(t, 0)
		c, d := pair(t, 0)
		one, two := [][]byte{[]byte("one")}, [][]byte{[]byte("o"), []byte("ne")}
		buf := make([]byte, 64)
		if n := testing.AllocsPerRun(100, func() {
			s.Add(a, one)
			s.Add(c, two)
			for _, r := range s.Flush() {
				if r.N != 3 {
					t.Errorf("%+v", r)
				}
			}
			_, _ = unix.Read(b, buf)
			_, _ = unix.Read(d, buf)
		}); n > 0 {
			t.Fatalf("%v allocations", n)
		}
	})
}

func TestRingThatFailsIsSeenInTheMode(t *testing.T) {
	if allowed() != nil {
		return // senders has looked at why
	}
	s := newSender(t)
	breakRing(t, s)
	a, _ := pair(t, 0)
	s.Add(a, [][]byte{[]byte("x")})
	if r := s.Flush(); r[0] != (poll.Result{N: 1}) || s.Mode() != poll.ModeUring {
		t.Fatalf("one send asked the ring: %+v by %s", r, s.Mode())
	}
	for range few + 1 {
		a, _ := pair(t, 0)
		s.Add(a, [][]byte{[]byte("x")})
	}
	for _, r := range s.Flush() {
		if r != (poll.Result{N: 1}) || s.Mode() != poll.ModeWrite {
			t.Fatalf("%+v by %s", r, s.Mode())
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// What the kernel took of a failing ring and never answered is an error; what it did not take goes
// out.
func TestSendsThatAreLostEndTheirConnections(t *testing.T) {
	if allowed() != nil {
		return // senders has looked at why
	}
	s := newSender(t)
	var peers []int
	for range 3 {
		a, b := pair(t, 0)
		peers = append(peers, b)
		s.Add(a, [][]byte{[]byte("x")})
	}
	for i := range s.sends {
		s.results[i].Err = errLost // as enter leaves them
	}
	s.fail(2)
	r := s.done()
	if !errors.Is(r[0].Err, errLost) || r[1] != (poll.Result{N: 1}) || r[2] != (poll.Result{N: 1}) {
		t.Fatalf("%+v", r)
	}
	for i, want := range []string{"", "x", "x"} {
		if got := drain(t, peers[i]); string(got) != want {
			t.Fatalf("%d got %q", i, got)
		}
	}
}
