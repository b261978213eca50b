package edge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

const (
	// leastJitter is over how long at least clients are told to spread their coming back: those
	// that are told by one tick don't come together.
	leastJitter = 500 * time.Millisecond
	// mostJitter is how long a client is told to wait at most: until then it hears nothing.
	mostJitter = 5 * time.Second
	// settling is what a drain keeps for those that are told last: to ACK what they have, and to
	// have their session stored.
	settling = 2500 * time.Millisecond
)

// pace says over how long connections are told to go, so that no more come to other edges in a
// second than rate, and over how long each is told to spread its coming back. Where patience is too
// short for that rate, jitter makes up for some of it.
func pace(connections, rate int, patience time.Duration) (spread, jitter time.Duration) {
	wanted := time.Duration(float64(connections) / float64(rate) * float64(time.Second))
	spread = min(wanted, max(patience-settling, 0))
	return spread, min(max(wanted-spread, leastJitter), mostJitter)
}

// Stop is the planned stop: the edge is not ready, routers know that it drains, clients get GOAWAY
// one after the other, loops close their connections once nothing is owed, cursors are written, and
// the parts end, all within ctx.
func (e *Edge) Stop(ctx context.Context) error {
	e.draining.Store(true)
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
	spread, jitter := pace(e.connections(), e.settings.DrainPace, patience)
	e.tel.Log.Info("edge drains", "connections", e.connections(), "over", spread.String(), "jitter", jitter.String())
	var drained sync.WaitGroup
	for i := range e.loops {
		drained.Add(1)
		e.mesh.Post(uint16(i), exchange.Drain{
			SpreadMS: uint32(spread.Milliseconds()), JitterMS: uint32(jitter.Milliseconds()), DeadlineMS: uint32(patience.Milliseconds()),
			Addresses: e.mesh.Others, Done: sync.OnceFunc(drained.Done),
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
		return errors.New("a loop did not drain in time")
	case <-ctx.Done():
		return ctx.Err()
	}
}
