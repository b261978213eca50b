// Package command is the command that runs a store; with the arguments `health URL` it says how one
// is.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/pushmesh/pushmesh/internal/ballast"
	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/internal/health"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/services/store"
)

// Does is what it is for.
const Does = "Persists durable messages, sessions, policies and dead letters."

// Main runs the node that args describe until it is told to stop, and returns the exit code of the
// process.
func Main(ctx context.Context, args []string) int {
	err := run(ctx, args)
	if err != nil && !errors.Is(err, settings.ErrHelp) {
		fmt.Fprintln(os.Stderr, "store:", err)
	}
	return settings.ExitCode(err)
}

func run(ctx context.Context, args []string) error {
	if asked, err := health.Command(ctx, args); asked {
		return err
	}
	var s store.Settings
	if err := settings.Parse(&s, "store", Does, args, os.Stdout); err != nil {
		return err
	}
	if s.MigrateOnly {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		return store.Migrate(ctx, s)
	}
	cores.Spare(cores.Usable()) // callers may make every core busy
	st, err := store.New(ctx, s)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(ballast.New(ballast.Size))
	tel := st.Telemetry()
	return lifecycle.Run(ctx, st, s.Grace, settings.OnHangUp(&s, "store", args, tel.Log, func(s *store.Settings) { tel.Change(s.LogLevel, s.TraceRatio) }))
}

// Explain reads settings as Main does, and says of each what it is and where that is from.
func Explain(args []string) ([]settings.Line, error) {
	return settings.Explain(new(store.Settings), "store", args)
}
