package poll

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// MostFiles is how many descriptors this process may have open, by its limit.
func MostFiles() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	return int(min(limit.Cur, math.MaxInt32)), nil
}
