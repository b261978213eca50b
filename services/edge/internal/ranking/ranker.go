// Package ranking implements exchange.Ranks: it gathers candidates for their windows, and has
// rankings scored, those of little work here, in a pool of its own beside the event loops, and the
// others by the compute tier. A ranking is answered once, at its deadline at the latest, whatever
// becomes of it.
package ranking

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
)

// Bounds of what is under way.
const (
	// maxRankings at a time, and maxBytes that they hold beside the messages. More are OVERLOADED
	// at once.
	maxRankings = 4096
	maxBytes    = 128 << 20
	// maxCost of what the pool has, in steps of score.Unit: half a second of a core. What alone is
	// more is not scored here.
	maxCost = 20_000_000
	// shortCost is about what fits into a slice.
	shortCost  = 20_000
	shortQueue = 2 * maxRankings // one namespace may have half of it
	longQueue  = 512
)

// Compute is what a ranker asks of compute nodes.
type Compute interface {
	Do(ctx context.Context, job *meshv1.RankJobRequest) (*meshv1.RankJobResponse, error)
	// Worthwhile reports whether work is enough to ship a job of so many bytes.
	Worthwhile(work time.Duration, bytes int) bool
}

// Config of a ranker.
type Config struct {
	// Post hands an event to a loop and never blocks.
	Post func(loop uint16, e exchange.Event)
	// Compute; nil: there is none, and all is scored here that can be.
	Compute Compute
	// Workers that score here; 0: one for two cores.
	Workers  int
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Ranker is a lifecycle.Part. It owns the goroutine of the windows, one that takes rankings from
// stage to stage, a pool, and a goroutine for each job under way at compute nodes.
type Ranker struct {
	cfg      Config
	group    *lifecycle.Group
	windows  *windows
	stages   *serial.Queue
	pool     *cpupool.Pool
	scorings *scorings
	stats    *stats

	mu    sync.Mutex
	empty *sync.Cond // nothing is under way
	count int
	bytes int
}

// New makes a ranker.
func New(cfg Config) *Ranker {
	if cfg.Workers == 0 {
		cfg.Workers = max(cores.Usable()/2, 1)
	}
	r := &Ranker{cfg: cfg, windows: newWindows(cfg.Post), stages: serial.New(), scorings: newScorings()}
	r.empty = sync.NewCond(&r.mu)
	r.pool = cpupool.New(cpupool.Config{
		Workers: cfg.Workers, Queue: [cpupool.Lanes]int{cpupool.Short: shortQueue, cpupool.Long: longQueue}, MaxCost: maxCost, ShortCost: shortCost,
		OnPanic: func(reason any, stack []byte) {
			cfg.Log.Error("a ranking panicked", "reason", reason, "stack", string(stack))
		},
		OnLost: func(namespace string, since time.Duration) {
			cfg.Log.Error("a step of a ranking takes too long: its worker is replaced", "namespace", namespace, "since", since)
		},
	})
	r.stats = newStats(cfg.Registry, r)
	return r
}

// Start starts the goroutines.
func (r *Ranker) Start(ctx context.Context) error {
	r.group = lifecycle.NewGroup(context.Background())
	if err := r.pool.Start(ctx); err != nil {
		return err
	}
	if r.cfg.Compute != nil {
		r.cfg.Compute.Worthwhile(0, 0) // measures, some milliseconds
	}
	r.group.Go("edge-ranker", r.stages.Serve)
	r.group.Go("edge-ranker-windows", r.windows.run)
	return nil
}

// Stop ends all windows, answers what is under way UNAVAILABLE, and ends the goroutines. What is
// asked after that is answered alike.
func (r *Ranker) Stop(ctx context.Context) error {
	err := r.group.Stop(ctx)
	r.mu.Lock()
	for r.count > 0 { // the end of the group's context answers each
		r.empty.Wait()
	}
	r.mu.Unlock()
	return errors.Join(err, r.pool.Stop(ctx))
}

// Gather implements exchange.Ranks.
func (r *Ranker) Gather(g exchange.Gathering) { r.windows.add(g, time.Now()) }

// Rank implements exchange.Ranks.
func (r *Ranker) Rank(asked *exchange.Ranking) {
	k := &ranking{r: r, asked: asked, began: time.Now()}
	if !r.hold(k, perMessage*len(asked.Messages)+perMember*len(asked.Members)) {
		err := overloaded()
		r.stats.failed(err)
		r.cfg.Post(asked.Loop, exchange.Ranked{Serial: asked.Serial, Err: err})
		return
	}
	k.ctx, k.cancel = context.WithDeadline(r.group.Context(), k.began.Add(asked.Policy.RankDeadline()))
	// for nothing where it was answered
	context.AfterFunc(k.ctx, func() { k.fail(context.Cause(k.ctx)) })
	r.stages.Do(k.prepare)
}

func overloaded() error {
	return code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many rankings are under way")
}

// hold counts a ranking that holds so many bytes, unless too many are under way.
func (r *Ranker) hold(k *ranking, bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count >= maxRankings || r.count > 0 && r.bytes+bytes > maxBytes {
		return false
	}
	r.count++
	r.bytes += bytes
	k.bytes = bytes
	return true
}

// more has a ranking hold more bytes, unless these are too many. One that was answered holds
// nothing.
func (r *Ranker) more(k *ranking, bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.released {
		return true
	}
	if r.bytes+bytes > maxBytes {
		return false
	}
	r.bytes += bytes
	k.bytes += bytes
	return true
}

func (r *Ranker) release(k *ranking) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.released = true
	r.bytes -= k.bytes
	if r.count--; r.count == 0 {
		r.empty.Broadcast()
	}
}

// underWay are so many rankings.
func (r *Ranker) underWay() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}
