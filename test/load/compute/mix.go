package compute

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/table"
)

const (
	shortWork, longWork = time.Millisecond, 500 * time.Millisecond
	mixGoal             = 10 // ms, p99 of the short ones
	mixWarmUp           = time.Second
)

// mix is an open loop of short and long jobs of one caller: each begins when it is due, at random
// times, whatever became of those before.
type mix struct {
	workers int
	// load is how much of the workers' time jobs take; half of it the short ones.
	load float64
	// do has a job done, and calls done once, from wherever, with how long it waited and ran in the
	// pool.
	do func(long bool, done func(inPool time.Duration, err error))
	// shortWork and longWork are what the jobs really take.
	shortWork, longWork time.Duration
}

// outcome of a mix: how long jobs took from when they were due.
type outcome struct {
	short, long []time.Duration
	inPool      []time.Duration // of the short ones' time
	refused     int             // long ones, OVERLOADED
	failed      int             // others
	fault       error           // the first of these
	late        time.Duration   // how late the loop itself was at most
}

// run holds the load for a while, and waits for the last answer. What began in the first second
// does not count.
func (m *mix) run(ctx context.Context, span time.Duration, seed uint64) (o outcome, err error) {
	var under sync.WaitGroup
	var mu sync.Mutex
	late, err := m.arrivals(ctx, mixWarmUp+span, rand.New(rand.NewPCG(seed, 5)), func(long bool, due time.Time, counts bool) {
		under.Add(1)
		m.do(long, func(inPool time.Duration, err error) {
			defer under.Done()
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case long && code.Of(err) == wirev1.Code_CODE_OVERLOADED:
				o.refused++
			case err != nil:
				o.failed++
				o.fault = cmp.Or(o.fault, err)
			case !counts:
			case long:
				o.long = append(o.long, took)
			default:
				o.short, o.inPool = append(o.short, took), append(o.inPool, inPool)
			}
		})
	})
	under.Wait()
	o.late = late
	return o, err
}

// arrivals calls begin for each job when it is due, in a thread of its own: Go's timers are late
// where all processors are at work.
func (m *mix) arrivals(ctx context.Context, span time.Duration, r *rand.Rand, begin func(long bool, due time.Time, counts bool)) (late time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Who keeps the time comes before who works, where that is allowed.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
	defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 0) }()
	each := func(work time.Duration) time.Duration { // between two of a kind, on average
		return time.Duration(float64(work) / (m.load / 2 * float64(m.workers)))
	}
	began := time.Now()
	next := [2]time.Duration{0, each(m.longWork) / 2}
	for err == nil {
		long := next[1] < next[0]
		at, work := next[0], m.shortWork
		if long {
			at, work = next[1], m.longWork
		}
		if at > span {
			return late, nil
		}
		due := began.Add(at)
		flow.Sleep(due, flow.Yield)
		late = max(late, time.Since(due))
		begin(long, due, at > mixWarmUp)
		err = ctx.Err()
		gap := time.Duration(r.ExpFloat64() * float64(each(work)))
		if long {
			next[1] += gap
		} else {
			next[0] += gap
		}
	}
	return late, err
}

// mixRows tells of rounds: the median of their p99 counts. A short job that failed fails the row.
func (b *bench) mixRows(what string, rounds []outcome, more string) {
	var p99, p50, long50, inPool []float64
	late, short, long, refused := time.Duration(0), 0, 0, 0
	name := fmt.Sprintf("%s: p99 of jobs of %v beside those of %v, load %.0f %%", what, shortWork, longWork, b.mixLoad*100)
	for _, o := range rounds {
		if o.failed > 0 {
			b.Add(table.Failed(name, "ms", fmt.Errorf("%d jobs of a round; the first: %w", o.failed, o.fault)))
			return
		}
		p50, p99 = append(p50, table.Quantile(o.short, .5)), append(p99, table.Quantile(o.short, .99))
		inPool = append(inPool, table.Quantile(o.inPool, .99))
		long50 = append(long50, table.Quantile(o.long, .5))
		late, short, long, refused = max(late, o.late), short+len(o.short), long+len(o.long), refused+o.refused
	}
	b.Add(table.AtMost(name, table.Median(p99), "ms", mixGoal,
		fmt.Sprintf("rounds %s; p50 %.2f; p99 of waiting and running in the pool %.3g; %d short and %d long ones, these p50 %.0f ms, %d refused; the load itself was %.1f ms late at most%s", table.Spread(p99), table.Median(p50), table.Median(inPool), short, long,
			table.Median(long50), refused, float64(late)/float64(time.Millisecond), more)))
}
