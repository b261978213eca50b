// Package outbox reads what applications published inside their own transactions and has routers
// publish it. One store of all does so at a time; the right to it is the database's.
package outbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	// pollEvery is how often it is asked whether anything was committed; soon is when to ask again
	// where something was.
	pollEvery = 20 * time.Millisecond
	soon      = 4 * time.Millisecond
	// openEvery is how often a store that may read tries to get the right.
	openEvery = 250 * time.Millisecond
	// rotateEvery is how often it is looked whether a table has had its turn.
	rotateEvery = time.Second
	// A store that reads for one that should gives the right back after holding it for standIn, and
	// tries again every standInEvery.
	standIn      = 30 * time.Second
	standInEvery = 5 * time.Second
	// listed is how many rows of a batch are listed at a time.
	listed = 50_000
)

// Config of a Reader.
type Config struct {
	Database backend.Outboxes
	Owner    backend.Owner
	// Mine reports whether this store should read: of several that think so, one gets the right.
	Mine func() bool
	// Able reports whether routers can be reached now. A store that should read and can't leaves it
	// to one that can.
	Able func() bool
	// Request has one router of all publish.
	Request func(ctx context.Context, subject string, data []byte) ([]byte, error)
	// A table's turn ends when it is Older or Larger (bytes); 0: a minute, 16 MiB.
	Older  time.Duration
	Larger int64
	// At most so many rows and bytes wait for shards that are away; 0: 100,000, 256 MiB. Beyond
	// that all stands still.
	MaxWaiting, MaxWaitingBytes int

	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Reader is a lifecycle.Part. Its goroutine owns the outbox while this store holds it.
type Reader struct {
	cfg     Config
	metrics *metrics
	group   *lifecycle.Group

	// The goroutine's own.
	outbox   backend.Outbox
	sender   *sender
	rotated  time.Time
	openedAt time.Time // when the right was got
	triedAt  time.Time // when this store last tried to stand in
}

// New makes a reader that has not begun.
func New(cfg Config) *Reader {
	if cfg.Older == 0 {
		cfg.Older = time.Minute
	}
	if cfg.Larger == 0 {
		cfg.Larger = 16 << 20
	}
	if cfg.MaxWaiting == 0 {
		cfg.MaxWaiting = 100_000
	}
	if cfg.MaxWaitingBytes == 0 {
		cfg.MaxWaitingBytes = 256 << 20
	}
	if cfg.Able == nil {
		cfg.Able = func() bool { return true }
	}
	return &Reader{cfg: cfg, metrics: newMetrics(cfg.Registry)}
}

// Start begins to read, or to wait for the right.
func (r *Reader) Start(context.Context) error {
	r.group = lifecycle.NewGroup(context.Background())
	r.group.Go("outbox", r.run)
	return nil
}

// Stop gives the right back.
func (r *Reader) Stop(ctx context.Context) error { return r.group.Stop(ctx) }

func (r *Reader) run(ctx context.Context) {
	ticker := time.NewTicker(openEvery)
	defer ticker.Stop()
	defer func() { r.close(nil) }()
	for ctx.Err() == nil {
		ticker.Reset(r.readRound(ctx))
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// readRound says when the next one is.
func (r *Reader) readRound(ctx context.Context) time.Duration {
	if !r.mayRead(time.Now()) {
		r.close(nil)
		return openEvery
	}
	if r.outbox == nil && !r.becomeReader(ctx) {
		return openEvery
	}
	some, err := r.read(ctx)
	switch {
	case err != nil:
		r.close(err)
		return openEvery
	case some:
		return soon
	}
	return pollEvery
}

// mayRead reports whether this store shall read now: it should and can, or it stands in for one
// that can't. A connection is what trying costs, so that is done seldom.
func (r *Reader) mayRead(now time.Time) bool {
	switch {
	case !r.cfg.Able():
		return false
	case r.cfg.Mine():
		return true
	case r.outbox != nil:
		return r.keeps(now)
	case now.Sub(r.triedAt) < standInEvery:
		return false
	}
	r.triedAt = now
	return true
}

// keeps reports whether a store that has the right shall still have it.
func (r *Reader) keeps(now time.Time) bool {
	return r.cfg.Able() && (r.cfg.Mine() || now.Sub(r.openedAt) < standIn)
}

func (r *Reader) becomeReader(ctx context.Context) bool {
	o, err := r.cfg.Database.OpenOutbox(ctx, r.cfg.Owner)
	if err != nil {
		if !errors.Is(err, backend.ErrOtherReader) {
			// readiness names a database that is away
			r.cfg.Log.Debug("opening the transactional outbox failed", "error", err)
		}
		return false
	}
	ask := asker{request: r.cfg.Request, metrics: r.metrics, log: r.cfg.Log}
	w := &waiting{outbox: o, metrics: r.metrics, log: r.cfg.Log, mostRows: r.cfg.MaxWaiting, mostBytes: r.cfg.MaxWaitingBytes}
	if err := w.open(ctx, ask); err != nil {
		r.cfg.Log.Warn("reading the parked messages of the transactional outbox failed", "error", errors.Join(err, o.Close()))
		return false
	}
	r.outbox, r.rotated, r.openedAt = o, time.Time{}, time.Now()
	r.sender = &sender{asker: ask, outbox: o, waiting: w, keeps: r.keeps}
	r.metrics.reading.Set(1)
	r.cfg.Log.Info("this store reads the transactional outbox")
	return true
}

func (r *Reader) close(why error) {
	if r.outbox == nil {
		return
	}
	if why != nil && !errors.Is(why, context.Canceled) {
		r.cfg.Log.Warn("reading the transactional outbox failed", "error", why)
	}
	r.sender.waiting.close()
	if err := r.outbox.Close(); err != nil {
		r.cfg.Log.Debug("closing the transactional outbox failed", "error", err)
	}
	r.outbox = nil
	r.metrics.reading.Set(0)
}

// read publishes what is pending now, and rotates; some: there was any.
func (r *Reader) read(ctx context.Context) (some bool, err error) {
	if err := r.sender.waiting.tend(ctx); err != nil {
		return false, err
	}
	for {
		rows, repeated, err := r.outbox.Pending(ctx, listed)
		if err != nil {
			return some, err
		}
		r.metrics.pending.Set(float64(len(rows)))
		if len(rows) == 0 {
			break
		}
		some = true
		last := len(rows) < listed
		if err := r.publish(ctx, rows, repeated, last); err != nil {
			return some, err
		}
		if last {
			break
		}
	}
	if time.Since(r.rotated) < rotateEvery {
		return some, nil
	}
	r.rotated = time.Now()
	state, err := r.outbox.Rotate(ctx, r.cfg.Older, r.cfg.Larger)
	if err == nil {
		r.metrics.state(state)
	}
	return some, err
}

// publish has rows published piece by piece. What takes part of a batch is noted on the way where
// it is long.
func (r *Reader) publish(ctx context.Context, rows []backend.OutboxEntry, repeated, last bool) error {
	var refused []backend.OutboxRefusal
	left := len(rows)
	for _, ids := range pieces(rows) {
		if err := r.sender.waiting.tend(ctx); err != nil {
			return err
		}
		more, err := r.sender.send(ctx, ids, repeated)
		if err != nil {
			return err
		}
		refused = append(refused, more...)
		left -= len(ids)
		r.metrics.pending.Set(float64(left))
		if len(refused) >= pieceRows && left > 0 {
			if err := r.outbox.Settle(ctx, ids[len(ids)-1], false, refused); err != nil {
				return err
			}
			refused = nil
		}
	}
	return r.outbox.Settle(ctx, rows[len(rows)-1].ID, last, refused)
}

// Bounds of one request: what a router takes at a time, and what a NATS message holds.
const (
	pieceRows  = 1000
	pieceBytes = 512 << 10
)

// pieces cuts a list: none beyond the bounds, but for a row that is larger alone.
func pieces(rows []backend.OutboxEntry) (all [][]int64) {
	var piece []int64
	size := 0
	for _, r := range rows {
		if len(piece) > 0 && (len(piece) == pieceRows || size+r.Size > pieceBytes) {
			all, piece, size = append(all, piece), nil, 0
		}
		piece, size = append(piece, r.ID), size+r.Size
	}
	if len(piece) > 0 {
		all = append(all, piece)
	}
	return all
}
