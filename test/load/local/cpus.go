package local

import (
	"errors"
	"runtime"

	"github.com/pushmesh/pushmesh/test/load/try"
	"golang.org/x/sys/unix"
)

// CPUs that a process may run on.
type CPUs []int

// Split gives the first CPU that this program may use to one process, and the rest to all others.
// ok is false where there is only one.
func Split() (one, others CPUs, ok bool) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil || set.Count() < 2 {
		return nil, nil, false
	}
	for cpu := range len(set) * 64 {
		switch {
		case !set.IsSet(cpu):
		case one == nil:
			one = CPUs{cpu}
		default:
			others = append(others, cpu)
		}
	}
	return one, others, true
}

// Do runs f with this thread on those CPUs alone, and so every process that f starts. nil: as it
// is.
func (c CPUs) Do(f func() error) (err error) {
	defer try.Catch(&err)
	if c == nil {
		return f()
	}
	runtime.LockOSThread() // the main goroutine is already
	defer runtime.UnlockOSThread()
	var before, set unix.CPUSet
	try.Do(unix.SchedGetaffinity(0, &before))
	for _, cpu := range c {
		set.Set(cpu)
	}
	try.Do(unix.SchedSetaffinity(0, &set))
	defer func() { err = errors.Join(err, unix.SchedSetaffinity(0, &before)) }()
	return f()
}
