// Package postgres is the store's backend for production: backend.Backend on PostgreSQL 14 or newer, through pgx.
//
// Reads and sessions go through a pool behind a circuit breaker. Each Writer has a connection of its own, whose backend holds an
// advisory lock for every shard that the writer owns: when that connection is gone, so is the right to append.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Bounds of waiting. A server that hangs is noticed within statementTimeout.
const (
	statementTimeout = 2 * time.Second
	acquireTimeout   = 5 * time.Second
	connectTimeout   = 2 * time.Second
	// bulkTimeout bounds what reads a whole shard or waits for others: a takeover, a migration, a new epoch.
	bulkTimeout = 2 * time.Minute
)

// Bounds of the pool.
const (
	minConns = 2
	maxConns = 20
)

// Config of a database.
type Config struct {
	// URL is a postgres:// one. A pooler in transaction mode in between doesn't fit: locks belong to connections.
	URL string
	// AllowNoFsync lets a server run with fsync=off, which may lose what was acknowledged.
	AllowNoFsync bool
	Log          *slog.Logger
	// Tracers and Registry may be nil.
	Tracers  trace.TracerProvider
	Registry prometheus.Registerer
}

// DB is one Postgres database. It owns the pool and every writer that it opened.
type DB struct {
	cfg   Config
	conns *pgx.ConnConfig // what each connection is made with
	pool  *pgxpool.Pool
	guard *guard

	mu      sync.Mutex
	writers map[*writer]struct{}
	remains []process // backends of writers lost; they may still hold locks
	closed  bool
}

var _ backend.Backend = (*DB)(nil)

// Open connects, applies the migrations and checks that commits will be durable. Where no server answers it tries until ctx ends; a server
// that must not be used is an error at once.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &DB{cfg: cfg, guard: newGuard(time.Now), writers: map[*writer]struct{}{}}
	poolCfg, err := poolConfig(cfg)
	if err != nil {
		return nil, err
	}
	d.conns = poolCfg.ConnConfig.Copy()
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
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
			err = migrate(ctx, d.conns, d.cfg.Log)
		}
		if err == nil || !away(err) {
			return err
		}
		d.cfg.Log.Warn("no postgres yet", "error", err)
		select {
		case <-retry.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// check connects once and looks at the server's settings.
func (d *DB) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+statementTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, d.conns.Copy())
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = d.sound(ctx, conn)
	return err
}

func poolConfig(cfg Config) (*pgxpool.Config, error) {
	pool, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres: url: %w", err)
	}
	pool.MinConns, pool.MaxConns = minConns, maxConns
	pool.MaxConnIdleTime = 30 * time.Second
	pool.MaxConnLifetime, pool.MaxConnLifetimeJitter = 27*time.Minute, 6*time.Minute // 30 minutes ± 10 %
	pool.HealthCheckPeriod = 15 * time.Second
	// A question before each question would hang as long as the question itself; broken connections are all dropped at the
	// first error instead.
	pool.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pool.ConnConfig.ConnectTimeout = connectTimeout
	params := pool.ConnConfig.RuntimeParams
	if params["application_name"] == "" {
		params["application_name"] = "pushmesh-store"
	}
	params["timezone"] = "UTC"
	// A store that vanished without a word is noticed by the server, and its locks are given up.
	params["tcp_keepalives_idle"], params["tcp_keepalives_interval"], params["tcp_keepalives_count"] = "2", "1", "3"
	params["tcp_user_timeout"] = "5000"
	// Every question has its index. Slices grow from nothing within minutes, so that what the planner knows of them is old: without these
	// it would plan a scan of what was empty, keep that plan, or compile it. Planning over all slices each time costs more than reading.
	params["enable_seqscan"], params["jit"], params["plan_cache_mode"] = "off", "off", "force_generic_plan"
	params["idle_in_transaction_session_timeout"] = "10000"
	if _, none := cfg.Tracers.(noop.TracerProvider); cfg.Tracers != nil && !none {
		pool.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(cfg.Tracers))
	}
	return pool, nil
}

// Ping says whether the database answers.
func (d *DB) Ping(ctx context.Context) error {
	return d.do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error { return conn.Ping(ctx) })
}

// Close ends every writer and the pool.
func (d *DB) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	open := d.writers
	d.writers = nil
	d.mu.Unlock()
	var errs []error
	for w := range open {
		errs = append(errs, w.Close())
	}
	d.pool.Close()
	if d.cfg.Registry != nil {
		d.cfg.Registry.Unregister(poolStats{d.pool, d.guard})
	}
	return errors.Join(errs...)
}
