// Package closing closes what of the SDK may have to wait, within bounds.
package closing

import (
	"context"
	"time"
)

// Patience of Close: a producer whose mesh is gone has answers to wait for that never come.
const Patience = 10 * time.Second

type closer interface {
	Close(ctx context.Context) error
}

// Close closes within Patience.
func Close(c closer) error { return Within(c, Patience) }

// Within closes within a time.
func Within(c closer, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return c.Close(ctx)
}
