package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	allSessions  = 1_000_000
	edgeSessions = 300_000 // of an edge that is gone
	calmFor      = 20 * time.Second
	// detachWithin is how long letting go may take: a minute until the edge counts as gone, a turn,
	// and what is measured.
	detachWithin = 3 * time.Minute
)

// detach has a store let go of an edge with 300,000 sessions of a million, and compares appends
// beside it with those before.
func (b *bench) detach(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 0))
	defer func() { err = errors.Join(err, m.end()) }()
	conn := try.Get(pgx.Connect(ctx, m.url))
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// The others are held by nobody, for there is no edge that would be heard of.
	try.Do(holdSessions(ctx, conn, edgeSessions, allSessions, ""))
	try.Do(errors.Join(b.DB.Exec(ctx, m.url, "VACUUM ANALYZE pushmesh.session"), b.DB.Checkpoint(ctx)))
	calm := try.Get(b.pacedUntil(ctx, m.Router.Addr, time.Now().Add(calmFor), nil))
	try.Do(holdSessions(ctx, conn, 0, edgeSessions, "edge-gone"))
	ctx, cancel := context.WithTimeout(ctx, detachWithin)
	defer cancel()
	let := func() (n float64, err error) {
		all, err := m.Store.Metrics(ctx)
		return all["pushmesh_store_sessions_detached_total"], err
	}
	for n := 0.0; n == 0; {
		n = try.Get(let())
		if n == 0 {
			try.Do(pause(ctx, 10*time.Millisecond))
		}
	}
	before, began := try.Get(written(ctx, conn)), time.Now()
	ended := make(chan error, 1)
	var took time.Duration
	go func() {
		for {
			n, err := let()
			if err == nil && n < edgeSessions {
				err = pause(ctx, 20*time.Millisecond)
				if err == nil {
					continue
				}
			}
			took = time.Since(began)
			ended <- err
			return
		}
	}()
	beside := try.Get(b.pacedUntil(ctx, m.Router.Addr, time.Now().Add(detachWithin), ended))
	wal := try.Get(written(ctx, conn)) - before
	var held int
	try.Do(conn.QueryRow(ctx, `SELECT count(*) FROM pushmesh.session WHERE edge <> ''`).Scan(&held))
	if held > 0 {
		return fmt.Errorf("%d sessions are held still", held)
	}
	b.Add(table.AtMost(fmt.Sprintf("an edge that is gone with %d of %d sessions: all of them let go", edgeSessions, allSessions), took.Seconds(), "s", 10,
		fmt.Sprintf("%.0f sessions/s; %.0f B of write-ahead log for each, what was appended meanwhile included", edgeSessions/took.Seconds(), float64(wal)/edgeSessions)),
		table.AtMost("append p99 meanwhile / before, 20,000/s appended", table.Quantile(beside, .99)/table.Quantile(calm, .99), "×", 2,
			fmt.Sprintf("p99 %s, before %s (p50 %s, %s; slowest %s, %s)", ms(beside, .99), ms(calm, .99), ms(beside, .5), ms(calm, .5), ms(beside, 1), ms(calm, 1))))
	return nil
}

// holdSessions makes sessions from one number to below another, as if they had attached at an edge;
// "": they are held by nobody. Triggers that count them would take most of the time.
func holdSessions(ctx context.Context, conn *pgx.Conn, from, to int, edge string) error {
	for _, sql := range []string{
		`ALTER TABLE pushmesh.session DISABLE TRIGGER USER`,
		fmt.Sprintf(`INSERT INTO pushmesh.session (user_id, name, generation, connection_id, attached_at, expires_at, ttl, edge)
			SELECT 'user-' || i, 'phone', 1, i, 1, CASE WHEN '%s' = '' THEN 9000000000000000 ELSE 0 END, 604800000000, '%s' FROM generate_series(%d, %d) AS i`, edge, edge, from, to-1),
		`ALTER TABLE pushmesh.session ENABLE TRIGGER USER`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("sessions: %w", err)
		}
	}
	return nil
}

// pacedUntil appends at the fixed rate, a second at a time, until then or until there is word.
func (b *bench) pacedUntil(ctx context.Context, router string, until time.Time, word <-chan error) (took []time.Duration, err error) {
	for time.Now().Before(until) {
		some, err := b.paced(ctx, router, time.Second)
		if err != nil {
			return nil, err
		}
		took = append(took, some...)
		select {
		case err := <-word:
			slices.Sort(took)
			return took, err
		default:
		}
	}
	slices.Sort(took)
	return took, nil
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
