package poll

import (
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel says how long an answer took, and what it has not sent.
func TestPathOfAConnection(t *testing.T) {
	fd, peer := pair(t)
	var info Info
	if rtt, unsent := info.Path(fd); rtt == 0 || rtt > uint32(time.Minute.Microseconds()) || unsent != 0 {
		t.Fatalf("a new connection: %d µs, %d bytes", rtt, unsent)
	}
	many := make([]byte, 1<<20)
	sent := 0
	for {
		n, err := unix.Write(fd, many)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	if _, unsent := info.Path(fd); unsent == 0 || int(unsent) > sent {
		t.Fatalf("%d bytes are not sent of %d that nobody reads", unsent, sent)
	}
	if _, err := io.CopyN(io.Discard, peer, int64(sent)); err != nil {
		t.Fatal(err)
	}
	if _, unsent := info.Path(fd); unsent != 0 {
		t.Fatalf("%d bytes are not sent of those that were read", unsent)
	}
	if rtt, unsent := info.Path(-1); rtt != 0 || unsent != 0 {
		t.Fatalf("no connection: %d µs, %d bytes", rtt, unsent)
	}
}

// What the peer has taken is what it has room for, and grows with what it reads.
func TestWhatThePeerHasTakenGrows(t *testing.T) {
	fd, peer := pair(t)
	var info Info
	many, sent := make([]byte, 1<<20), 0
	for {
		n, err := unix.Write(fd, many)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	if taken := info.Taken(fd); taken >= uint64(sent) {
		t.Fatalf("%d of %d bytes are taken that nobody reads", taken, sent)
	}
	if _, err := io.CopyN(io.Discard, peer, int64(sent)); err != nil {
		t.Fatal(err)
	}
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for deadline := time.After(time.Minute); info.Taken(fd) < uint64(sent); {
		select {
		case <-pace.C:
		case <-deadline:
			t.Fatalf("%d of %d bytes are taken that were read", info.Taken(fd), sent)
		}
	}
	if info.Taken(-1) != 0 {
		t.Fatal("no connection has taken something")
	}
}

func BenchmarkPath(b *testing.B) {
	fd, _ := pair(b)
	var info Info
	b.ReportAllocs()
	for b.Loop() {
		info.Path(fd)
	}
}
