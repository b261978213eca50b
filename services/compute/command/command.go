// Package command is the command that runs a compute node; with the arguments `health URL` it says
// how one is.
package command

import (
	"cmp"
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
	"github.com/pushmesh/pushmesh/services/compute"
)

// Does is what it is for.
const Does = "Ranks candidates in a bounded CPU pool."

// Main runs the node that args describe until it is told to stop, and returns the exit code of the
// process.
func Main(ctx context.Context, args []string) int {
	err := run(ctx, args)
	if err != nil && !errors.Is(err, settings.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compute:", err)
	}
	return settings.ExitCode(err)
}

func run(ctx context.Context, args []string) error {
	if asked, err := health.Command(ctx, args); asked {
		return err
	}
	var s compute.Settings
	if err := settings.Parse(&s, "compute", Does, args, os.Stdout); err != nil {
		return err
	}
	cores.Spare(cmp.Or(s.Workers, cores.Usable()))
	c, err := compute.New(ctx, s)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(ballast.New(ballast.Size))
	tel := c.Telemetry()
	return lifecycle.Run(ctx, c, s.Grace, settings.OnHangUp(&s, "compute", args, tel.Log, func(s *compute.Settings) { tel.Change(s.LogLevel, s.TraceRatio) }))
}

// Explain reads settings as Main does, and says of each what it is and where that is from.
func Explain(args []string) ([]settings.Line, error) {
	return settings.Explain(new(compute.Settings), "compute", args)
}
