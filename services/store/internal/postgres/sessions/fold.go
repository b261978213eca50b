package sessions

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/partition"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// When pages are packed, and when what they say goes into pushmesh.cursor, where each cursor that
// moved costs a dead row.
const (
	packPages = 1000
	// foldMost cursors may lie in pages, which is memory of every store that resumes sessions:
	// beyond, they are folded beside an old snapshot as well.
	foldMost = 1_000_000
	// cursorsInPage is the length of a packed page, packPause what lies between two; foldPart how
	// many cursors one transaction folds, foldPause what lies between two. Appends share the CPU
	// with them.
	cursorsInPage = 2000
	packPause     = 20 * time.Millisecond
	foldPart      = 200
	foldPause     = 20 * time.Millisecond
)

// folder of cursors.
type folder struct {
	partition.Rounds
	packs, folds, forced atomic.Uint64
}

func (*folder) counter(kind string, n *atomic.Uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "pushmesh_store_cursor_folds_total", ConstLabels: prometheus.Labels{"kind": kind},
		Help: "Rounds over the packed pages of cursors, by kind: packed (packed again), folded (moved into the table), forced (moved although an old snapshot keeps the dead rows).",
	}, func() float64 { return float64(n.Load()) })
}

// FoldCursors packs pages, which is inserts alone; and where no old snapshot keeps dead rows, or
// too many cursors lie in pages, it puts them into pushmesh.cursor. One store does it at a time.
func (d *Sessions) FoldCursors(ctx context.Context, how backend.Fold) error {
	return partition.CursorPages.Alone(ctx, d.server, false, func(conn *pgx.Conn) error {
		d.folder.Lock()
		defer d.folder.Unlock()
		return d.foldCursors(ctx, conn, how)
	})
}

func (d *Sessions) foldCursors(ctx context.Context, conn *pgx.Conn, how backend.Fold) error {
	now, fold := time.Now(), how == backend.FoldAll
	if how == backend.FoldDue {
		pack, foldable, err := partition.CursorPages.Due(ctx, conn, &d.folder.Rounds, packPages, d.server.Config.Fold, now)
		if err != nil || !pack && !foldable {
			return err
		}
		fold = foldable
	}
	if err := d.pages.ease(ctx); err != nil {
		return err
	}
	through, ok, err := partition.CursorPages.Cut(ctx, conn)
	if err != nil || !ok {
		return err
	}
	if err := d.pages.sync(ctx); err != nil {
		return err
	}
	if n, _ := d.pages.size(); n > foldMost && !fold {
		fold = true
		d.folder.forced.Add(1)
		d.server.Config.Log.Warn("cursors are moved into pushmesh.cursor while an old snapshot is open: dead rows stay until it ends", "cursors", n)
	}
	all := d.pages.below(through)
	if fold {
		err = foldAll(ctx, conn, all)
	} else {
		err = d.pack(ctx, conn, all, through)
	}
	if err != nil {
		return fmt.Errorf("postgres: fold cursors: %w", err)
	}
	if err := partition.CursorPages.Void(ctx, conn, through); err != nil {
		return err
	}
	if fold {
		d.folder.folds.Add(1)
	} else {
		d.folder.packs.Add(1)
	}
	if err := partition.CursorPages.Done(ctx, conn, &d.folder.Rounds, fold, now); err != nil {
		return err
	}
	return d.pages.sync(ctx) // lets go of what is void
}

// pack writes cursors into pages of their own. Each says of itself that it is older than any page
// from through on.
func (d *Sessions) pack(ctx context.Context, conn *pgx.Conn, all []owned, through int64) error {
	for part := range slices.Chunk(all, cursorsInPage) {
		p := pageOf(part)
		err := d.partitions.Append(ctx, func() error {
			_, err := conn.Exec(ctx, insertPacked, append(p.args(), through)...)
			return err
		})
		if err != nil {
			return err
		}
		if err := rest(ctx, packPause); err != nil {
			return err
		}
	}
	return nil
}

// rest is for a while, or until ctx ends.
func rest(ctx context.Context, span time.Duration) error {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func pageOf(all []owned) *page {
	p := newPage(len(all))
	for _, c := range all {
		p.add(c.sessionKey, c.cursor)
	}
	return p
}

const (
	// foldCursors leaves out what belongs to a session that is gone, and keeps sessions from going
	// meanwhile.
	foldCursors = `INSERT INTO pushmesh.cursor AS c (user_id, name, topic, generation, version, epoch, floor, acked, tried, attempts)
		SELECT e.user_id, e.name, e.topic, e.generation, e.version, e.epoch, e.floor, coalesce(nullif(split_part(e.lists, '|', 1), '')::bigint[], '{}'),
			coalesce(nullif(split_part(e.lists, '|', 2), '')::bigint[], '{}'), coalesce(nullif(split_part(e.lists, '|', 3), '')::integer[], '{}')
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[])
			AS e (user_id, name, generation, topic, epoch, floor, lists, version)
		CROSS JOIN LATERAL (SELECT FROM pushmesh.session AS s
			WHERE s.user_id = e.user_id AND s.name = e.name AND s.born <= e.generation FOR KEY SHARE) AS s
		WHERE e.lists <> '-'
		ON CONFLICT (user_id, name, topic) DO UPDATE SET generation = excluded.generation, version = excluded.version, epoch = excluded.epoch,
			floor = excluded.floor, acked = excluded.acked, tried = excluded.tried, attempts = excluded.attempts
		WHERE (c.generation, c.version) < (excluded.generation, excluded.version)`
	foldRemoved = `DELETE FROM pushmesh.cursor AS c
		USING unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[]) AS e (user_id, name, generation, topic, lists, version)
		WHERE e.lists = '-' AND c.user_id = e.user_id AND c.name = e.name AND c.topic = e.topic AND (c.generation, c.version) < (e.generation, e.version)`
)

// foldAll brings pushmesh.cursor up to date, a little at a time. Done again after an interruption
// it changes nothing twice.
func foldAll(ctx context.Context, conn *pgx.Conn, all []owned) error {
	slices.SortFunc(all, inOrder)
	for part := range slices.Chunk(all, foldPart) {
		p := pageOf(part)
		for tries := 0; ; tries++ {
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				var b pgx.Batch
				b.Queue(foldCursors, append(p.args(), p.versions)...)
				b.Queue(foldRemoved, p.users, p.names, p.generations, p.topics, p.lists, p.versions)
				return tx.SendBatch(ctx, &b).Close()
			})
			if err == nil {
				break
			}
			if !server.Transient(err) || tries == server.MaxRetries || !server.Pause(ctx, tries) {
				return err
			}
		}
		if len(part) < foldPart {
			break
		}
		if err := rest(ctx, foldPause); err != nil {
			return err
		}
	}
	return nil
}
