package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// ready tells systemd, where that has started the process (Type=notify), that it serves, and then
// as often as the unit's WatchdogSec asks for that it still runs, until ctx ends. Elsewhere it does
// nothing.
func ready(ctx context.Context) {
	// A socket that can't be written to is seen by systemd itself: it waits for the words.
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil || within == 0 {
		return
	}
	go func() {
		beat := time.NewTicker(within / 3)
		defer beat.Stop()
		for {
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
			}
		}
	}()
}

// stopping tells systemd that the process stops as planned. within is how long that may take; the
// watchdog has to wait that long, too.
func stopping(within time.Duration) {
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	if left, err := daemon.SdWatchdogEnabled(false); err == nil && left > 0 {
		_, _ = daemon.SdNotify(false, fmt.Sprintf("WATCHDOG_USEC=%d", (within+left).Microseconds()))
	}
}
