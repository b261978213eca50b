package rawconn_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/rawconn"
)

const patience = time.Minute

// pair is a connection: the dialled end, and the accepted one, both with raw calls.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	d := &rawconn.Dialer{Dialer: net.Dialer{Timeout: patience}}
	if a, err = d.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	plain, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b = rawconn.Of(plain)
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// More than the kernel takes at once goes both ways at the same time, as it was written.
func TestBothWaysAtOnce(t *testing.T) {
	a, b := pair(t)
	sent := make([]byte, 8<<20)
	_, _ = rand.Read(sent)
	ended := make(chan error, 4)
	for _, c := range []net.Conn{a, b} {
		go func() {
			_, err := c.Write(sent)
			ended <- err
		}()
		go func() {
			got := make([]byte, len(sent))
			_, err := io.ReadFull(c, got)
			if err == nil && !bytes.Equal(got, sent) {
				err = errors.New("something else came")
			}
			ended <- err
		}()
	}
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

func TestEndIsEOF(t *testing.T) {
	a, b := pair(t)
	if _, err := a.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(b)
	if err != nil || string(got) != "last" {
		t.Fatalf("%q, %v", got, err)
	}
	if n, err := b.Read(nil); n != 0 || err != nil {
		t.Fatalf("a read of nothing: %d, %v", n, err)
	}
}

func TestDeadlinesEndWaits(t *testing.T) {
	a, _ := pair(t)
	for name, wait := range map[string]func() error{
		"read": func() error {
			_ = a.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := a.Read(make([]byte, 1))
			return err
		},
		"write": func() error { // nobody reads
			_ = a.SetWriteDeadline(time.Now().Add(time.Millisecond))
			_, err := a.Write(make([]byte, 64<<20))
			return err
		},
	} {
		err := wait()
		var e *net.OpError
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &e) || !e.Timeout() || e.Op != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCloseEndsWaits(t *testing.T) {
	a, _ := pair(t)
	ended := make(chan error)
	go func() {
		_, err := a.Read(make([]byte, 1))
		ended <- err
	}()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// Writing to a peer that is gone is an error that names the call, and no signal.
func TestPeerIsGone(t *testing.T) {
	a, b := pair(t)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); {
		_, err = a.Write([]byte("x"))
	}
	var e *net.OpError
	if !errors.As(err, &e) || !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
}

// What has no socket of its own stays as it is.
func TestOthersStayAsTheyAre(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	if rawconn.Of(a) != a {
		t.Error("a pipe was wrapped")
	}
	if _, err := new(rawconn.Dialer).Dial("tcp", "no such address"); err == nil {
		t.Error("dialled nonsense")
	}
}

func TestCallsMakeNoGarbage(t *testing.T) {
	a, b := pair(t)
	buf := make([]byte, 16)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := a.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b, buf); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
