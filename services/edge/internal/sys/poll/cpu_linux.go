package poll

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// CPUs are those that this process may run on, by the affinity mask of a thread that is not pinned.
// A cgroup's cpuset is part of it.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// Pin locks the goroutine to its thread, and that to one CPU, until undo.
func Pin(cpu int) (undo func(), err error) {
	runtime.LockOSThread()
	var before, set unix.CPUSet
	set.Set(cpu)
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &set)); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("CPU %d: %w", cpu, os.NewSyscallError("sched_setaffinity", err))
	}
	return func() {
		// A goroutine that ends locked takes its thread along, but not the process's first thread,
		// which would stay pinned.
		if unix.SchedSetaffinity(0, &before) == nil {
			runtime.UnlockOSThread()
		}
	}, nil
}
