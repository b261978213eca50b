package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// usage is what processes have used so far, together.
type usage struct {
	cpu time.Duration
	rss int64 // bytes
}

// Of /proc on Linux: times count in ticks of USER_HZ, which is 100 on every architecture that Go supports.
const tick = time.Second / 100

func usageOf(pids []int) (usage, error) {
	var sum usage
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return usage{}, fmt.Errorf("the server's process: %w", err)
		}
		one, err := parseStat(stat)
		if err != nil {
			return usage{}, fmt.Errorf("process %d: %w", pid, err)
		}
		sum.cpu += one.cpu
		sum.rss += one.rss
	}
	return sum, nil
}

// parseStat reads /proc/PID/stat (proc(5)): the name, field 2, is in brackets and may hold anything.
func parseStat(stat []byte) (usage, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const utime, stime, rss = 14 - 3, 15 - 3, 24 - 3
	if len(fields) <= rss {
		return usage{}, fmt.Errorf("not a stat line: %q", stat)
	}
	var n [3]int64
	for i, at := range []int{utime, stime, rss} {
		var err error
		if n[i], err = strconv.ParseInt(string(fields[at]), 10, 64); err != nil {
			return usage{}, fmt.Errorf("not a stat line: %w", err)
		}
	}
	return usage{cpu: time.Duration(n[0]+n[1]) * tick, rss: n[2] * int64(os.Getpagesize())}, nil
}
