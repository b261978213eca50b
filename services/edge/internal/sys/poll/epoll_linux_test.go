package poll

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is a connection: the accepted descriptor, and the other end.
func pair(t testing.TB) (fd int, peer net.Conn) {
	t.Helper()
	listener, at, err := Bind(t.Context(), "127.0.0.1:0", Buffers{})
	if err != nil {
		t.Fatal(err)
	}
	defer Close(listener)
	if err := Listen(listener); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Accept(listener); !errors.Is(err, ErrAgain) {
		t.Fatalf("nobody called: %v", err)
	}
	if peer, err = net.Dial("tcp", at.String()); err != nil {
		t.Fatal(err)
	}
	calls := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); _, err = unix.Poll(calls, int(time.Minute.Milliseconds())) {
	}
	if err != nil {
		t.Fatal(err)
	}
	if fd, _, err = Accept(listener); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(fd); _ = peer.Close() })
	if err := peer.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return fd, peer
}

func TestPortIsShared(t *testing.T) {
	a, at, err := Bind(t.Context(), "127.0.0.1:0", Buffers{})
	if err != nil {
		t.Fatal(err)
	}
	defer Close(a)
	b, again, err := Bind(t.Context(), at.String(), Buffers{})
	if err != nil || again != at {
		t.Fatalf("%v %v", again, err)
	}
	Close(b)
	if _, _, err := Bind(t.Context(), "no such address", Buffers{}); err == nil {
		t.Fatal("bound to nonsense")
	}
}

func TestWriteManyPieces(t *testing.T) {
	fd, peer := pair(t)
	var bufs [][]byte
	for i := range MaxPieces + 10 {
		bufs = append(bufs, []byte{byte(i)}, nil)
	}
	w := NewWriter()
	n, err := w.Write(fd, bufs)
	if err != nil || n != MaxPieces {
		t.Fatalf("wrote %d: %v", n, err)
	}
	got := make([]byte, n)
	if _, err := io.ReadFull(peer, got); err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if b != byte(i) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}

func TestEventsSayWhereThereMayBeMore(t *testing.T) {
	p, err := NewEpoll(2)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	for i := range 3 {
		fd, _ := pair(t)
		if err := p.Add(fd, uint32(i), 0); err != nil { // which is writable
			t.Fatal(err)
		}
	}
	for i, want := range []int{2, 1, 0} {
		events, full, err := p.Events(nil)
		if err != nil || len(events) != want || full != (want == 2) {
			t.Fatalf("%d: %v, full %v, %v", i, events, full, err)
		}
	}
}

func TestAcceptedSocketsSendAtOnce(t *testing.T) {
	fd, _ := pair(t)
	if v, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY); err != nil || v == 0 {
		t.Fatalf("TCP_NODELAY %d, %v", v, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Fatalf("flags %#x, %v", flags, err)
	}
}
