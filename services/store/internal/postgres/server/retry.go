package server

import (
	"context"
	"math/rand/v2"
	"time"
)

// What a transaction that the server gave up in favour of another is tried again: MaxRetries times,
// after pauses that grow from retryPause, each anything from nothing to twice that, so that two
// that met don't meet again.
const (
	MaxRetries = 3
	retryPause = 5 * time.Millisecond
)

// Transient reports whether the server rolled a transaction back only because of others that ran
// beside it: a serialization failure, a deadlock. Nothing of it is there.
func Transient(err error) bool {
	switch SQLState(err) {
	case "40001", "40P01":
		return true
	}
	return false
}

// Pause waits before the next try; false where ctx ended.
func Pause(ctx context.Context, tries int) bool {
	// #nosec G404 -- nobody gains by guessing it
	timer := time.NewTimer(rand.N(2 * retryPause << tries))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
