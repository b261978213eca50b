package procfs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Written is the bytes that a process has handed to write(2) and its like so far, sockets and files alike; not what it sent by sendmsg(2).
func Written(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if n, is := strings.CutPrefix(line, "wchar: "); is {
			return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, fmt.Errorf("no wchar in %q", b)
}
