// Package housekeeping does what time asks for: slices made ahead and dropped, cursors folded,
// sessions expired, those of edges that are gone let go.
package housekeeping

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	slicesEvery      = time.Minute
	revocationsEvery = time.Minute
	sessionsEvery    = 10 * time.Second
	edgesEvery       = 10 * time.Second
	foldsEvery       = 5 * time.Second // or more often, where folds are
	// edgeSilence is how long an edge may send no digest before the sessions it holds are let go;
	// it sends one a second.
	edgeSilence = time.Minute
	// expireLimit bounds one transaction, as detachLimit does where sessions of gone edges are let
	// go: no statement may last so long that the database's patience with it ends, which would undo
	// all that it did. Where one fails all the same, later ones are smaller, detachLeast at least.
	expireLimit  = 500
	detachLimit  = 1000
	detachLeast  = 50
	jobTimeout   = 30 * time.Second
	measureEvery = 15 * time.Second
	foldTimeout  = 5 * time.Minute
)

// Database is what is kept in order.
type Database interface {
	backend.Slices
	FoldCursors(ctx context.Context, how backend.Fold) error
	ExpireSessions(ctx context.Context, now uint64, limit int) ([]backend.SessionKey, error)
	SessionEdges(ctx context.Context) ([]string, error)
	DetachEdge(ctx context.Context, edgeID string, now uint64, limit int) (int, error)
	ExpireRevocations(ctx context.Context, now uint64, limit int) (int, error)
}

// Config of a Keeper.
type Config struct {
	Backend Database
	// Bus is nil where there is no NATS: then no edge is taken for gone.
	Bus *bus.Bus
	// Mine reports whether this store is the one of all that keeps this database in order.
	Mine func() bool
	// Ages says why the clock can't tell what is over: then nothing is deleted. nil: it can.
	Ages func() error
	// Expired is told of each session that expired, after the commit; it must not block. nil:
	// nobody is.
	Expired func(backend.SessionKey)
	// Measure looks at what grows in the database; nil: nobody does.
	Measure func(context.Context) error
	// Folds is how often the database folds; it is asked that often, or every 5 s. 0: every 5 s.
	Folds time.Duration
	Now   func() time.Time
	// Steady is monotonic, for what is measured here: Now may step with the database's clock. nil:
	// time.Now.
	Steady func() time.Time
	Log    *slog.Logger
	// Registry may be nil.
	Registry prometheus.Registerer
}

// Keeper is a lifecycle.Part. It owns up to seven goroutines and a subscription.
type Keeper struct {
	cfg     Config
	metrics *metrics
	group   *lifecycle.Group
	leave   func()

	// slice is how many sessions are let go at a time; Edges has one caller at a time.
	slice int

	mu    sync.Mutex
	edges map[string]time.Time // last digest
	since time.Time            // digests were heard without a gap
}

// New makes a keeper that has not begun.
func New(cfg Config) *Keeper {
	if cfg.Ages == nil {
		cfg.Ages = func() error { return nil }
	}
	if cfg.Steady == nil {
		cfg.Steady = time.Now
	}
	if cfg.Expired == nil {
		cfg.Expired = func(backend.SessionKey) {}
	}
	return &Keeper{cfg: cfg, metrics: newMetrics(cfg.Registry), leave: func() {}, slice: detachLimit, edges: map[string]time.Time{}}
}

// Start makes the slices that are needed now, and begins.
func (k *Keeper) Start(ctx context.Context) error {
	if err := k.cfg.Backend.MakeSlices(ctx, k.now()); err != nil {
		// a commit makes its own
		k.cfg.Log.Warn("making partitions ahead of time failed", "error", err)
	}
	k.since = k.cfg.Steady()
	if k.cfg.Bus != nil {
		leave, err := k.cfg.Bus.Subscribe(bus.EdgeDigest, 4096, func(data []byte, _ func([]byte) error) { k.observe(data) })
		if err != nil {
			return err
		}
		k.leave = leave
		k.cfg.Bus.OnGap(k.gap)
	}
	folds := min(foldsEvery, cmp.Or(k.cfg.Folds, foldsEvery))
	k.group = lifecycle.NewGroup(context.Background())
	k.group.Go("housekeeping-slices", func(ctx context.Context) { k.every(ctx, slicesEvery, jobTimeout, k.Slices) })
	k.group.Go("housekeeping-sessions", func(ctx context.Context) { k.every(ctx, sessionsEvery, jobTimeout, k.Sessions) })
	k.group.Go("housekeeping-edges", func(ctx context.Context) { k.every(ctx, edgesEvery, jobTimeout, k.Edges) })
	k.group.Go("housekeeping-revocations", func(ctx context.Context) { k.every(ctx, revocationsEvery, jobTimeout, k.Revocations) })
	k.group.Go("housekeeping-cursors", func(ctx context.Context) { k.every(ctx, folds, foldTimeout, k.Cursors) })
	k.group.Go("housekeeping-checkpoints", func(ctx context.Context) { k.every(ctx, folds, foldTimeout, k.Checkpoints) })
	if k.cfg.Measure != nil {
		k.group.Go("housekeeping-growth", func(ctx context.Context) { k.every(ctx, measureEvery, jobTimeout, k.cfg.Measure) })
	}
	return nil
}

// Stop ends it.
func (k *Keeper) Stop(ctx context.Context) error {
	k.leave()
	return k.group.Stop(ctx)
}

