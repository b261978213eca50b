package uring

import (
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// refusing runs f in a thread of its own whose system calls of one number the kernel refuses with
// EPERM from refuse on, as the runtime of a container does. The thread ends with f.
func refusing(t *testing.T, number uint32, f func(refuse func() error) error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the filter is never taken away
		done <- f(func() error {
			filter := []unix.SockFilter{
				{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
				{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: 1},
				{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
				{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
			}
			prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return err
			}
			return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
		})
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A kernel that makes no ring, or makes one and lets nothing be done with it, is found out when the
// sender is made.
func TestRingThatIsRefusedAtStart(t *testing.T) {
	for _, number := range []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER} {
		refusing(t, number, func(refuse func() error) error {
			if err := refuse(); err != nil {
				return err
			}
			s, err := New()
			if s != nil || err == nil {
				return errors.Join(errors.New("a sender was made"), s.Close())
			}
			if why := allowed(); !errors.Is(err, unix.EPERM) && !errors.Is(err, errors.ErrUnsupported) {
				return errors.Join(errors.New("the reason is not told"), err, why)
			}
			return nil
		})
	}
}

// A ring that the kernel refuses later ends without a byte lost, sent twice or out of order.
func TestRingThatIsRefusedLaterLosesNothing(t *testing.T) {
	if allowed() != nil {
		return // senders has looked at why
	}
	const sockets, rounds = 3 * few, 6
	var from, to [sockets]int
	for i := range sockets {
		from[i], to[i] = pair(t, 0)
	}
	refusing(t, unix.SYS_IO_URING_ENTER, func(refuse func() error) error {
		s, err := New()
		if err != nil {
			return err
		}
		for round := range rounds {
			if round == rounds/2 {
				if err := refuse(); err != nil {
					return err
				}
			}
			for _, fd := range from {
				s.Add(fd, [][]byte{{'a' + byte(round)}, {'A' + byte(round)}})
			}
			for _, r := range s.Flush() {
				if r != (poll.Result{N: 2}) {
					return errors.Join(errors.New("a send failed"), r.Err)
				}
			}
			if want := map[bool]poll.Mode{false: poll.ModeUring, true: poll.ModeWrite}[round >= rounds/2]; s.Mode() != want {
				return errors.New("sends by " + string(s.Mode()))
			}
		}
		return s.Close()
	})
	for _, fd := range to {
		var got [64]byte
		if n, err := unix.Read(fd, got[:]); err != nil || string(got[:n]) != "aAbBcCdDeEfF" {
			t.Fatalf("got %q, %v", got[:max(n, 0)], err)
		}
	}
}
