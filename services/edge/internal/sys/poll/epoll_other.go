//go:build !linux

package poll

import (
	"errors"
	"fmt"
	"runtime"
)

// HasEpoll reports whether this system does.
const HasEpoll = false

// OpenEpoll is an error: this system has no epoll.
func OpenEpoll(string, Buffers, int, int) ([]Poller, error) {
	return nil, fmt.Errorf("no epoll on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
