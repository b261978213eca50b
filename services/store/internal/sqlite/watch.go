package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// watch sees the writers of this process: no other one has the file. They live as long as it does,
// so nobody is silent.
type watch struct{ backend *Backend }

// OpenWatch needs no connection.
func (b *Backend) OpenWatch(context.Context, backend.Owner) (backend.Watch, error) {
	return watch{b}, nil
}

func (w watch) Look(ctx context.Context) (v backend.View, err error) {
	if v.Owners, err = w.backend.Owners(ctx); err != nil {
		return v, err
	}
	seen := map[backend.RunID]bool{}
	for _, o := range v.Owners {
		if !seen[o.Run()] {
			seen[o.Run()] = true
			v.Runs = append(v.Runs, backend.Pulse{RunID: o.Run(), Busy: true})
		}
	}
	return v, nil
}

func (w watch) Fence(_ context.Context, run backend.RunID, _ string) error {
	return fmt.Errorf("sqlite: fence %s: %w", run.StoreID, backend.ErrAlive)
}

// Time is the host's: there is no other clock.
func (b *Backend) Time(context.Context) (uint64, error) { return uint64(time.Now().UnixMicro()), nil }

func (watch) Close() error { return nil }
