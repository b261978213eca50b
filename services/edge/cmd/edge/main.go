// Command edge runs one node of the edge tier; `edge health URL` says how one is.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

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

func run(ctx context.Context, args []string) error {
	if asked, err := health.Command(ctx, args); asked {
		return err
	}
	var s edge.Settings
	if err := settings.Parse(&s, "edge", "Holds the connections of subscribers and delivers messages to them.", args, os.Stdout); err != nil {
		return err
	}
	e, err := edge.New(ctx, s)
	if err != nil {
		return err
	}
	return lifecycle.Run(ctx, e, s.Grace)
}
