package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Run starts p, waits for ctx, SIGINT or SIGTERM, and stops p within grace. It returns nil for a
// planned stop that went well. SIGHUP changes nothing. Where systemd has started the process, it
// hears of all that.
func Run(ctx context.Context, p Part, grace time.Duration) error {
	ctx, release := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer release()
	if err := p.Start(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, syscall.SIGHUP)
	defer signal.Stop(hangUp)
	ready(ctx)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-hangUp:
			slog.Warn("SIGHUP changes nothing: files of certificates, keys, issuers and backends are read again by themselves, other settings need a restart")
		}
	}
	stopping(grace)
	release() // a second signal ends the process at once
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return p.Stop(stop)
}
