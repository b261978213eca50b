// Package postgres is the store's backend for production: backend.Backend on PostgreSQL 14 or
// newer, through pgx.
//
// Reads and sessions go through a pool behind a dbgate.Gate. Each Writer has a connection of its
// own, whose backend holds an advisory lock for every shard that the writer owns: when that
// connection is gone, so is the right to append.
package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
)

// Bounds of waiting.
const (
	// patience is Config.Patience where it is not said.
	patience = 2 * time.Second
	// bulkTimeout bounds what reads a whole shard or waits for others: a takeover, a migration, a
	// new epoch.
	bulkTimeout = 2 * time.Minute
)

// Config of a database.
type Config struct {
	// URL is a postgres:// one. A pooler in transaction mode in between is refused: locks belong to
	// connections.
	URL string
	// AllowNoFsync lets a server run with fsync or full_page_writes off, which may lose what was
	// acknowledged.
	AllowNoFsync bool
	// TrustPromotion goes on with a promoted standby by itself: it was synchronous.
	TrustPromotion bool
	// Patience [2 s] is how long the server may take to connect, and how long for a statement: one
	// that hangs is noticed within it.
	Patience time.Duration
	// Fold [5 min] is how often what pages say goes into the tables that have a row for each cursor
	// and topic.
	Fold time.Duration
	Pool Pool
	// Dial makes the network's part of a connection; nil: TCP, or a Unix socket where the URL names
	// one.
	Dial pgconn.DialFunc
	Log  *slog.Logger
	// Tracers and Registry may be nil.
	Tracers  trace.TracerProvider
	Registry prometheus.Registerer
}

// DB is one Postgres database. It owns the pool, and every writer and run of claims that it opened.
type DB struct {
	cfg    Config
	conns  *pgx.ConnConfig // what each connection is made with, by session
	pooled bool            // a pooler is between, in session mode; settled by Open
	pool   *pgxpool.Pool
	gate   *dbgate.Gate
	// committed is when the last commit succeeded, in microseconds.
	committed atomic.Int64
	full      atomic.Pointer[error] // why nothing can be written (a full disk); nil: it can
	pages     *pages
	folder    folder // used under its advisory lock
	tally     rounds // over checkpoints, likewise

	mu      sync.Mutex
	writers map[*writer]struct{}
	claims  map[*claimRun]struct{}
	remains []process // backends of writers and of runs of claims lost; they may still hold locks
	closed  bool
}

var _ backend.Backend = (*DB)(nil)

// Open connects, applies the migrations and checks that commits will be durable. Where no server
// answers it tries until ctx ends; a server that must not be used is an error at once.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Pool, cfg.Patience, cfg.Fold = cfg.Pool.withDefaults(), cmp.Or(cfg.Patience, patience), cmp.Or(cfg.Fold, foldEvery)
	d := &DB{cfg: cfg, gate: cfg.Pool.gate(time.Now), writers: map[*writer]struct{}{}, claims: map[*claimRun]struct{}{}}
	poolCfg, err := poolConfig(cfg)
	if err != nil {
		return nil, err
	}
	d.conns = poolCfg.ConnConfig.Copy()
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	d.pages = newPages(d)
	d.folder.folded, d.tally.folded = time.Now(), time.Now()
	d.session(poolCfg.ConnConfig)
	if d.pool, err = pgxpool.NewWithConfig(ctx, poolCfg); err != nil {
		return nil, fmt.Errorf("postgres: pool: %w", err)
	}
	if err := d.register(cfg.Registry); err != nil {
		d.pool.Close()
		return nil, err
	}
	return d, nil
}

// prepare checks and migrates, trying again while there is no server.
func (d *DB) prepare(ctx context.Context) error {
	retry := time.NewTicker(500 * time.Millisecond)
	defer retry.Stop()
	for {
		err := d.check(ctx)
		if err == nil {
			err = migrate(ctx, d.session(d.conns.Copy()), d.cfg.Log)
		}
		if err == nil || !away(err) {
			return err
		}
		d.cfg.Log.Warn("Postgres is not reachable yet", "error", err)
		select {
		case <-retry.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// check connects and looks at what is between, and at the server's settings.
func (d *DB) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*d.cfg.Patience)
	defer cancel()
	if err := d.between(ctx); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, d.session(d.conns.Copy()))
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = d.sound(ctx, conn)
	return err
}

// Time is the server's clock.
func (d *DB) Time(ctx context.Context) (uint64, error) {
	all, err := queryAs(ctx, d, dbgate.Vital, pgx.RowTo[int64], `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`)
	if err != nil {
		return 0, fmt.Errorf("postgres: time: %w", err)
	}
	return uint64(all[0]), nil
}

// Ping reports whether the database answers, and whether it can be written to again where it could
// not.
func (d *DB) Ping(ctx context.Context) error {
	return d.as(ctx, dbgate.Vital, func(ctx context.Context, conn *pgxpool.Conn) error {
		full := d.full.Load()
		if full == nil {
			return conn.Ping(ctx)
		}
		id := uuid()
		if _, err := conn.Exec(ctx, prepared[insertBatch], id, time.Now().UnixMicro()); err != nil {
			return fmt.Errorf("postgres can't be written to: %w", err)
		}
		d.full.CompareAndSwap(full, nil)
		return nil
	})
}

// Full reports whether nothing can be written, until Ping has written.
func (d *DB) Full() bool { return d.full.Load() != nil }

func uuid() (id [16]byte) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// recently: a commit that succeeded since says that the database can be appended to.
const recently = time.Second

// Away says why appends would be refused now, without asking anybody.
func (d *DB) Away() error {
	if full := d.full.Load(); full != nil {
		return fmt.Errorf("%w: %w", code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "postgres can't be written to"), *full)
	}
	if time.Since(time.UnixMicro(d.committed.Load())) < recently {
		// what fails is the pool's, like statements that wait for a lock: commits get through
		return nil
	}
	return d.gate.Away()
}

// Check says what is wrong with the database as far as its work shows; nil: nothing.
func (d *DB) Check() error {
	if full := d.full.Load(); full != nil {
		return fmt.Errorf("can't be written to: %w", *full)
	}
	return d.gate.Check()
}

// noted tells the gate how a writer's statement ended; one that found no room on the disk stops all
// further ones until Ping has written.
func (d *DB) noted(ctx context.Context, err error, took time.Duration) {
	if exhausted(err) {
		d.full.Store(&err)
	}
	if err == nil {
		d.committed.Store(time.Now().UnixMicro())
	}
	d.gate.Note(d.outcomeOf(ctx, err, took))
}

// Close ends every writer and the pool.
func (d *DB) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	open, claims := d.writers, d.claims
	d.writers, d.claims = nil, nil
	d.mu.Unlock()
	var errs []error
	for w := range open {
		errs = append(errs, w.Close())
	}
	for r := range claims {
		errs = append(errs, r.Close())
	}
	d.pool.Close()
	if d.cfg.Registry != nil {
		d.cfg.Registry.Unregister(poolStats{d.pool, d.gate, d.pages, &d.folder})
	}
	return errors.Join(errs...)
}
