package server

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
)

// Pool says how many connections there are beside those of the writers, and for what. Zero values
// stand for the defaults in brackets.
type Pool struct {
	// Min [2] connections are kept, Max [20] may be open, of which dbgate.Reserved are for what is
	// vital.
	Min, Max int
	// Reads [4] of them may read the log at a time.
	Reads int
	// Idle [30 s] is how long a connection may be unused, Lifetime [30 min] how long it is used, 10
	// % more or less.
	Idle, Lifetime time.Duration
	// Check [15 s] is how often idle connections are looked after.
	Check time.Duration
	// Acquire [5 s] is how long a caller waits for a connection.
	Acquire time.Duration
	// Fixed: as many work at a time as there are connections, whatever that does to the database.
	Fixed bool
}

func (p Pool) withDefaults() Pool {
	p.Min, p.Max = cmp.Or(p.Min, 2), cmp.Or(p.Max, 20)
	p.Min = min(p.Min, p.Max)
	p.Reads = min(cmp.Or(p.Reads, 4), p.Max)
	p.Idle, p.Lifetime = cmp.Or(p.Idle, 30*time.Second), cmp.Or(p.Lifetime, 30*time.Minute)
	p.Check, p.Acquire = cmp.Or(p.Check, 15*time.Second), cmp.Or(p.Acquire, 5*time.Second)
	return p
}

func (p Pool) gate(now func() time.Time) *dbgate.Gate {
	return dbgate.New(dbgate.Config{Name: "postgres", Conns: p.Max, Reads: p.Reads, Acquire: p.Acquire, Fixed: p.Fixed, Now: now})
}

func poolConfig(cfg Config) (*pgxpool.Config, error) {
	pool, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres: url: %w", err)
	}
	p := cfg.Pool
	pool.MinConns, pool.MaxConns = int32(p.Min), int32(p.Max)
	pool.MaxConnIdleTime, pool.HealthCheckPeriod = p.Idle, p.Check
	// pgx adds the jitter: from 10 % less to 10 % more.
	pool.MaxConnLifetime, pool.MaxConnLifetimeJitter = p.Lifetime-p.Lifetime/10, p.Lifetime/5
	// A question before each question would hang as long as the question itself; broken connections
	// are all dropped at the first error instead.
	pool.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pool.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		refresh(c, cfg)
		return nil
	}
	pool.ConnConfig.ConnectTimeout, pool.ConnConfig.OnNotice = cfg.Patience, noteStandby
	params := pool.ConnConfig.RuntimeParams
	if params["application_name"] == "" {
		params["application_name"] = "pushmesh-store"
	}
	params["timezone"] = "UTC"
	// A store that vanished without a word is noticed by the server, and its locks are given up.
	params["tcp_keepalives_idle"], params["tcp_keepalives_interval"], params["tcp_keepalives_count"] = "2", "1", "3"
	params["tcp_user_timeout"] = "5000"
	// Every question has its index. Slices grow from nothing within minutes, so that what the
	// planner knows of them is old: without these it would plan a scan of what was empty, keep that
	// plan, or compile it. Planning over all slices each time costs more than reading.
	params["enable_seqscan"], params["jit"], params["plan_cache_mode"] = "off", "off", "force_generic_plan"
	params["idle_in_transaction_session_timeout"] = "10000"
	// What an administrator sets for people and applications, by role or database, is not meant for
	// a store, which bounds what it does itself. The URL is the operator's own word.
	for _, timeout := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout"} {
		if params[timeout] == "" {
			params[timeout] = "0"
		}
	}
	// What a caller gave up ends on the server too, though the server may be busy with it.
	params["client_connection_check_interval"] = "2000"
	if cfg.Dial != nil {
		pool.ConnConfig.DialFunc = cfg.Dial
	}
	newAttempts(MaxAttempts).limit(pool.ConnConfig)
	if _, none := cfg.Tracers.(noop.TracerProvider); cfg.Tracers != nil && !none {
		pool.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(cfg.Tracers))
	}
	return pool, nil
}

// fresh is what a connection beside the pool is made with.
func (s *Server) fresh() *pgx.ConnConfig {
	c := s.conns.Copy()
	refresh(c, s.Config)
	return c
}

// refresh takes the role, the password and the certificates that a configuration leads to by now:
// they lie in files (that of the URL, passfile, sslcert, sslkey, sslrootcert), and become others
// while the store runs. Where a file can't be read, what was in it before counts. Where the server
// is stays as it was.
func refresh(c *pgx.ConnConfig, cfg Config) {
	url := cfg.URL
	if cfg.URLFile != "" {
		if text, err := os.ReadFile(cfg.URLFile); err == nil {
			// whoever writes it may have just begun
			url = cmp.Or(strings.TrimRight(string(text), "\r\n"), url)
		}
	}
	parsed, err := pgxpool.ParseConfig(url)
	if err != nil {
		return
	}
	now := parsed.ConnConfig
	if now.User != "" && cfg.URLFile != "" {
		c.User = now.User
	}
	if now.Password != "" {
		c.Password = now.Password
	}
	if now.TLSConfig == nil || c.TLSConfig == nil || now.Host != c.Host || len(now.Fallbacks) != len(c.Fallbacks) {
		return
	}
	c.TLSConfig = now.TLSConfig
	fallbacks := slices.Clone(c.Fallbacks) // a copy's, and the original's
	for i, f := range fallbacks {
		if there := now.Fallbacks[i]; f.TLSConfig != nil && there.TLSConfig != nil && there.Host == f.Host {
			other := *f
			other.TLSConfig, fallbacks[i] = there.TLSConfig, &other
		}
	}
	c.Fallbacks = fallbacks
}
