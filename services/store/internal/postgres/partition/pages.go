package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Pages is a table of pages that only grows, in slices of ids: pages are packed into new ones,
// and now and then put into tables that have a row for each thing. folded says below which id pages
// are void.
type Pages struct {
	table, sequence, folded string
	lock                    int32 // second key of the advisory lock of who folds it
}

// The tables of pages.
var (
	CursorPages = Pages{"cursor_page", "cursor_page_id", "cursor_folded", 2}
	Checkpoints = Pages{"checkpoint", "checkpoint_id", "checkpoint_folded", 3}
	allAppended = []Pages{CursorPages, Checkpoints}
)

// packEvery is how long a page may wait to be packed.
const packEvery = 30 * time.Second

// Slices of so many pages, of which some are made ahead.
const (
	pagesInSlice = 8192
	slicesAhead  = 3
)

func pageSlice(id uint64) backend.Slice {
	return backend.Slice{Start: id - id%pagesInSlice, End: id - id%pagesInSlice + pagesInSlice}
}

// makePageSlices makes those that the next pages need.
func (p *Partitions) makePageSlices(ctx context.Context, make func(context.Context, []slice) error) error {
	var want []slice
	for _, a := range allAppended {
		last, err := server.Query(ctx, p.server, pgx.RowTo[int64], `SELECT last_value FROM pushmesh.`+a.sequence)
		if err != nil {
			return fmt.Errorf("postgres: slices of pages: %w", err)
		}
		s := pageSlice(uint64(last[0]))
		for range slicesAhead {
			want = append(want, slice{a.table, s})
			s = s.Next()
		}
	}
	return make(ctx, want)
}

// NoPartition reports check_violation: an insert found no slice for its time or id.
func NoPartition(err error) bool { return server.SQLState(err) == "23514" }

// Append runs f, which appends a page, and again where it found no slice for its page.
func (p *Partitions) Append(ctx context.Context, f func() error) error {
	for tries := 0; ; tries++ {
		err := f()
		if !NoPartition(err) || tries == server.MaxRetries {
			return err
		}
		if err := p.makePageSlices(ctx, p.makeOrTell); err != nil {
			return err
		}
	}
}

// voided is below which id the pages of each table are void.
func voided(ctx context.Context, on server.Querier) (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, a := range allAppended {
		var through int64
		if err := on.QueryRow(ctx, `SELECT through FROM pushmesh.`+a.folded).Scan(&through); err != nil {
			return nil, err
		}
		all[a.table] = uint64(through)
	}
	return all, nil
}

// Alone runs f on a connection of its own, with the right to fold, for as long as that takes. Where
// another has it, f is not run, or waited for.
func (a Pages) Alone(ctx context.Context, s *server.Server, wait bool, f func(conn *pgx.Conn) error) error {
	return s.Do(ctx, func(_ context.Context, conn *pgxpool.Conn) (err error) {
		mine := true
		ask := `SELECT pg_try_advisory_lock($1, $2)`
		if wait {
			ask = `SELECT true FROM pg_advisory_lock($1, $2)`
		}
		if err := conn.QueryRow(ctx, ask, int32(sliceLock), a.lock).Scan(&mine); err != nil || !mine {
			return err
		}
		defer func() {
			if _, unlockErr := conn.Exec(ctx, `SELECT pg_advisory_unlock($1, $2)`, int32(sliceLock), a.lock); unlockErr != nil {
				// it must not go back to the pool like this
				err = errors.Join(err, unlockErr, conn.Conn().Close(context.WithoutCancel(ctx)))
			}
		}()
		return f(conn.Conn())
	})
}

// Rounds is what a store remembers of the rounds that it did.
type Rounds struct {
	sync.Mutex               // of the rest, by whoever folds
	Packed, Folded time.Time // the store's start at first
	last           int64     // page of the last round
}

// Due reports whether there is reason to pack: most pages that no round has seen, or some and the
// last round was long ago; and whether there is something to fold, which was last done that long
// ago, while no old snapshot keeps dead rows.
func (a Pages) Due(ctx context.Context, conn *pgx.Conn, r *Rounds, most int, every time.Duration, now time.Time) (pack, fold bool, err error) {
	var n int
	var some bool
	err = conn.QueryRow(ctx, fmt.Sprintf(`SELECT (SELECT count(*) FROM (SELECT FROM pushmesh.%[1]s WHERE id >= f.through AND id > $1 LIMIT $2) AS new),
		EXISTS (SELECT FROM pushmesh.%[1]s WHERE id >= f.through) FROM pushmesh.%[2]s AS f`, a.table, a.folded), r.last, most).Scan(&n, &some)
	if err != nil {
		return false, false, fmt.Errorf("postgres: pages that wait: %w", err)
	}
	if some && now.Sub(r.Folded) >= every {
		if fold, err = fresh(ctx, conn); err != nil {
			return false, false, err
		}
	}
	return n >= most || n > 0 && now.Sub(r.Packed) >= packEvery, fold, nil
}

// Done notes a round.
func (a Pages) Done(ctx context.Context, conn *pgx.Conn, r *Rounds, fold bool, now time.Time) error {
	if err := conn.QueryRow(ctx, `SELECT last_value FROM pushmesh.`+a.sequence).Scan(&r.last); err != nil {
		return fmt.Errorf("postgres: pages: %w", err)
	}
	if r.Packed = now; fold {
		r.Folded = now
	}
	return nil
}

// Cut names an id such that every page below it is committed or will never be, and every later page
// is above. Pages under way end first, and who writes one waits for that. Where they take longer
// than cutTimeout: not now.
func (a Pages) Cut(ctx context.Context, conn *pgx.Conn) (id int64, ok bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(fmt.Sprintf(`SET LOCAL lock_timeout = %d`, cutTimeout.Milliseconds()))
		// no fsync under the lock; what builds on the id is committed after it
		b.Queue(`SET LOCAL synchronous_commit = off`)
		b.Queue(`LOCK TABLE ONLY pushmesh.` + a.table + ` IN SHARE MODE`)
		b.Queue(`SELECT nextval('pushmesh.` + a.sequence + `')`).QueryRow(func(row pgx.Row) error { return row.Scan(&id) })
		return tx.SendBatch(ctx, &b).Close()
	})
	if server.SQLState(err) == server.LockNotAvailable {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("postgres: cut pages: %w", err)
	}
	return id, true, nil
}

// cutTimeout bounds how long a checkpoint, and with it an append, may wait behind a cut that waits.
const cutTimeout = 50 * time.Millisecond

// Void lets go of pages below through.
func (a Pages) Void(ctx context.Context, on server.Querier, through int64) error {
	if _, err := on.Exec(ctx, `UPDATE pushmesh.`+a.folded+` SET through = greatest(through, $1)`, through); err != nil {
		return fmt.Errorf("postgres: let go of pages: %w", err)
	}
	return nil
}

// oldSnapshot keeps the dead from being removed.
const oldSnapshot = 30 * time.Second

// fresh reports whether no snapshot is old, as far as this role may see. Vacuum's own doesn't
// count.
func fresh(ctx context.Context, conn *pgx.Conn) (yes bool, err error) {
	err = conn.QueryRow(ctx, `SELECT NOT EXISTS (
			SELECT FROM pg_stat_activity WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND xact_start < clock_timestamp() - $1::interval
				AND backend_type <> 'autovacuum worker')
		AND NOT EXISTS (SELECT FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - $1::interval)`, oldSnapshot).Scan(&yes)
	if err != nil {
		return false, fmt.Errorf("postgres: old snapshots: %w", err)
	}
	return yes, nil
}
