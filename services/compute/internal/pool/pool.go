// Package pool runs CPU-bound jobs on a fixed number of workers, in slices that take turns between callers, from queues that
// refuse when they are full.
package pool

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Slice is how long a job may run before it's another one's turn.
const Slice = time.Millisecond

// Task is work that is done in slices. Step works for about the time given and says whether all is done; it is never called by
// two goroutines at once.
type Task interface {
	Step(slice time.Duration) (done bool, err error)
}

// Config of a pool.
type Config struct {
	Workers int
	// Queued jobs of each lane at most; one caller may have half of them.
	Queue [Lanes]int
	// Cost of everything admitted and not finished, at most: what bounds the memory of queued jobs.
	MaxCost int
	// ShortCost is the highest cost of a job of the short lane.
	ShortCost int
	// OnPanic is told of a job's panic. It may be nil.
	OnPanic func(reason any, stack []byte)
}

// Times of a job.
type Times struct{ Waited, Ran time.Duration }

// Pool is a lifecycle.Part that owns the workers.
type Pool struct {
	cfg   Config
	group *lifecycle.Group

	mu      sync.Mutex
	work    *sync.Cond // a job is ready, or the pool ends
	lanes   [Lanes]lane
	turn    Lane
	cost    int
	rate    float64 // cost units a second and worker, smoothed
	stopped bool
	left    bool // jobs are answered UNAVAILABLE instead of run
	ended   bool // workers go home
}

// job is one task with its place. Guarded by Pool.mu, but for task and the times, which belong to whoever runs it.
type job struct {
	ctx     context.Context
	caller  string
	cost    int
	lane    Lane
	task    Task
	queued  time.Time
	begun   bool
	times   Times
	err     error
	running bool
	done    chan struct{}
}

// New makes a pool that does nothing before Start.
func New(cfg Config) *Pool {
	p := &Pool{cfg: cfg, rate: 20e6}
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
		p.group.Go("compute-worker", func(context.Context) { p.worker() })
	}
	return nil
}

// Drain refuses new jobs from now on.
func (p *Pool) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// Stop refuses new jobs, finishes those it has until ctx ends, answers the rest UNAVAILABLE, and sends the workers home.
func (p *Pool) Stop(ctx context.Context) error {
	p.Drain()
	late := context.AfterFunc(ctx, p.Abandon)
	defer late()
	p.mu.Lock()
	p.ended = true
	p.work.Broadcast()
	p.mu.Unlock()
	return p.group.Stop(context.WithoutCancel(ctx)) // a slice is short, so the workers do end
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

func stops() error { return code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "the node stops") }

// Do runs a task and waits for its end, or that of ctx. A full queue refuses at once: OVERLOADED, with the time after which
// there should be room.
func (p *Pool) Do(ctx context.Context, who string, cost int, task Task) (Times, error) {
	j := &job{ctx: ctx, caller: who, cost: cost, task: task, queued: time.Now(), done: make(chan struct{})}
	if cost > p.cfg.ShortCost {
		j.lane = Long
	}
	if err := p.admit(j); err != nil {
		return Times{}, err
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		p.cancel(j)
		<-j.done // a slice later at most
	}
	return j.times, j.err
}

func (p *Pool) admit(j *job) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.lanes[j.lane]
	switch {
	case p.stopped:
		return stops()
	case l.queued >= l.limit:
		return p.full("the queue is full")
	case l.of(j.caller) >= max(l.limit/2, 1):
		return p.full("the caller has its share of the queue")
	case p.cost+j.cost > p.cfg.MaxCost:
		return p.full("the work queued is too much")
	}
	p.cost += j.cost
	l.push(j)
	p.work.Signal()
	return nil
}

// full refuses with the time in which half of the work that is queued should be done.
func (p *Pool) full(why string) error {
	after := time.Duration(float64(p.cost) / (2 * p.rate * float64(p.cfg.Workers)) * float64(time.Second))
	after = min(max(after, 10*time.Millisecond), 5*time.Second)
	return code.Retry(wirev1.Code_CODE_OVERLOADED, after, why)
}

// cancel ends a job that waits; one that runs notices by itself.
func (p *Pool) cancel(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !j.running && p.lanes[j.lane].remove(j) {
		p.finish(j, context.Cause(j.ctx))
	}
}

// finish answers a job. Called with p.mu held, once for each job.
func (p *Pool) finish(j *job, err error) {
	if !j.begun {
		j.times.Waited = time.Since(j.queued)
	}
	j.err = err
	p.cost -= j.cost
	close(j.done)
}

// worker runs slices until the pool has ended and nothing waits.
func (p *Pool) worker() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		j := p.next()
		if j == nil {
			if p.ended {
				return
			}
			p.work.Wait()
			continue
		}
		p.slice(j)
	}
}

// next is the job whose turn it is. The lanes alternate, so that neither starves.
func (p *Pool) next() *job {
	for range Lanes {
		p.turn = (p.turn + 1) % Lanes
		if j := p.lanes[p.turn].pop(); j != nil {
			return j
		}
	}
	return nil
}

// slice runs one slice of a job, without p.mu, and puts it back or answers it.
func (p *Pool) slice(j *job) {
	if j.ctx.Err() != nil {
		p.finish(j, context.Cause(j.ctx))
		return
	}
	j.running = true
	began := time.Now()
	if !j.begun {
		j.begun = true
		j.times.Waited = began.Sub(j.queued)
	}
	p.mu.Unlock()
	done, err := p.step(j)
	took := time.Since(began)
	p.mu.Lock()
	j.running = false
	j.times.Ran += took
	switch {
	case err != nil:
		p.finish(j, err)
	case done:
		p.learn(j)
		p.finish(j, nil)
	case j.ctx.Err() != nil:
		p.finish(j, context.Cause(j.ctx))
	case p.left:
		p.finish(j, stops())
	default:
		p.lanes[j.lane].again(j)
		p.work.Signal()
	}
}

// step survives a job's panic: the job is answered INTERNAL and the worker goes on.
func (p *Pool) step(j *job) (done bool, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			done, err = true, code.New(wirev1.Code_CODE_INTERNAL, fmt.Sprintf("the job panicked: %v", reason))
			if p.cfg.OnPanic != nil {
				p.cfg.OnPanic(reason, debug.Stack())
			}
		}
	}()
	return j.task.Step(Slice)
}

// learn smooths the speed at which jobs are done, for refusals to name a time.
func (p *Pool) learn(j *job) {
	if s := j.times.Ran.Seconds(); s > 0 && j.cost > 0 {
		p.rate += (float64(j.cost)/s - p.rate) / 16
	}
}

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
