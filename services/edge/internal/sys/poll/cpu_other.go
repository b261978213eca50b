//go:build !linux

package poll

import (
	"errors"
	"fmt"
	"runtime"
)

// CPUs is an error: this system keeps no thread on a CPU.
func CPUs() ([]int, error) { return nil, errNoPin() }

// Pin is an error: this system keeps no thread on a CPU.
func Pin(int) (undo func(), err error) { return nil, errNoPin() }

func errNoPin() error {
	return fmt.Errorf("loops can't be kept on CPUs on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
