package lag

import (
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
)

const (
	// seldom and often are the times between two samples, while nothing is late and otherwise.
	seldom = 20 * time.Millisecond
	often  = 4 * time.Millisecond
	// A sample that is much late, or more, is so for the next ones as well.
	much  = time.Millisecond
	stays = 50
	// unbounded is the lag that is looked at closely where it may be any.
	unbounded = 10 * time.Millisecond
)

// Probe samples the lag: it writes a byte into a pipe when that is due, and looks how late the
// goroutine runs that waits for it, as readers of producers' connections wait. That counts whatever
// delays them: the scheduler of Go, that of the system, and who else needs the CPU. A sample is
// that, or how long requests waited on average that were received already, whichever is longer.
//
// It is a lifecycle.Part with two goroutines, and safe for concurrent use.
type Probe struct {
	group       *lifecycle.Group
	refuses     bool
	read, write *os.File
	pressure    atomic.Uint64 // a float's bits
	behind      atomic.Int32  // samples for which Late holds still
	lag         atomic.Int64
	waits       atomic.Int64 // of requests since the last sample, together
	waiters     atomic.Int64 // and how many they were

	mu    sync.Mutex
	gauge *Gauge
	due   time.Time // when the byte under way had to be written; zero: none is
}

// NewProbe makes a probe that has messages refused so that the lag stays below most; 0: it refuses
// nothing.
func NewProbe(most time.Duration, reg prometheus.Registerer) *Probe {
	p := &Probe{refuses: most > 0, gauge: NewGauge(cmp.Or(most, unbounded))}
	if reg != nil {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_lag_seconds", Help: "Scheduling delay of this process: a quarter of the recent samples ran at most this late.",
		}, func() float64 { return time.Duration(p.lag.Load()).Seconds() }))
	}
	return p
}

// Start begins to sample.
func (p *Probe) Start(context.Context) (err error) {
	p.group = lifecycle.NewGroup(context.Background())
	if p.read, p.write, err = os.Pipe(); err != nil {
		return err
	}
	p.group.Go("lag-beat", p.beat)
	p.group.Go("lag-probe", func(context.Context) { p.sample() })
	return nil
}

// Stop ends both goroutines.
func (p *Probe) Stop(ctx context.Context) (err error) {
	if p.read != nil {
		err = errors.Join(p.write.Close(), p.read.Close())
	}
	return errors.Join(err, p.group.Stop(ctx))
}

// beat has a sample taken whenever one is due.
func (p *Probe) beat(ctx context.Context) {
	timer := time.NewTimer(seldom)
	defer timer.Stop()
	next := time.Now().Add(seldom)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		every, err := p.begin(next)
		if err != nil {
			return // it stops
		}
		if next = next.Add(every); time.Since(next) > 0 {
			next = time.Now()
		}
		timer.Reset(time.Until(next))
	}
}

// begin writes a byte that was due. Where one is under way still, it is as late as it is by now:
// samples don't become rare where each takes long.
func (p *Probe) begin(due time.Time) (next time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due.IsZero() {
		p.due = due
		_, err = p.write.Write([]byte{0}) // one byte always has room
	} else {
		p.take()
	}
	if p.gauge.Calm() {
		return seldom, err
	}
	return often, err
}

func (p *Probe) sample() {
	var b [1]byte
	for {
		if _, err := p.read.Read(b[:]); err != nil {
			return // it stops
		}
		p.mu.Lock()
		p.take()
		p.due = time.Time{}
		p.mu.Unlock()
	}
}

// take takes a sample. p.mu is held.
func (p *Probe) take() {
	now := time.Now()
	late := now.Sub(p.due)
	if n := p.waiters.Swap(0); n > 0 {
		late = max(late, time.Duration(p.waits.Swap(0)/n))
	}
	p.gauge.Add(now, late)
	if late >= much {
		p.behind.Store(stays)
	} else if p.behind.Load() > 0 {
		p.behind.Add(-1)
	}
	if p.refuses {
		p.pressure.Store(math.Float64bits(p.gauge.Pressure()))
	}
	p.lag.Store(int64(p.gauge.Lag()))
}

// Waited says that a request had been received for so long when its turn came. Where a few
// producers send more than there is time for, that is where it waits, and no goroutine does. It
// takes no lock.
func (p *Probe) Waited(d time.Duration) {
	p.waits.Add(int64(d))
	p.waiters.Add(1)
}

// Pressure is 0 while this router is in time, 0.5 where it should refuse the lowest priority and 1
// where it should refuse everything (shed.Passes). It takes no lock.
func (p *Probe) Pressure() float64 { return math.Float64frombits(p.pressure.Load()) }

// Late reports whether one of the last samples was late by a millisecond or more. It takes no lock.
func (p *Probe) Late() bool { return p.behind.Load() > 0 }
