package e2e

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// again calls until the mesh does not say any more that calling again helps, as it does while it
// takes nodes for gone because the machine stood still. asked is how often it was called.
func again[T any](call func() (T, error)) (resp T, asked int, err error) {
	for deadline := time.Now().Add(wireclient.Patience); ; <-time.After(10 * time.Millisecond) {
		asked++
		if resp, err = call(); err == nil || !code.Retryable(code.Of(err)) || time.Now().After(deadline) {
			return resp, asked, err
		}
	}
}
