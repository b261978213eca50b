package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A store that starts during an outage waits for its end, and for nothing that waiting doesn't
// mend.
func TestAStartWaitsForTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, broken := code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "away"), errors.New("no such column")
		tries := 0
		if err := insist(t.Context(), func() error {
			if tries++; tries < 4 {
				return away
			}
			return nil
		}); err != nil || tries != 4 {
			t.Errorf("%v after %d tries", err, tries)
		}
		tries = 0
		if err := insist(t.Context(), func() error { tries++; return broken }); !errors.Is(err, broken) || tries != 1 {
			t.Errorf("%v after %d tries", err, tries)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := insist(ctx, func() error { return away }); !errors.Is(err, away) {
			t.Errorf("%v", err)
		}
	})
}
