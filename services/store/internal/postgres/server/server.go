// Package server is one Postgres server as a store uses it: a pool of connections behind a gate,
// connections of their own for those who append, what makes a server trusted, and how its errors
// are read.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
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
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
)

// Bounds of waiting.
const (
	// patience is Config.Patience where it is not set.
	patience = 2 * time.Second
	// BulkTimeout bounds what reads a whole shard or waits for others: a takeover, a migration, a
	// new epoch.
	BulkTimeout = 2 * time.Minute
	// foldEvery is Config.Fold where it is not set.
	foldEvery = 5 * time.Minute
)

// Config of a database.
type Config struct {
	// URL is a postgres:// one. A pooler in transaction mode in between is refused: locks belong to
	// connections.
	URL string
	// URLFile is a file with URL, if there is one: its role and password are read again for each
	// connection, and so are the files that the URL names.
	URLFile string
	// OwnerURL is that of the role that migrates, and grants the one of URL what it needs; "": that
	// is URL's own.
	OwnerURL string
	// AllowNoFsync lets a server run with fsync or full_page_writes off, which may lose what was
	// acknowledged.
	AllowNoFsync bool
	// TrustPromotion accepts a promoted standby without an operator where commits waited for one.
	TrustPromotion bool
	// Patience [2 s] is how long the server may take to connect, and how long for a statement: one
	// that hangs is noticed within it.
	Patience time.Duration
	// Fold [5 min] is how often the contents of pages go into the tables that have a row for each
	// cursor and topic.
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

// Server is a database on a Postgres server. It owns the pool, and every Conn that it opened.
type Server struct {
	// Config with its defaults; nobody writes it after Open.
	Config Config
	Pool   *pgxpool.Pool
	Gate   *dbgate.Gate
	conns  *pgx.ConnConfig // what each connection is made with, by session
	pooled bool            // a pooler in session mode is in between; set by Open
	owns   bool            // the role owns the schema; set by Open
	// committed is when the last commit succeeded, in microseconds.
	committed atomic.Int64
	// why nothing can be written (a full disk, a read-only server); nil: it can
	full atomic.Pointer[error]
	// why what is committed could be lost, by WatchSettings; nil: it can't
	unsound atomic.Pointer[error]
	// asynchronous: commits wait for no standby
	asynchronous atomic.Bool

	mu      sync.Mutex
	open    map[*Conn]io.Closer // by whom each is used
	remains []process           // backends of connections that were lost; they may still hold locks
	closed  bool
}

// Open connects, applies the migrations and checks that commits will be durable. Where no server
// answers it tries until ctx ends; a server that must not be used is an error at once.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Pool, cfg.Patience, cfg.Fold = cfg.Pool.withDefaults(), cmp.Or(cfg.Patience, patience), cmp.Or(cfg.Fold, foldEvery)
	s := &Server{Config: cfg, Gate: cfg.Pool.gate(time.Now), open: map[*Conn]io.Closer{}}
	poolCfg, err := poolConfig(cfg)
	if err != nil {
		return nil, err
	}
	s.conns = poolCfg.ConnConfig.Copy()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	s.session(poolCfg.ConnConfig)
	if s.Pool, err = pgxpool.NewWithConfig(ctx, poolCfg); err != nil {
		return nil, fmt.Errorf("postgres: pool: %w", err)
	}
	if err := s.AddMetrics(poolStats{s.Pool, s.Gate}); err != nil {
		s.Pool.Close()
		return nil, err
	}
	return s, nil
}

// Migrate brings the schema of a database up to date, with what the role of cfg.URL may do to it.
func Migrate(ctx context.Context, cfg Config) error {
	s, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	return s.Close()
}

// Owns reports whether the role owns the schema.
func (s *Server) Owns() bool { return s.owns }

