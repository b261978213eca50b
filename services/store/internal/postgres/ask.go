package postgres

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

// do runs f as a small statement; see as.
func (d *DB) do(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	return d.as(ctx, dbgate.Small, f)
}

// as runs f on a connection of the pool, when the gate lets work of its class in, within
// Config.Patience. Where a connection turns out to be broken (the server was restarted meanwhile)
// it runs f once more on a new one: whatever f does must bear that.
func (d *DB) as(ctx context.Context, class dbgate.Class, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	ticket, err := d.gate.Enter(ctx, class)
	if err != nil {
		return err
	}
	began, patience := time.Now(), d.cfg.Pool.Acquire
	if ticket.Trial {
		patience = min(patience, dbgate.ProbeEvery)
	}
	err = d.onConn(ctx, patience, f)
	if err != nil && away(err) && !errors.Is(err, errStarved) && ctx.Err() == nil && time.Since(began) < d.cfg.Patience/4 {
		d.pool.Reset() // the others are likely broken as well
		err = d.onConn(ctx, patience, f)
	}
	o := d.outcomeOf(ctx, err, time.Since(began))
	ticket.Leave(o)
	if o == dbgate.Failed {
		d.pool.Reset()
		return unavailable(err)
	}
	return err
}

// outcomeOf work on the database that ended with err. A caller that gives up soon says nothing
// about the database.
func (d *DB) outcomeOf(ctx context.Context, err error, took time.Duration) dbgate.Outcome {
	switch {
	case err == nil:
		return dbgate.Answered
	case errors.Is(err, errStarved):
		return dbgate.PoolExhausted
	case !away(err):
		return dbgate.Answered
	case errors.Is(ctx.Err(), context.Canceled), ctx.Err() != nil && took < d.cfg.Patience/4:
		return dbgate.Abandoned
	}
	return dbgate.Failed
}

// errStarved: the pool had no connection to give in time.
var errStarved = errors.New("every connection of the pool is in use")

func (d *DB) onConn(ctx context.Context, patience time.Duration, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	acquire, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := d.pool.Acquire(acquire)
	if err != nil {
		if acquire.Err() != nil && ctx.Err() == nil && int(d.pool.Stat().AcquiredConns()) == d.cfg.Pool.Max {
			return fmt.Errorf("%w: %w", code.Retry(wirev1.Code_CODE_OVERLOADED, retryAfter,
				fmt.Sprintf("postgres: none of %d connections was free within %s", d.cfg.Pool.Max, patience)), errStarved)
		}
		return fmt.Errorf("postgres: connect: %w", err)
	}
	defer conn.Release()
	run, cancelRun := context.WithTimeout(ctx, d.cfg.Patience)
	defer cancelRun()
	return f(run, conn)
}

// tx runs f in a transaction of the pool, again where the server gave it up in favour of another: f
// must bear that.
func (d *DB) tx(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	return d.txAs(ctx, dbgate.Small, f)
}

// txAs is tx for a class of work.
func (d *DB) txAs(ctx context.Context, class dbgate.Class, f func(ctx context.Context, tx pgx.Tx) error) error {
	for tries := 0; ; tries++ {
		err := d.as(ctx, class, func(ctx context.Context, conn *pgxpool.Conn) error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return f(ctx, tx) })
		})
		if !transient(err) || tries == maxRetries || !pause(ctx, tries) {
			return err
		}
	}
}

// query collects rows.
func query[R any](ctx context.Context, d *DB, scan pgx.RowToFunc[R], sql string, args ...any) (all []R, err error) {
	return queryAs(ctx, d, dbgate.Small, scan, sql, args...)
}

// queryAs is query for a class of work.
func queryAs[R any](ctx context.Context, d *DB, class dbgate.Class, scan pgx.RowToFunc[R], sql string, args ...any) (all []R, err error) {
	err = d.as(ctx, class, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	return all, err
}

// retryAfter is when to come back to a database that does not answer.
const retryAfter = 500 * time.Millisecond

// unavailable is what callers see of a database that does not answer.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w", code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "postgres does not answer"), err)
}

// away reports whether err means that the database can't be reached or does not answer, as opposed
// to an answer that we don't like.
func away(err error) bool {
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

// exhausted reports whether the server answered that it can't write: no disk left (disk_full), or
// the disk fails (io_error).
func exhausted(err error) bool {
	c := pgCode(err)
	return c == "53100" || c == "58030"
}

// pgCode is the server's error code; "" where err is none of its errors.
func pgCode(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
