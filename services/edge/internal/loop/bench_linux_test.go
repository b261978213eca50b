package loop

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// sink is the other end of many connections, drained by one goroutine that counts bytes.
type sink struct {
	poller *poll.Epoll
	fds    []int
	buf    []byte
}

func newSink(b *testing.B, l *Loop, conns int) *sink {
	b.Helper()
	s := &sink{buf: make([]byte, 256<<10)}
	var err error
	if s.poller, err = poll.NewEpoll(1024); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.poller.Close() })
	for i := range conns {
		c := dial(b, l)
		c.hello(&wirev1.Hello{ClientId: fmt.Sprint(i), HeartbeatMs: 600_000})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
		f, err := c.Conn.(*net.TCPConn).File() // a duplicate without a deadline of its own
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = f.Close() })
		fd := int(f.Fd()) // which makes it blocking
		if err := errors.Join(syscall.SetNonblock(fd, true), s.poller.Add(fd, uint32(i), 0)); err != nil {
			b.Fatal(err)
		}
		s.fds = append(s.fds, fd)
	}
	return s
}

// drain reads until so many bytes have come.
func (s *sink) drain(b *testing.B, want int) {
	b.Helper()
	var events []poll.Event
	err := s.poller.Run(func() poll.Next {
		var full bool
		var err error
		if events, full, err = s.poller.Events(events[:0]); err != nil {
			b.Error(err)
			return poll.End
		}
		for _, e := range events {
			if e.Slot < uint32(len(s.fds)) { // the waker is not ours
				want -= s.read(e.Slot)
			}
		}
		switch {
		case want <= 0:
			return poll.End
		case full:
			return poll.Again
		}
		return poll.Park
	})
	if err != nil || b.Failed() {
		b.Fatal(err)
	}
}

// read takes what a connection has.
func (s *sink) read(slot uint32) (got int) {
	for {
		n, err := poll.Read(s.fds[slot], s.buf)
		if err != nil {
			return got
		}
		if got += n; n < len(s.buf) {
			return got
		}
	}
}

func BenchmarkFanOut(b *testing.B) {
	const conns = 1000
	for _, inFlight := range []int{1, 64} {
		b.Run(fmt.Sprintf("in flight %d", inFlight), func(b *testing.B) {
			l, mesh := run(b, Limits{})
			s := newSink(b, l, conns)
			payloads := make([]string, inFlight)
			for i := range payloads {
				payloads[i] = fmt.Sprintf("%0128d", i)
			}
			b.ReportAllocs()
			for b.Loop() {
				size := 0
				for _, m := range mesh.Send("room/1", payloads...) {
					size += len(m.Frame)
				}
				s.drain(b, size*conns)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(conns*inFlight), "ns/delivery")
			lag := l.Stats().Lag
			b.ReportMetric(float64(lag.Recent().P99.Microseconds()), "lag-p99-us")
		})
	}
}
