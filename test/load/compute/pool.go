package compute

import (
	"context"
	"errors"
	"math"
	"runtime"
	"time"

	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// As a compute node has its pool.
const (
	nodeMaxCost   = 100_000_000
	nodeShortCost = 80_000
	nodeStep      = 25 * time.Nanosecond
)

// pool has a pool of this process do the mix, with tasks that compute for an exact time.
func (b *bench) pool(ctx context.Context) (err error) {
	defer try.Catch(&err)
	unit := calibrate()
	var rounds []outcome
	for i := range b.mixRounds {
		o := try.Get(b.poolRound(ctx, unit, uint64(i)))
		rounds = append(rounds, o)
	}
	b.mixRows("the pool", rounds, "")
	return nil
}

func (b *bench) poolRound(ctx context.Context, unit int, seed uint64) (o outcome, err error) {
	workers := runtime.NumCPU()
	p := cpupool.New(cpupool.Config{
		Workers: workers, Queue: [cpupool.Lanes]int{cpupool.Short: 4096, cpupool.Long: 1024}, MaxCost: nodeMaxCost * workers, ShortCost: nodeShortCost,
	})
	if err := p.Start(ctx); err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, p.Stop(context.WithoutCancel(ctx))) }()
	m := mix{workers: workers, load: b.mixLoad, shortWork: shortWork, longWork: longWork, do: func(long bool, done func(time.Duration, error)) {
		work := shortWork
		if long {
			work = longWork
		}
		t := &spin{left: int(work / time.Microsecond), unit: unit}
		if err := p.Go(ctx, "bench", int(work/nodeStep), t, func(t cpupool.Times, err error) { done(t.Waited+t.Ran, err) }); err != nil {
			done(0, err)
		}
	}}
	return m.run(ctx, b.mixSpan, seed)
}

// spin is a task that computes for so many µs.
type spin struct{ left, unit int }

// Step looks at the clock every 20 µs, as rankings do now and then.
func (s *spin) Step(slice time.Duration) (bool, error) {
	for began := time.Now(); s.left > 0; {
		n := min(s.left, 20)
		compute(n * s.unit)
		if s.left -= n; time.Since(began) >= slice {
			break
		}
	}
	return s.left == 0, nil
}

// compute is a chain of square roots.
func compute(n int) {
	v := 1.0
	for range n {
		v = math.Sqrt(v + 1)
	}
	runtime.KeepAlive(v) // or it would be left out
}

// calibrate says how many steps of compute take a µs: the best of some tries.
func calibrate() int {
	const steps = 2_000_000
	best := time.Hour
	for range 10 {
		began := cpu()
		compute(steps)
		best = min(best, cpu()-began)
	}
	return max(1, int(steps*time.Microsecond/best))
}
