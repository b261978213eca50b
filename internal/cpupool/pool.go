// Package cpupool runs CPU-bound jobs on a fixed number of workers, in slices that take turns
// between callers, from queues that refuse when they are full. A job is answered once, whatever
// becomes of it; a worker whose job does not come back is replaced by one.
package cpupool

import (
	"context"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Slice is how long a long job may run before it's another one's turn.
const Slice = time.Millisecond

// ShortSlice is that of short jobs: most are done in their first, and wait once.
const ShortSlice = 2 * time.Millisecond

// Task is work that is done in slices. Step works for about the time given and reports whether all
// is done; it is never called by two goroutines at once. A task whose job was answered with an
// error may still be in a Step.
type Task interface {
	Step(slice time.Duration) (done bool, err error)
}

// Config of a pool.
type Config struct {
	// Workers is how many slices run at a time.
	Workers int
	// Queue is how many jobs of each lane may wait; one caller may have half of them.
	Queue [Lanes]int
	// MaxCost of everything admitted in a lane and not finished: what bounds the memory of queued
	// jobs. Each lane has its own, so that long jobs leave room for short ones.
	MaxCost int
	// MaxJob is the highest cost of one job; 0: MaxCost.
	MaxJob int
	// ShortCost is the highest cost of a job of the short lane.
	ShortCost int
	// Stall is how long one Step may take before its job is answered INTERNAL and its worker
	// replaced; 0: DefaultStall.
	Stall time.Duration
	// OnPanic is told of a job's panic. It may be nil.
	OnPanic func(reason any, stack []byte)
	// OnLost is told, with a lock of the pool held, of a job that was given up because its Step
	// does not come back. It may be nil.
	OnLost func(caller string, since time.Duration)
}

// DefaultStall is far beyond a slice: a process that is stopped or starved for a moment has lost no
// worker.
const DefaultStall = 2 * time.Second

// Times of a job: until its first slice, and within slices.
type Times struct{ Waited, Ran time.Duration }

// Pool is a lifecycle.Part that owns the workers.
type Pool struct {
	cfg   Config
	group *lifecycle.Group

	mu      sync.Mutex
	work    *sync.Cond // a job is ready, or the pool ends
	lanes   [Lanes]lane
	turn    int
	came    uint64  // jobs admitted, ever
	cost    int     // of jobs admitted whose work has not ended
	rate    float64 // cost units a second and worker, smoothed
	running map[*worker]struct{}
	lost    int  // workers whose Step has not come back
	losses  int  // ever
	stopped bool // nothing is admitted
	left    bool // jobs are answered UNAVAILABLE instead of run
	ended   bool // workers go home
}

// New makes a pool that does nothing before Start.
func New(cfg Config) *Pool {
	if cfg.Stall == 0 {
		cfg.Stall = DefaultStall
	}
	if cfg.MaxJob == 0 {
		cfg.MaxJob = cfg.MaxCost
	}
	p := &Pool{cfg: cfg, rate: 20e6, running: map[*worker]struct{}{}}
	p.work = sync.NewCond(&p.mu)
	for i := range p.lanes {
		p.lanes[i] = lane{callers: map[string]*caller{}, limit: cfg.Queue[i]}
	}
	return p
}

// Start starts the workers.
func (p *Pool) Start(ctx context.Context) error {
	p.group = lifecycle.NewGroup(context.WithoutCancel(ctx))
	for range p.cfg.Workers {
		p.hire()
	}
	p.group.Go("cpupool-watch", p.watch)
	return nil
}

// Drain refuses new jobs from now on.
func (p *Pool) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// Stop refuses new jobs, finishes those it has until ctx ends, answers the rest UNAVAILABLE, and
// sends the workers home. Steps that do not come back are left behind.
func (p *Pool) Stop(ctx context.Context) error {
	p.Drain()
	late := context.AfterFunc(ctx, p.Abandon)
	defer late()
	p.mu.Lock()
	p.ended = true
	p.work.Broadcast()
	for len(p.running) > 0 {
		p.work.Wait()
	}
	p.mu.Unlock()
	return p.group.Stop(context.WithoutCancel(ctx)) // watch alone is left
}

// Abandon answers what waits UNAVAILABLE, and what runs after its slice.
func (p *Pool) Abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped, p.left = true, true
	for i := range p.lanes {
		for j := p.lanes[i].pop(); j != nil; j = p.lanes[i].pop() {
			p.finish(j, stops())
		}
	}
}

func stops() error { return code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "the node is stopping") }

// Depth is how many jobs of a lane wait.
func (p *Pool) Depth(l Lane) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lanes[l].queued
}

// Cost of everything admitted and not finished.
func (p *Pool) Cost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cost
}

// Lost is how many workers have not come back from a Step and were replaced, now and ever.
func (p *Pool) Lost() (now, ever int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost, p.losses
}
