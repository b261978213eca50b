//go:build !linux

// Package uring sends through io_uring, which is Linux's: elsewhere it says so.
package uring

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// New is an error.
func New() (poll.Sender, error) {
	return nil, fmt.Errorf("uring: no io_uring on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
