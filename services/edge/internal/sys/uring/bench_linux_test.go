package uring

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// spent is the CPU time of this thread.
func spent(b *testing.B) time.Duration {
	b.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// BenchmarkSend sends to a thousand connections. Time holds what their readers take too: look at
// cpu-ns/send.
func BenchmarkSend(b *testing.B) {
	const conns, size = 1000, 160
	var fds, peers []int
	for range conns {
		fd, peer := loopback(b)
		fds, peers = append(fds, fd), append(peers, peer)
	}
	buf := make([]byte, 256<<10)
	for _, n := range []int{1, 64} {
		bufs := make([][]byte, n)
		for i := range bufs {
			bufs[i] = make([]byte, size)
		}
		for name, open := range map[string]func() (poll.Sender, error){
			"write": func() (poll.Sender, error) { return poll.NewWriter(), nil },
			"uring": func() (poll.Sender, error) { return New() },
		} {
			b.Run(fmt.Sprintf("%s of %d", name, n), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				s, err := open()
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				var cpu time.Duration
				b.ReportAllocs()
				for b.Loop() {
					cpu -= spent(b)
					for i := 0; i < conns; {
						for ; i < conns && !s.Full(); i++ {
							s.Add(fds[i], bufs)
						}
						for _, r := range s.Flush() {
							if r.Err != nil || r.N != n*size {
								b.Fatalf("%+v", r)
							}
						}
					}
					cpu += spent(b)
					for _, fd := range peers {
						if _, err := unix.Read(fd, buf); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N*conns), "cpu-ns/send")
			})
		}
	}
}