func (k *Keeper) now() uint64 { return uint64(k.cfg.Now().UnixMicro()) }

func (k *Keeper) gap() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.since = k.cfg.Steady()
}

func (k *Keeper) observe(data []byte) {
	d := &meshv1.EdgeDigest{}
	if err := proto.Unmarshal(data, d); err != nil {
		k.cfg.Log.Warn("an edge's beat could not be decoded", "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.edges[d.GetEdgeId()] = k.cfg.Steady()
}

func (k *Keeper) every(ctx context.Context, pace, patience time.Duration, job func(context.Context) error) {
	lifecycle.Every(ctx, pace, func(time.Time) {
		if !k.cfg.Mine() {
			return
		}
		timeout, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := job(timeout); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("a housekeeping job failed", "error", err)
		}
	})
}

// Slices makes those to come and drops those that are over.
func (k *Keeper) Slices(ctx context.Context) error {
	if err := k.cfg.Backend.MakeSlices(ctx, k.now()); err != nil {
		return err
	}
	if err := k.cfg.Ages(); err != nil {
		return fmt.Errorf("no slice is dropped: %w", err)
	}
	dropped, err := k.cfg.Backend.DropSlices(ctx, k.now())
	if dropped > 0 {
		k.cfg.Log.Info("expired partitions were dropped", "slices", dropped)
	}
	return err
}

// Cursors folds those that are due.
func (k *Keeper) Cursors(ctx context.Context) error {
	return k.cfg.Backend.FoldCursors(ctx, backend.FoldDue)
}

// Checkpoints folds those that are due.
func (k *Keeper) Checkpoints(ctx context.Context) error {
	return k.cfg.Backend.FoldCheckpoints(ctx, backend.FoldDue)
}

// Sessions deletes those that are over.
func (k *Keeper) Sessions(ctx context.Context) error {
	if err := k.cfg.Ages(); err != nil {
		return fmt.Errorf("no session expires: %w", err)
	}
	for {
		over, err := k.cfg.Backend.ExpireSessions(ctx, k.now(), expireLimit)
		if err != nil {
			return err
		}
		for _, s := range over {
			k.cfg.Expired(s)
		}
		if k.metrics.expired.Add(float64(len(over))); len(over) < expireLimit {
			return nil
		}
	}
}

// Revocations deletes those that are over.
func (k *Keeper) Revocations(ctx context.Context) error {
	if err := k.cfg.Ages(); err != nil {
		return fmt.Errorf("no revocation expires: %w", err)
	}
	for {
		if n, err := k.cfg.Backend.ExpireRevocations(ctx, k.now(), expireLimit); err != nil || n < expireLimit {
			return err
		}
	}
}

// Edges lets go of what edges hold that are gone. It is a job of its own: expiry does not wait for
// an edge with many sessions.
func (k *Keeper) Edges(ctx context.Context) error {
	if k.cfg.Bus == nil || !k.cfg.Bus.Connected() {
		return nil
	}
	holders, err := k.cfg.Backend.SessionEdges(ctx)
	if err != nil {
		return err
	}
	return k.LetGoOf(ctx, holders)
}

// LetGoOf detaches what those of edges hold that are silent, for as long as they are, a slice of
// each in turn: an edge with many sessions, or whose slices fail, holds up no other. What is left
// where ctx ends, or where a slice failed, is the next call's.
func (k *Keeper) LetGoOf(ctx context.Context, edges []string) error {
	begun, let := k.now(), map[string]int{}
	var failed []error
	for edges = k.silent(edges); len(edges) > 0 && ctx.Err() == nil; edges = k.silent(edges) {
		edges = slices.DeleteFunc(edges, func(edge string) (done bool) {
			if ctx.Err() != nil {
				return false
			}
			if len(k.silent([]string{edge})) == 0 { // it was heard of while it was others' turn
				return true
			}
			n, err := k.cfg.Backend.DetachEdge(ctx, edge, begun, k.slice)
			k.metrics.detached.Add(float64(n))
			if let[edge] += n; err == nil {
				return n < k.slice
			}
			if ctx.Err() != nil { // cut short: nothing is wrong with the edge
				return false
			}
			failed = append(failed, fmt.Errorf("edge %s: %w", edge, err))
			return true
		})
	}
	for edge, n := range let {
		if n > 0 {
			k.cfg.Log.Info("detached sessions of an edge that is no longer heard of", "edge", edge, "sessions", n)
		}
	}
	if len(failed) > 0 {
		k.slice = max(k.slice/2, detachLeast)
		return fmt.Errorf("the sessions of %d edges that are gone can't be let go, the next turn tries %d at a time: %w", len(failed), k.slice, failed[0])
	}
	k.slice = min(2*k.slice, detachLimit)
	if len(edges) > 0 {
		return fmt.Errorf("%d edges that are gone hold sessions still, the next turn goes on: %w", len(edges), ctx.Err())
	}
	return nil
}

// silent is those of edges that were unheard for long, by one who would have heard them.
func (k *Keeper) silent(edges []string) (gone []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.cfg.Steady()
	if now.Sub(k.since) < edgeSilence {
		return nil
	}
	for edge, at := range k.edges {
		if now.Sub(at) > 10*edgeSilence {
			delete(k.edges, edge)
		}
	}
	for _, edge := range edges {
		if now.Sub(k.edges[edge]) >= edgeSilence {
			gone = append(gone, edge)
		}
	}
	return gone
}
