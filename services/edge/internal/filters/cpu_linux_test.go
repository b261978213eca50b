package filters

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// spent is the CPU time that this thread has had; the goroutine must be locked to it.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		t.Fatal(err)
	}
	return time.Duration(at.Nano())
}
