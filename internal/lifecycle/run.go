package lifecycle

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"
)

// Run starts p, waits for ctx, SIGINT or SIGTERM, and stops p within grace. It returns nil for a
// planned stop that went well. Where systemd has started the process, it hears of all that.
func Run(ctx context.Context, p Part, grace time.Duration) error {
	ctx, release := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer release()
	if err := p.Start(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	ready(ctx)
	<-ctx.Done()
	stopping(grace)
	release() // a second signal ends the process at once
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return p.Stop(stop)
}
