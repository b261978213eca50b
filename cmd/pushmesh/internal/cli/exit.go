package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	pushmesh "github.com/pushmesh/pushmesh/client"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// exitTimeout is the exit code of a command whose time was over before it had what it waited for.
const exitTimeout = 3

// exitNotHeld is the exit code of a command on a claim that is not held.
const exitNotHeld = 4

// errNotHeld ends with exitNotHeld; the output has told why.
var errNotHeld = fmt.Errorf("the claim is not held: %w", errReported)

// exitError ends with a code of its own; the output has told what there is to tell.
type exitError int

func (e exitError) Error() string        { return fmt.Sprintf("exit code %d", int(e)) }
func (e exitError) Is(target error) bool { return target == errReported }

// errTimeout is wrapped by what ends with exitTimeout.
var errTimeout = errors.New("timeout")

// errReported ends with a failure that the output has told already.
var errReported = errors.New("reported")

func exitCode(err error) int {
	var own exitError
	switch {
	case errors.Is(err, errTimeout):
		return exitTimeout
	case errors.Is(err, errNotHeld):
		return exitNotHeld
	case errors.As(err, &own):
		return int(own)
	}
	return settings.ExitCode(err)
}

func usage(format string, args ...any) error {
	return &settings.UsageError{Err: fmt.Errorf(format, args...)}
}

// explain is err for people: its Code, and whether trying again can help.
func explain(err error) string {
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
		return code.Retry(sdk.Code, sdk.RetryAfter, sdk.Message), true
	}
	var call interface{ GRPCStatus() *status.Status }
	if errors.As(err, &call) {
		return code.From(call.GRPCStatus().Err()), true
	}
	return nil, false
}

func codeName(c wirev1.Code) string { return code.Name(c) }
