package cmdline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ExitTimeout is the exit code of a command whose time was over before it had what it waited for.
const ExitTimeout = 3

// ExitNotHeld is the exit code of a command on a claim that is not held.
const ExitNotHeld = 4

// ErrNotHeld ends with ExitNotHeld; the output has told why.
var ErrNotHeld = fmt.Errorf("the claim is not held: %w", ErrReported)

// ExitError ends with a code of its own; the output has told what there is to tell.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Is reports whether target is ErrReported.
func (e ExitError) Is(target error) bool { return target == ErrReported }

// ErrTimeout is wrapped by what ends with ExitTimeout.
var ErrTimeout = errors.New("timeout")

// ErrReported ends with a failure that the output has told already.
var ErrReported = errors.New("reported")

// ExitCode of the process that ends with err.
func ExitCode(err error) int {
	var own ExitError
	switch {
	case errors.Is(err, ErrTimeout):
		return ExitTimeout
	case errors.Is(err, ErrNotHeld):
		return ExitNotHeld
	case errors.As(err, &own):
		return int(own)
	}
	return settings.ExitCode(err)
}

// Usage is the error of a command line that is wrong.
func Usage(format string, args ...any) error {
	return &settings.UsageError{Err: fmt.Errorf(format, args...)}
}

// Explain is err for people: its Code, and whether trying again can help.
func Explain(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	e, ok := refusal(err)
	if !ok {
		return err.Error()
	}
	text := e.Error()
	switch {
	case e.RetryAfter > 0:
		return fmt.Sprintf("%s (try again in %s)", text, e.RetryAfter.Round(time.Millisecond))
	case code.Retryable(e.Code):
		return text + " (trying again may help)"
	}
	return text + " (trying the same again will not help)"
}

// refusal finds the reason in an error of the mesh, of the SDK or of a gRPC call; false where it is
// of none of them.
func refusal(err error) (*code.Error, bool) {
	var ours *code.Error
	if errors.As(err, &ours) {
		return ours, true
	}
	var sdk *pushmesh.Error
	if errors.As(err, &sdk) {
		return code.Retry(wirev1.Code(sdk.Code), sdk.RetryAfter, sdk.Message), true
	}
	var call interface{ GRPCStatus() *status.Status }
	if errors.As(err, &call) {
		return code.From(call.GRPCStatus().Err()), true
	}
	return nil, false
}
