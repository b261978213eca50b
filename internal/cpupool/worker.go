package cpupool

import (
	"context"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// worker is a goroutine that runs slices. Guarded by Pool.mu.
type worker struct {
	job   *job // in a Step; nil: none
	since time.Time
	lost  bool // another one has its place
}

// hire starts a worker.
func (p *Pool) hire() {
	w := &worker{}
	p.mu.Lock()
	p.running[w] = struct{}{}
	p.mu.Unlock()
	// Not in the group: one whose Step does not come back can't be waited for. Stop waits for those
	// in p.running.
	go pprof.Do(context.Background(), pprof.Labels("goroutine", "cpupool-worker"), func(context.Context) { p.run(w) })
}

// run works until the pool has ended and nothing waits, or the worker was given up.
func (p *Pool) run(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !w.lost {
		j := p.next()
		switch {
		case j != nil:
			p.slice(w, j)
		case p.ended:
			delete(p.running, w)
			p.work.Broadcast() // Stop waits for the last
			return
		default:
			p.work.Wait()
		}
	}
	p.lost--
}

// longTurn is the share of the long lane while short jobs wait: every so many turns.
const longTurn = 4

// next is the job whose turn it is: short ones first, but for the turns of the long lane, so that
// neither starves.
func (p *Pool) next() *job {
	p.turn++
	first, second := &p.lanes[Short], &p.lanes[Long]
	if p.turn%longTurn == 0 {
		first, second = second, first
	}
	if j := first.pop(); j != nil {
		return j
	}
	return second.pop()
}

// slice runs one slice of a job, without p.mu, and puts it back or ends it.
func (p *Pool) slice(w *worker, j *job) {
	began := time.Now()
	if j.ctx.Err() != nil {
		p.finish(j, context.Cause(j.ctx))
		return
	}
	// While all of Go's processors are busy its timers are late, and so is what ctx says.
	if due, ok := j.ctx.Deadline(); ok && began.After(due) {
		p.finish(j, context.DeadlineExceeded)
		return
	}
	if !j.begun {
		j.begun = true
		j.waited = began.Sub(j.queued)
	}
	w.job, w.since, j.running = j, began, true
	p.mu.Unlock()
	done, err := p.step(j)
	took := time.Since(began)
	p.mu.Lock()
	w.job, j.running = nil, false
	j.ran += took
	switch {
	case err != nil:
		p.finish(j, err)
	case done:
		p.learn(j)
		p.finish(j, nil)
	case j.answered || j.ctx.Err() != nil:
		p.finish(j, context.Cause(j.ctx))
	case p.left:
		p.finish(j, stops())
	default:
		p.lanes[j.lane].push(j)
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
	if j.lane == Short {
		return j.task.Step(ShortSlice)
	}
	return j.task.Step(Slice)
}

// learn smooths the speed at which jobs are done, for refusals to name a time.
func (p *Pool) learn(j *job) {
	if s := j.ran.Seconds(); s > 0 && j.cost > 0 {
		p.rate += (float64(j.cost)/s - p.rate) / 16
	}
}

// watch looks for workers that do not come back from a Step.
func (p *Pool) watch(ctx context.Context) {
	ticks := time.NewTicker(p.cfg.Stall / 4)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			for range p.giveUp(now) {
				p.hire()
			}
		}
	}
}

// giveUp answers jobs whose Step takes too long and says how many workers have to be replaced.
func (p *Pool) giveUp(now time.Time) (replaced int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.running {
		if w.job == nil || now.Sub(w.since) < p.cfg.Stall {
			continue
		}
		delete(p.running, w)
		w.lost = true
		p.lost++
		p.losses++
		replaced++
		if p.cfg.OnLost != nil {
			p.cfg.OnLost(w.job.caller, now.Sub(w.since))
		}
		p.answer(w.job, code.New(wirev1.Code_CODE_INTERNAL, "a step of the job did not return"))
	}
	return replaced
}
