// Package procfs reads what Linux says of processes and of its own memory.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/pushmesh/pushmesh/test/load/try"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// CPU is the time that all threads of the processes have run so far, exact to the nanosecond. Time
// in the kernel counts, that of io_uring's workers too. A thread that ended takes its time with it;
// the servers measured keep theirs.
func CPU(pids ...int) (_ time.Duration, err error) {
	defer try.Catch(&err)
	var sum time.Duration
	for _, pid := range pids {
		tasks := try.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)))
		if len(tasks) == 0 {
			return 0, fmt.Errorf("process %d is gone", pid)
		}
		for _, task := range tasks {
			b, err := os.ReadFile(task)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return 0, err
			}
			ns, err := ran(b)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", task, err)
			}
			sum += ns
		}
	}
	return sum, nil
}

// ran is the first field of a schedstat file: nanoseconds on a CPU.
func ran(b []byte) (time.Duration, error) {
	first, _, _ := bytes.Cut(b, []byte(" "))
	ns, err := strconv.ParseInt(string(first), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("not a schedstat: %q", b)
	}
	return time.Duration(ns), nil
}

// RSS is the resident memory of the processes together, in bytes. Pages that several share count
// once for each.
func RSS(pids ...int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		fields := bytes.Fields(b)
		if len(fields) < 2 {
			return 0, fmt.Errorf("process %d: not a statm: %q", pid, b)
		}
		pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process %d: not a statm: %w", pid, err)
		}
		sum += pages * int64(os.Getpagesize())
	}
	return sum, nil
}

// Kernel is the memory the kernel itself holds, in bytes: slabs, stacks, page tables, and what is
// in the queues of TCP sockets.
func Kernel() (_ int64, err error) {
	defer try.Catch(&err)
	var sum int64
	for _, field := range []string{"Slab", "KernelStack", "PageTables", "Percpu"} {
		n := try.Get(meminfo(field))
		sum += n
	}
	pages, err := tcpPages()
	return sum + pages*int64(os.Getpagesize()), err
}

// Available is the memory that programs can still get, in bytes.
func Available() (int64, error) { return meminfo("MemAvailable") }

func meminfo(field string) (_ int64, err error) {
	defer try.Catch(&err)
	b := try.Get(os.ReadFile("/proc/meminfo"))
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(field+":")); ok {
			kb, err := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", field)
}

// tcpPages is the "mem" of the line "TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 1".
func tcpPages() (_ int64, err error) {
	defer try.Catch(&err)
	b := try.Get(os.ReadFile("/proc/net/sockstat"))
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("TCP:")); ok {
			fields := bytes.Fields(rest)
			return strconv.ParseInt(string(fields[len(fields)-1]), 10, 64)
		}
	}
	return 0, errors.New("/proc/net/sockstat has no TCP")
}

// Children of a process, by its threads' own lists.
func Children(pid int) (_ []int, err error) {
	defer try.Catch(&err)
	lists := try.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)))
	var all []int
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			return nil, fmt.Errorf("children of %d: %w", pid, err)
		}
		for _, field := range bytes.Fields(b) {
			child, err := strconv.Atoi(string(field))
			if err != nil {
				return nil, fmt.Errorf("children of %d: %w", pid, err)
			}
			all = append(all, child)
		}
	}
	return all, nil
}
