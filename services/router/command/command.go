// Package command is the command that runs a router; with the arguments `health URL` it says how
// one is.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/pushmesh/pushmesh/internal/ballast"
	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/internal/health"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/services/router"
)

// Does is what it is for.
const Does = "Takes publishes over gRPC and routes messages to edges."

// Main runs the node that args describe until it is told to stop, and returns the exit code of the
// process.
func Main(ctx context.Context, args []string) int {
	err := run(ctx, args)
	if err != nil && !errors.Is(err, settings.ErrHelp) {
		fmt.Fprintln(os.Stderr, "router:", err)
	}
	return settings.ExitCode(err)
}

func run(ctx context.Context, args []string) error {
	if asked, err := health.Command(ctx, args); asked {
		return err
	}
	var s router.Settings
	if err := settings.Parse(&s, "router", Does, args, os.Stdout); err != nil {
		return err
	}
	cores.Spare(cores.Usable()) // callers may make every core busy
	r, err := router.New(ctx, s)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(ballast.New(ballast.Size))
	tel := r.Telemetry()
	return lifecycle.Run(ctx, r, s.Grace, settings.OnHangUp(&s, "router", args, tel.Log, func(s *router.Settings) { tel.Change(s.LogLevel, s.TraceRatio) }))
}

// Explain reads settings as Main does, and says of each what it is and where that is from.
func Explain(args []string) ([]settings.Line, error) {
	return settings.Explain(new(router.Settings), "router", args)
}
