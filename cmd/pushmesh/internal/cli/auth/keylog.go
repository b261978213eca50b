package auth

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

const (
	// stopWithin is how long a fetch of keys may take to end.
	stopWithin = 10 * time.Second
	// toldWithin is how long why a fetch has failed is waited for once it has: it is logged then.
	toldWithin = 2 * time.Second
)

// fault is why the keys of an issuer could not be fetched.
type fault struct{ issuer, why string }

// keyLog takes out of a verifier's log why keys could not be fetched.
type keyLog struct {
	slog.Handler
	faults chan fault
}

// Enabled has all that is worth a warning.
func (k *keyLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle notes a fault; of more than there are issuers the first ones are enough.
func (k *keyLog) Handle(_ context.Context, r slog.Record) error {
	var f fault
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "issuer":
			f.issuer = a.Value.String()
		case "error":
			f.why = a.Value.String()
		}
		return true
	})
	select {
	case k.faults <- f:
	default:
	}
	return nil
}

// tell writes the fault of the issuer that a refusal names.
func (k *keyLog) tell(refusal string, w io.Writer) {
	late := time.NewTimer(toldWithin)
	defer late.Stop()
	for {
		select {
		case f := <-k.faults:
			if strings.Contains(refusal, "issuer "+f.issuer+" ") {
				fmt.Fprintf(w, "the keys of issuer %s: %s\n", f.issuer, f.why)
				return
			}
		case <-late.C:
			return
		}
	}
}
