// Package leaks is for tests: it looks for goroutines that are left when they have ended.
package leaks

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines that were told to end may take: on a busy machine much longer than goleak waits by itself.
const patience = time.Minute

// Main is a TestMain that fails where tests leave goroutines behind.
func Main(m *testing.M, options ...goleak.Option) {
	exit := m.Run()
	if exit == 0 {
		if err := Find(options...); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			exit = 1
		}
	}
	os.Exit(exit)
}

// Find waits until no goroutine is left but those that options name; the error names those that stay.
func Find(options ...goleak.Option) error {
	for began := time.Now(); ; {
		if err := goleak.Find(options...); err == nil || time.Since(began) > patience {
			return err
		}
	}
}
