package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
)

// Do runs f as a small statement; see As.
func (s *Server) Do(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	return s.As(ctx, dbgate.Small, f)
}

// As runs f on a connection of the pool, when the gate lets work of its class in, within
// Config.Patience. Where a connection turns out to be broken (the server was restarted meanwhile)
// it runs f once more on a new one: whatever f does must bear that.
func (s *Server) As(ctx context.Context, class dbgate.Class, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	ticket, err := s.Gate.Enter(ctx, class)
	if err != nil {
		return err
	}
	began, patience := time.Now(), s.Config.Pool.Acquire
	if ticket.Trial {
		patience = min(patience, dbgate.ProbeEvery)
	}
	err = s.onConn(ctx, patience, f)
	if err != nil && Unreachable(err) && !errors.Is(err, errStarved) && ctx.Err() == nil && time.Since(began) < s.Config.Patience/4 {
		s.Pool.Reset() // the others are likely broken as well
		err = s.onConn(ctx, patience, f)
	}
	o := s.outcomeOf(ctx, err, time.Since(began))
	ticket.Leave(o)
	if o == dbgate.Failed {
		s.Pool.Reset()
		return unavailable(err)
	}
	return err
}

// outcomeOf work on the database that ended with err. A caller that gives up soon says nothing
// about the database.
func (s *Server) outcomeOf(ctx context.Context, err error, took time.Duration) dbgate.Outcome {
	switch {
	case err == nil:
		return dbgate.Answered
	case errors.Is(err, errStarved):
		return dbgate.PoolExhausted
	case !Unreachable(err):
		return dbgate.Answered
	case errors.Is(ctx.Err(), context.Canceled), ctx.Err() != nil && took < s.Config.Patience/4:
		return dbgate.Abandoned
	}
	return dbgate.Failed
}

// errStarved: the pool had no connection to give in time.
var errStarved = errors.New("every connection of the pool is in use")

func (s *Server) onConn(ctx context.Context, patience time.Duration, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	acquire, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := s.Pool.Acquire(acquire)
	if err != nil {
		if acquire.Err() != nil && ctx.Err() == nil && int(s.Pool.Stat().AcquiredConns()) == s.Config.Pool.Max {
			return fmt.Errorf("%w: %w", code.Retry(wirev1.Code_CODE_OVERLOADED, RetryAfter,
				fmt.Sprintf("postgres: none of %d connections was free within %s", s.Config.Pool.Max, patience)), errStarved)
		}
		return fmt.Errorf("postgres: connect: %w", err)
	}
	defer conn.Release()
	run, cancelRun := context.WithTimeout(ctx, s.Config.Patience)
	defer cancelRun()
	if err := f(run, conn); err != nil {
		return err
	}
	return Replicated(conn.Conn().PgConn())
}

// Tx runs f in a transaction of the pool, again where the server gave it up in favour of another: f
// must bear that.
func (s *Server) Tx(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	return s.TxAs(ctx, dbgate.Small, f)
}

// TxAs is Tx for a class of work.
func (s *Server) TxAs(ctx context.Context, class dbgate.Class, f func(ctx context.Context, tx pgx.Tx) error) error {
	for tries := 0; ; tries++ {
		err := s.As(ctx, class, func(ctx context.Context, conn *pgxpool.Conn) error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return f(ctx, tx) })
		})
		if !Transient(err) || tries == MaxRetries || !Pause(ctx, tries) {
			return err
		}
	}
}

// Query collects rows.
func Query[R any](ctx context.Context, s *Server, scan pgx.RowToFunc[R], sql string, args ...any) (all []R, err error) {
	return QueryAs(ctx, s, dbgate.Small, scan, sql, args...)
}

// QueryAs is Query for a class of work.
func QueryAs[R any](ctx context.Context, s *Server, class dbgate.Class, scan pgx.RowToFunc[R], sql string, args ...any) (all []R, err error) {
	err = s.As(ctx, class, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	return all, err
}

// RetryAfter is when to come back to a database that does not answer.
const RetryAfter = 500 * time.Millisecond

// unavailable is what callers see of a database that does not answer.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w", code.Retry(wirev1.Code_CODE_UNAVAILABLE, RetryAfter, "postgres does not answer"), err)
}

// Unreachable reports whether err means that the database can't be reached or does not answer, as
// opposed to an answer that we don't like.
func Unreachable(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fatal(pg)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.Timeout(err) ||
		strings.Contains(err.Error(), "conn closed")
}

// fatal reports whether the server's error means that the connection, or the server, is no more:
// connection exceptions, shutdowns and recovery, no room for another connection.
func fatal(pg *pgconn.PgError) bool {
	switch pg.Code {
	case "57P01", "57P02", "57P03", "57P04", "57P05", "53300", "25P03":
		return true
	}
	return strings.HasPrefix(pg.Code, "08")
}

// unwritable reports whether the server answered that it can't write: no disk left (disk_full), the
// disk fails (io_error), or it is read-only, by a setting that an administrator or a managed
// service changed, or as a standby (read_only_sql_transaction).
func unwritable(err error) bool {
	switch SQLState(err) {
	case "53100", "58030", ReadOnly:
		return true
	}
	return false
}

// SQLState is the server's error code; "" where err is none of its errors.
func SQLState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// QueryCanceled is query_canceled: somebody cancelled the statement, or statement_timeout passed.
const QueryCanceled = "57014"

// LockNotAvailable is lock_not_available: lock_timeout passed, or a lock was not to be waited for.
const LockNotAvailable = "55P03"

// ReadOnly is read_only_sql_transaction.
const ReadOnly = "25006"

// UniqueViolation is unique_violation: a row with that key is there already.
const UniqueViolation = "23505"

// Querier is a connection, of the pool or not, or a transaction.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Each scans each row into the same variables, and visits it.
func Each(rows pgx.Rows, err error, into []any, visit func()) error {
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, func() error {
		visit()
		return nil
	})
	return err
}
