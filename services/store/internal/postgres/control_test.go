package postgres

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// control commits small rows beside a test, on a connection of its own, and notes the longest time
// that one took: how long the machine, its disk or the server stood still at most, for whatever
// reason that is not the test's.
type control struct{ longest atomic.Int64 }

// stoodStill is what a control must have noticed for a scenario to be judged by another run of it.
const stoodStill = 200 * time.Millisecond

func controlled(t *testing.T, url string) *control {
	t.Helper()
	conn := connected(t, url)
	_, err := conn.Exec(t.Context(), `CREATE TABLE public.control (n int)`)
	need(t, err)
	c := &control{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			_, err := conn.Exec(ctx, `INSERT INTO public.control VALUES (1)`)
			if took := int64(time.Since(last)); err == nil && took > c.longest.Load() {
				c.longest.Store(took)
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		_ = conn.Close(context.Background()) // its question was cut off
	})
	return c
}

// runs a scenario, which says what went wrong, again where the machine stood still meanwhile.
func (c *control) runs(t *testing.T, scenario func() (wrong error)) {
	t.Helper()
	for tries := 1; ; tries++ {
		c.longest.Store(0)
		err := scenario()
		if err == nil {
			return
		}
		longest := time.Duration(c.longest.Load())
		if longest < stoodStill || tries == 10 {
			t.Errorf("%v; the machine stood still for %s at most; try %d", err, longest, tries)
			return
		}
		t.Logf("once more, since the machine stood still for %s: %v", longest, err)
	}
}
