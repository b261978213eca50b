package store

import (
	"context"
	"errors"
	"time"
)

// checkpoint is one that the server makes in the middle of a load.
type checkpoint struct {
	timer *time.Timer
	took  chan time.Duration
	err   error // read after took
}

// checkpointIn has the server make one after a while.
func (b *bench) checkpointIn(ctx context.Context, wait time.Duration) *checkpoint {
	c := &checkpoint{took: make(chan time.Duration, 1)}
	c.timer = time.AfterFunc(wait, func() {
		began := time.Now()
		c.err = b.DB.Checkpoint(ctx)
		c.took <- time.Since(began).Round(10 * time.Millisecond)
	})
	return c
}

// end says how long it took; one that is not done yet is a fault.
func (c *checkpoint) end() (time.Duration, error) {
	c.timer.Stop()
	select {
	case took := <-c.took:
		return took, c.err
	default:
		return 0, errors.New("the checkpoint was not done before the load ended")
	}
}
