// Package settings reads a service's settings from flags and PUSHMESH_* variables, and reports all
// faults at once.
package settings

import (
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

// Exit codes of every command.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// ErrHelp says that help was asked for and printed: exit with ExitOK.
var ErrHelp = errors.New("help printed")

// UsageError is a fault of flags or variables: exit with ExitUsage.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Checker finds every fault of the settings, joined with errors.Join.
type Checker interface{ Check() error }

// Parse fills into, a pointer to a struct of kong fields, from args and from variables named
// PUSHMESH_ and the flag's name. Faults are a *UsageError that names every one of them.
func Parse(into Checker, name, description string, args []string, out io.Writer) error {
	helped, read := false, false
	parser, err := kong.New(into, kong.Name(name), kong.Description(description), kong.DefaultEnvars("PUSHMESH"),
		kong.Writers(out, out), kong.Exit(func(int) { helped = true }),
		kong.WithBeforeApply(func() error { read = true; return nil }))
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	_, err = parser.Parse(args)
	if helped {
		return ErrHelp
	}
	if err != nil && !read {
		return &UsageError{err} // into is not filled: its other faults are not known
	}
	if err := errors.Join(err, into.Check()); err != nil {
		return &UsageError{err}
	}
	return nil
}

// Require reports an empty required setting.
func Require(flag, value string) error {
	if value == "" {
		return fmt.Errorf("--%s is required", flag)
	}
	return nil
}

// Range reports a number out of bounds.
func Range[N int | int64 | float64](flag string, value, low, high N) error {
	if !(value >= low && value <= high) { //nolint:staticcheck // NaN is out of bounds, too
		return fmt.Errorf("--%s is %v, must be %v to %v", flag, value, low, high)
	}
	return nil
}

// ExitCode of an error returned by a command's run.
func ExitCode(err error) int {
	var usage *UsageError
	switch {
	case err == nil, errors.Is(err, ErrHelp):
		return ExitOK
	case errors.As(err, &usage):
		return ExitUsage
	}
	return ExitFailure
}
