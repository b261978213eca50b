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
)

// do runs f on a connection of the pool, behind the guard, within statementTimeout. Where a connection turns out to be broken (the
// server was restarted meanwhile) it runs f once more on a new one: whatever f does must bear that.
func (d *DB) do(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	leave, err := d.guard.enter()
	if err != nil {
		return err
	}
	began := time.Now()
	err = d.onConn(ctx, f)
	if err != nil && away(err) && ctx.Err() == nil && time.Since(began) < statementTimeout/4 {
		d.pool.Reset() // the others are likely broken as well
		err = d.onConn(ctx, f)
	}
	switch {
	case err == nil || !away(err):
		leave(answered)
		return err
	case errors.Is(ctx.Err(), context.Canceled), ctx.Err() != nil && time.Since(began) < statementTimeout/4:
		leave(abandoned)
		return err
	}
	leave(silent)
	d.pool.Reset()
	return unavailable(err)
}

func (d *DB) onConn(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	acquire, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := d.pool.Acquire(acquire)
	if err != nil {
		if acquire.Err() != nil && ctx.Err() == nil && d.pool.Stat().AcquiredConns() == maxConns {
			return code.Retry(wirev1.Code_CODE_OVERLOADED, retryAfter,
				fmt.Sprintf("postgres: none of %d connections was free within %s", maxConns, acquireTimeout))
		}
		return fmt.Errorf("postgres: connect: %w", err)
	}
	defer conn.Release()
	run, cancelRun := context.WithTimeout(ctx, statementTimeout)
	defer cancelRun()
	return f(run, conn)
}

// tx runs f in a transaction of the pool.
func (d *DB) tx(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	return d.do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return f(ctx, tx) })
	})
}

// query collects rows.
func query[R any](ctx context.Context, d *DB, scan pgx.RowToFunc[R], sql string, args ...any) (all []R, err error) {
	err = d.do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	return all, err
}

// unavailable is what callers see of a database that does not answer.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w", code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "postgres does not answer"), err)
}

// away says whether err means that the database can't be reached or does not answer, as opposed to an answer that we don't like.
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

// fatal says whether the server's error means that the connection, or the server, is no more: connection exceptions, shutdowns
// and recovery, no room for another connection.
func fatal(pg *pgconn.PgError) bool {
	switch pg.Code {
	case "57P01", "57P02", "57P03", "57P04", "57P05", "53300", "25P03":
		return true
	}
	return strings.HasPrefix(pg.Code, "08")
}

// pgCode is the server's error code; "" where err is none of its errors.
func pgCode(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
