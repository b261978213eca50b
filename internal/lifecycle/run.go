package lifecycle

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Run starts p, waits for ctx, SIGINT or SIGTERM, and stops p within grace. It returns nil for a
// planned stop that went well. hangUp is called for each SIGHUP; nil: that changes nothing. Where
// systemd has started the process, it hears of the rest.
func Run(ctx context.Context, p Part, grace time.Duration, hangUp func()) error {
	ctx, release := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer release()
	if err := p.Start(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	hung := make(chan os.Signal, 1)
	signal.Notify(hung, syscall.SIGHUP)
	defer signal.Stop(hung)
	go hangsUp(ctx, hung, hangUp)
	ready(ctx)
	<-ctx.Done()
	stopping(grace)
	release() // a second signal ends the process at once
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return p.Stop(stop)
}

// hangsUp calls hangUp for each signal, beside: one that hangs does not keep the process from its
// planned stop.
func hangsUp(ctx context.Context, hung <-chan os.Signal, hangUp func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hung:
			if hangUp != nil {
				hangUp()
			}
		}
	}
}
