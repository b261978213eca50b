package ranking

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// What a message and a member take at most before they are looked at, in bytes.
const (
	perMessage = 256
	perMember  = 128
)

// ranking is one under way. Its stages are prepare (in the pool), place, and score (in the pool) or
// ship; between them the ranker's goroutine has it. Whoever is first answers it: the last stage,
// one that fails, or the end of ctx.
type ranking struct {
	r      *Ranker
	asked  *exchange.Ranking
	began  time.Time
	ctx    context.Context //nolint:containedctx // it is the ranking's deadline
	cancel context.CancelFunc

	answered atomic.Bool
	bytes    int  // held, guarded by Ranker.mu
	released bool // likewise

	scoring    *scoring
	candidates []score.Candidate
	distinct   []score.Profile // of members, those alike once
	of         []int32         // for each member, which of distinct; -1: it gets nothing
	dimensions int             // of vectors, where they matter; 0: no message has one
	encoded    int             // bytes of all that, about
	parts      []part
	shipped    bool
	left       int                     // parts that are not done
	results    []exchange.RankedMember // for each of distinct
}

// part is distinct[from:to], a job of its own.
type part struct{ from, to int }

// prepare is the first stage: what is asked becomes a job.
func (k *ranking) prepare() {
	cost := 40*len(k.asked.Messages) + 8*len(k.asked.Members)
	k.run(cost, &preparation{k: k}, k.place)
}

// run has the pool do a task and then, unless it fails, the ranker's goroutine call next.
func (k *ranking) run(cost int, task cpupool.Task, next func()) {
	if cost > maxCost {
		k.fail(code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "the ranking is too much work for an edge"))
		return
	}
	err := k.r.pool.Go(k.ctx, k.asked.Policy.Prefix, cost, task, func(_ cpupool.Times, err error) {
		k.r.stages.Do(func() { // not here: the pool's lock is held
			if err != nil {
				k.fail(err)
				return
			}
			next()
		})
	})
	if err != nil {
		k.fail(err)
	}
}

// place is the second stage: it is decided where the ranking is scored.
func (k *ranking) place() {
	if len(k.distinct) == 0 || len(k.candidates) == 0 {
		k.finish()
		return
	}
	plan, err := k.plan()
	if err != nil {
		k.fail(err)
		return
	}
	k.parts, k.shipped = plan.parts, plan.ship
	k.left = len(plan.parts)
	if plan.ship {
		k.ship()
		return
	}
	k.run(plan.cost, &local{k: k}, k.finish)
}

// finish is the last stage: the answer is made of the parts' results.
func (k *ranking) finish() {
	members := make([]exchange.RankedMember, len(k.asked.Members))
	for i, at := range k.of {
		if at < 0 {
			continue
		}
		best := k.results[at].Best
		members[i] = exchange.RankedMember{Best: best[:min(len(best), topK(&k.asked.Members[i]))], Filtered: k.results[at].Filtered}
	}
	k.answer(members, nil)
}

func topK(m *exchange.RankMember) int { return max(int(m.TopK), 1) }

// fail answers with an error.
func (k *ranking) fail(err error) {
	switch {
	case errors.Is(k.ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		err = code.New(wirev1.Code_CODE_EXPIRED, "the deadline came before the ranking was done")
	case errors.Is(err, context.Canceled):
		err = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "the edge is stopping")
	}
	k.answer(nil, code.From(err))
}

// answer is for the first that calls it.
func (k *ranking) answer(members []exchange.RankedMember, err error) {
	if !k.answered.CompareAndSwap(false, true) {
		return
	}
	k.cancel()
	if e := code.From(err); e != nil {
		k.r.stats.failed(e)
		k.r.cfg.Post(k.asked.Loop, exchange.Ranked{Serial: k.asked.Serial, Err: e})
	} else {
		where := here
		if k.shipped {
			where = compute
		}
		k.r.stats.succeeded(where, len(k.asked.Messages), time.Since(k.began))
		k.r.cfg.Post(k.asked.Loop, exchange.Ranked{Serial: k.asked.Serial, Members: members})
	}
	k.r.release(k)
}
