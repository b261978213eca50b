package compute

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpu is what all threads of this process have run so far, the collector's among them: a second of
// it is a second of one core, whatever else runs on the machine.
func cpu() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // there is one on every Linux
	return time.Duration(t.Nano())
}

// perSecond repeats what does some units of work until it has run for a while, and says how many a
// second of CPU are done.
func perSecond(span time.Duration, units int, work func() error) (float64, error) {
	began, times := cpu(), 0
	for {
		if err := work(); err != nil {
			return 0, err
		}
		times++
		if ran := cpu() - began; ran >= span {
			return float64(times) * float64(units) / ran.Seconds(), nil
		}
	}
}
