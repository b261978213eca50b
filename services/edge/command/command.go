// Package command is the command that runs an edge; with the arguments `health URL` it says how one
// is.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/internal/health"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/services/edge"
)

// Does is what it is for.
const Does = "Holds the connections of subscribers and delivers messages to them."

// Main runs the node that args describe until it is told to stop, and returns the exit code of the
// process.
func Main(ctx context.Context, args []string) int {
	err := run(ctx, args)
	if err != nil && !errors.Is(err, settings.ErrHelp) {
		fmt.Fprintln(os.Stderr, "edge:", err)
	}
	return settings.ExitCode(err)
}

// smallHeap lets the heap grow by half before it is collected, where GOGC says nothing else: what
// an edge has very many of lies in slabs beside the heap, so that a collection walks a few
// megabytes, and memory for each connection is what an edge is bought for.
func smallHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

func run(ctx context.Context, args []string) error {
	if asked, err := health.Command(ctx, args); asked {
		return err
	}
	smallHeap()
	var s edge.Settings
	if err := settings.Parse(&s, "edge", Does, args, os.Stdout); err != nil {
		return err
	}
	cores.Spare(s.Loops)
	e, err := edge.New(ctx, s)
	if err != nil {
		return err
	}
	tel := e.Telemetry()
	return lifecycle.Run(ctx, e, s.Grace, settings.OnHangUp(&s, "edge", args, tel.Log, func(s *edge.Settings) { tel.Change(s.LogLevel, s.TraceRatio) }))
}

// Explain reads settings as Main does, and says of each what it is and where that is from.
func Explain(args []string) ([]settings.Line, error) {
	return settings.Explain(new(edge.Settings), "edge", args)
}
