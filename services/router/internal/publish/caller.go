package publish

import "context"

// Caller names who calls, as limits know producers.
func Caller(ctx context.Context) string { return producer(ctx) }