// prepare checks and migrates, trying again while there is no server, or it does not come to it.
func (s *Server) prepare(ctx context.Context) error {
	retry := time.NewTicker(500 * time.Millisecond)
	defer retry.Stop()
	for {
		err := s.check(ctx)
		if err == nil {
			err = s.upToDate(ctx)
		}
		if err == nil || !passes(err) {
			return err
		}
		s.Config.Log.Warn("Postgres is not reachable yet", "error", err)
		select {
		case <-retry.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// passes reports whether the same may succeed later: the database can't be reached, or it ended a
// statement for reasons that lie outside of it, as when somebody cancels it, or a lock is not to be
// had in time.
func passes(err error) bool {
	switch SQLState(err) {
	case QueryCanceled, LockNotAvailable:
		return true
	}
	return Unreachable(err) || Transient(err)
}

// check connects and looks at what is in between, and at the server's settings.
func (s *Server) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.Config.Patience)
	defer cancel()
	if err := s.between(ctx); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, s.session(s.fresh()))
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = s.sound(ctx, conn)
	return err
}

// Stall is how long the next row may take where there may be millions of them: a database that
// hangs must be noticed.
func (s *Server) Stall() time.Duration { return 5 * s.Config.Patience }

// Time is the server's clock.
func (s *Server) Time(ctx context.Context) (uint64, error) {
	all, err := QueryAs(ctx, s, dbgate.Vital, pgx.RowTo[int64], `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`)
	if err != nil {
		return 0, fmt.Errorf("postgres: time: %w", err)
	}
	return uint64(all[0]), nil
}

// Ping reports whether the database answers, and whether it can be written to again where it could
// not.
func (s *Server) Ping(ctx context.Context) error {
	return s.As(ctx, dbgate.Vital, func(ctx context.Context, conn *pgxpool.Conn) error {
		full := s.full.Load()
		if full == nil {
			return conn.Ping(ctx)
		}
		var id [16]byte
		_, _ = rand.Read(id[:]) // it never fails
		if _, err := conn.Exec(ctx, InsertBatch, id, time.Now().UnixMicro()); err != nil {
			return fmt.Errorf("postgres can't be written to: %w", err)
		}
		s.full.CompareAndSwap(full, nil)
		return nil
	})
}

// InsertBatch records the id of a batch and its time.
const InsertBatch = `INSERT INTO pushmesh.batch (id, at) VALUES ($1, $2)`

// Full reports whether nothing can be written, until Ping has written.
func (s *Server) Full() bool { return s.full.Load() != nil }

// recently: after a commit that succeeded within it the database counts as one that takes appends.
const recently = time.Second

// Away is why appends would be refused now, found without asking anybody.
func (s *Server) Away() error {
	if full := s.full.Load(); full != nil {
		return fmt.Errorf("%w: %w", code.Retry(wirev1.Code_CODE_UNAVAILABLE, RetryAfter, "postgres can't be written to"), *full)
	}
	if unsound := s.unsound.Load(); unsound != nil {
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, RetryAfter, (*unsound).Error())
	}
	if time.Since(time.UnixMicro(s.committed.Load())) < recently {
		// what fails is the pool's, like statements that wait for a lock: commits get through
		return nil
	}
	return s.Gate.Away()
}

// Check describes what is wrong with the database as far as its work shows; nil: nothing.
func (s *Server) Check() error {
	if full := s.full.Load(); full != nil {
		return fmt.Errorf("can't be written to: %w", *full)
	}
	if unsound := s.unsound.Load(); unsound != nil {
		return *unsound
	}
	return s.Gate.Check()
}

// NoteRead tells the gate how a statement on a Conn ended that shows nothing about writing.
func (s *Server) NoteRead(ctx context.Context, err error, took time.Duration) {
	s.Gate.Note(s.outcomeOf(ctx, err, took))
}

// NoteWrite tells the gate how a commit on a Conn ended; one that the server could not write stops
// all further ones until Ping has written.
func (s *Server) NoteWrite(ctx context.Context, err error, took time.Duration) {
	if unwritable(err) {
		s.full.Store(&err)
	}
	if err == nil {
		s.committed.Store(time.Now().UnixMicro())
	}
	s.NoteRead(ctx, err, took)
}

// Close ends every user of a Conn, and the pool.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	open := s.open
	s.open = nil
	s.mu.Unlock()
	var errs []error
	for _, user := range open {
		errs = append(errs, user.Close())
	}
	s.Pool.Close()
	s.RemoveMetrics(poolStats{s.Pool, s.Gate})
	return errors.Join(errs...)
}
