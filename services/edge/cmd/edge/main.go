// Command edge runs one node of the edge tier; `edge health URL` says how one is.
package main

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

func main() {
	err := run(context.Background(), os.Args[1:])
	if err != nil && !errors.Is(err, settings.ErrHelp) {
		fmt.Fprintln(os.Stderr, "edge:", err)
	}
	os.Exit(settings.ExitCode(err))
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
	if err := settings.Parse(&s, "edge", "Holds the connections of subscribers and delivers messages to them.", args, os.Stdout); err != nil {
		return err
	}
	cores.Spare(s.Loops)
	e, err := edge.New(ctx, s)
	if err != nil {
		return err
	}
	return lifecycle.Run(ctx, e, s.Grace)
}
