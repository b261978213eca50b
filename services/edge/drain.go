package edge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// jitter is over how long clients are told to spread their coming back.
const jitter = 2 * time.Second

// Stop is the planned stop: the edge is not ready, routers know that it drains, every client gets GOAWAY, loops close
// their connections once nothing is owed, cursors are written, and the parts end, all within ctx.
func (e *Edge) Stop(ctx context.Context) error {
	e.draining.Store(true)
	e.tel.Log.Info("edge drains", "connections", e.connections())
	e.mesh.Drain(ctx)
	var errs []error
	if err := e.drainLoops(ctx); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, e.stack.Stop(ctx))...)
}

// drainTime leaves a part of what ctx allows for cursors and the parts' ends.
func (e *Edge) drainTime(ctx context.Context) time.Duration {
	d := e.settings.Drain
	if until, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(until)*3/4)
	}
	return max(d, 0)
}

func (e *Edge) drainLoops(ctx context.Context) error {
	patience := e.drainTime(ctx)
	var drained sync.WaitGroup
	for i := range e.loops {
		drained.Add(1)
		e.mesh.Post(uint16(i), exchange.Drain{
			JitterMS: uint32(jitter.Milliseconds()), DeadlineMS: uint32(patience.Milliseconds()),
			Addresses: e.settings.advertised(), Done: sync.OnceFunc(drained.Done),
		})
	}
	done := make(chan struct{})
	go func() {
		drained.Wait()
		close(done)
	}()
	// A loop keeps to its deadline by itself; one that does not turn is not waited for much longer.
	late := time.NewTimer(patience + time.Second)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
		return errors.New("edge: a loop did not drain in time")
	case <-ctx.Done():
		return ctx.Err()
	}
}
