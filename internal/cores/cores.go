// Package cores says how many cores a process may use, and leaves Go more processors than that.
package cores

import (
	"os"
	"runtime"
	"sync"
)

// usable is what Go found before anybody asked for spare processors.
var usable = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// Usable is how many cores this process may use: what Go goes by at first, which heeds GOMAXPROCS,
// the affinity mask and a cgroup's quota.
func Usable() int { return usable() }

// spare is how many more processors of Go's there are than goroutines that may never rest.
const spare = 2

// Spare leaves some of Go's processors to what must not wait while so many goroutines are busy all
// the time: with none to spare, Go looks at sockets every 10 ms only, and passes work on every 10
// ms, whatever the kernel would do. The kernel shares the cores among them. Usable stays the same.
// Where GOMAXPROCS is in the environment, that is what Go goes by.
func Spare(busy int) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	if n := max(busy, Usable()) + spare; n > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}
