// Package leaks is for tests: it looks for goroutines that are left when they have ended.
package leaks

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines that were told to end may take: on a busy machine much longer
// than goleak waits by itself.
const patience = time.Minute

// Run runs the tests of a TestMain and is what to exit with: 1 also where they leave goroutines
// behind.
func Run(m *testing.M, options ...goleak.Option) int {
	exit := m.Run()
	if exit == 0 {
		if err := Find(options...); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			exit = 1
		}
	}
	return exit
}

// Find waits until no goroutine is left but those that options name; the error names those that
// stay.
func Find(options ...goleak.Option) error {
	for began := time.Now(); ; {
		if err := goleak.Find(options...); err == nil || time.Since(began) > patience {
			return err
		}
	}
}
