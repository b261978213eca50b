package cpupool

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// job is one task with its place. Guarded by Pool.mu, but for task, which belongs to whoever runs
// it.
type job struct {
	ctx      context.Context
	caller   string
	cost     int
	lane     Lane
	task     Task
	queued   time.Time
	due      time.Time
	number   uint64 // in the order in which they came
	begun    bool
	running  bool
	answered bool
	ran      time.Duration
	waited   time.Duration
	answer   func(Times, error)
	unwatch  func() bool // of ctx
}

// Do runs a task and waits for its end, or that of ctx. A full queue refuses at once: OVERLOADED,
// with the time after which there should be room; what would never fit is INVALID_ARGUMENT. After
// an error the task may still be in a Step.
func (p *Pool) Do(ctx context.Context, caller string, cost int, task Task) (Times, error) {
	type outcome struct {
		times Times
		err   error
	}
	done := make(chan outcome, 1)
	if err := p.Go(ctx, caller, cost, task, func(t Times, err error) { done <- outcome{t, err} }); err != nil {
		return Times{}, err
	}
	o := <-done
	return o.times, o.err
}

// Go has a task run and its outcome told by answer, once, and before ctx has ended for long. A full
// queue refuses at once, as in Do: then answer is not called. answer is called with a lock of the
// pool held: it must neither wait nor call the pool.
func (p *Pool) Go(ctx context.Context, caller string, cost int, task Task, answer func(Times, error)) error {
	j := &job{ctx: ctx, caller: caller, cost: cost, task: task, queued: time.Now(), answer: answer}
	if cost > p.cfg.ShortCost {
		j.lane = Long
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.admit(j); err != nil {
		return err
	}
	if ctx.Done() != nil {
		j.unwatch = context.AfterFunc(ctx, func() { p.cancel(j) })
	}
	return nil
}

func (p *Pool) admit(j *job) error {
	l := &p.lanes[j.lane]
	switch {
	case p.stopped:
		return stops()
	case j.cost > p.cfg.MaxJob:
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("the job is too much work: %d steps, at most %d", j.cost, p.cfg.MaxJob))
	case l.queued >= l.limit:
		return p.full("the queue is full")
	case l.of(j.caller) >= max(l.limit/2, 1):
		return p.full("the caller has used up its share of the queue")
	case l.cost+j.cost > p.cfg.MaxCost:
		return p.full("too much work is queued")
	}
	p.cost += j.cost
	l.cost += j.cost
	p.came++
	j.number, j.due = p.came, due(j.queued, j.cost)
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

// cancel answers a job whose context has ended. One that runs costs until its slice has ended.
func (p *Pool) cancel(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case j.answered:
	case j.running:
		p.tell(j, context.Cause(j.ctx))
	case p.lanes[j.lane].remove(j):
		p.finish(j, context.Cause(j.ctx))
	}
}

// finish ends a job. Called with p.mu held, once for each.
func (p *Pool) finish(j *job, err error) {
	p.cost -= j.cost
	p.lanes[j.lane].cost -= j.cost
	p.tell(j, err)
}

// tell answers a job that was not answered yet.
func (p *Pool) tell(j *job, err error) {
	if j.answered {
		return
	}
	j.answered = true
	if j.unwatch != nil {
		j.unwatch()
	}
	if !j.begun {
		j.waited = time.Since(j.queued)
	}
	j.answer(Times{Waited: j.waited, Ran: j.ran}, err)
}
