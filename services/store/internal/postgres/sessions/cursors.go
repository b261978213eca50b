package sessions

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/deadletters"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// cursorsOf a session that began under the generation born, by topic. Pages are asked before the
// table: what is folded meanwhile is in one of them.
func (d *Sessions) cursorsOf(ctx context.Context, user, name string, born uint64) ([]*meshv1.SessionCursor, error) {
	if err := d.pages.sync(ctx); err != nil {
		return nil, err
	}
	newest := map[string]*cursor{}
	for _, c := range d.pages.of(sessionKey{user, name}) {
		newest[c.topic] = &c.cursor
	}
	folded, err := server.Query(ctx, d.server, scanCursor, `
		SELECT topic, generation, version, epoch, floor, CASE WHEN acked = '{}' AND tried = '{}' THEN '' ELSE acked::text || '|' || tried::text || '|' || attempts::text END
		FROM pushmesh.cursor WHERE user_id = $1 AND name = $2`, user, name)
	if err != nil {
		return nil, err
	}
	for _, c := range folded {
		if have := newest[c.topic]; have == nil || have.before(c) {
			newest[c.topic] = c
		}
	}
	var all []*meshv1.SessionCursor
	for _, topic := range slices.Sorted(maps.Keys(newest)) {
		c := newest[topic]
		if c.generation < born || c.lists == removed {
			continue
		}
		out, err := c.public()
		if err != nil {
			return nil, err
		}
		all = append(all, out)
	}
	return all, nil
}

func scanCursor(row pgx.CollectableRow) (*cursor, error) {
	c := &cursor{}
	var generation, version, epoch, floor int64
	err := row.Scan(&c.topic, &generation, &version, &epoch, &floor, &c.lists)
	c.generation, c.version, c.epoch, c.floor = uint64(generation), uint64(version), uint64(epoch), uint64(floor)
	return c, err
}

// effect is what the accepted writes of one call do to a session together.
type effect struct {
	*session
	now     uint64
	touched bool
	filters map[string]bool // false: removed
}

// WriteCursors sends a page where there is nothing to be written but cursors of sessions that are
// held as the writes say, as nearly always. A session that is attached elsewhere in that moment may
// find it or not; whatever its new holder writes counts for more.
func (d *Sessions) WriteCursors(ctx context.Context, writes []*meshv1.SessionWrite, now uint64) (codes []wirev1.Code, err error) {
	err = d.partitions.Append(ctx, func() error {
		if slices.ContainsFunc(writes, func(w *meshv1.SessionWrite) bool { return !plain(w) }) {
			codes, err = d.writeLocked(ctx, writes, now)
			return err
		}
		held, err := d.writePlain(ctx, writes)
		if err != nil || held {
			codes = make([]wirev1.Code, len(writes)) // OK
			return err
		}
		codes, err = d.writeLocked(ctx, writes, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	return codes, nil
}

// plain writes only move cursors on. A removal that a new holder did not see would take a cursor
// from it that it builds on; one that is moved on comes again.
func plain(w *meshv1.SessionWrite) bool {
	return len(w.GetCursors()) > 0 && len(w.GetRemoveTopics())+len(w.GetAddFilters())+len(w.GetRemoveFilters())+len(w.GetDeadLetters()) == 0 && !w.GetDetach()
}

// writePlain writes all or, where a session is not held under its write's generation, nothing.
func (d *Sessions) writePlain(ctx context.Context, writes []*meshv1.SessionWrite) (held bool, err error) {
	p := newPage(len(writes))
	for _, w := range writes {
		p.take(w)
	}
	err = d.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tag, err := conn.Exec(ctx, insertHeld, p.args()...)
		held = tag.RowsAffected() > 0
		return err
	})
	return held, err
}

// writeLocked locks the sessions in the order of their keys, decides, and sends all changes at
// once.
func (d *Sessions) writeLocked(ctx context.Context, writes []*meshv1.SessionWrite, now uint64) (codes []wirev1.Code, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		effects, err := lockSessions(ctx, tx, writes, now)
		if err != nil {
			return err
		}
		var letters []*meshv1.DeadLetter
		p := newPage(len(writes))
		codes = make([]wirev1.Code, len(writes))
		for i, w := range writes {
			e := effects[sessionKey{w.GetUser(), w.GetName()}]
			if codes[i] = e.take(w); codes[i] == wirev1.Code_CODE_OK {
				p.take(w)
				letters = append(letters, w.GetDeadLetters()...)
			}
		}
		return writeEffects(ctx, tx, p, effects, letters)
	})
	return codes, err
}

func lockSessions(ctx context.Context, tx pgx.Tx, writes []*meshv1.SessionWrite, now uint64) (map[sessionKey]*effect, error) {
	wanted := map[sessionKey]bool{}
	var users, names []string
	for _, w := range writes {
		k := sessionKey{w.GetUser(), w.GetName()}
		if !wanted[k] {
			wanted[k] = true
			users, names = append(users, k.user), append(names, k.name)
		}
	}
	rows, err := tx.Query(ctx, `SELECT`+sessionColumns+`FROM pushmesh.session
		WHERE (user_id, name) IN (SELECT * FROM unnest($1::text[], $2::text[])) ORDER BY user_id, name FOR UPDATE`, users, names)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanSession)
	effects := map[sessionKey]*effect{}
	for _, s := range found {
		if !s.over(now) {
			effects[sessionKey{s.user, s.name}] = &effect{session: s, now: now, filters: map[string]bool{}}
		}
	}
	if err != nil {
		return nil, err
	}
	return effects, findUsed(ctx, tx, writes, effects)
}

// findUsed marks sessions as used that have a filter, and are about to lose it or to be detached. A
// store of an earlier version does not, and may have had the session since it was created.
func findUsed(ctx context.Context, tx pgx.Tx, writes []*meshv1.SessionWrite, effects map[sessionKey]*effect) error {
	var users, names []string
	for _, w := range writes {
		k := sessionKey{w.GetUser(), w.GetName()}
		if e := effects[k]; e != nil && !e.used && (w.GetDetach() || len(w.GetRemoveFilters()) > 0) {
			users, names = append(users, k.user), append(names, k.name)
		}
	}
	if len(users) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, withFilter, users, names)
	var k sessionKey
	return server.Each(rows, err, []any{&k.user, &k.name}, func() { effects[k].used, effects[k].touched = true, true })
}

// withFilter is which sessions have a filter. The question is a scalar one, so that it is always a
// look into the index for each session.
const withFilter = `SELECT w.user_id, w.name FROM unnest($1::text[], $2::text[]) AS w (user_id, name)
	WHERE (SELECT true FROM pushmesh.session_filter AS f WHERE f.user_id = w.user_id AND f.name = w.name LIMIT 1)`

// take adds a write to the effect, or refuses it.
func (e *effect) take(w *meshv1.SessionWrite) wirev1.Code {
	if e == nil {
		return wirev1.Code_CODE_NOT_FOUND
	}
	if e.generation != w.GetGeneration() {
		return wirev1.Code_CODE_SESSION_TAKEN_OVER
	}
	if !e.used && len(w.GetCursors())+len(w.GetAddFilters()) > 0 {
		e.used, e.touched = true, true
	}
	for _, f := range w.GetRemoveFilters() {
		e.filters[f] = false
	}
	for _, f := range w.GetAddFilters() {
		e.filters[f] = true
	}
	switch {
	case w.GetDetach():
		e.edge, e.connection, e.expiresAt, e.touched = "", 0, e.now+e.lasts(), true
	case e.edge == "": // taken for dead, but its holder lives
		e.expiresAt, e.touched = e.now+e.ttl, true
	}
	return wirev1.Code_CODE_OK
}

func writeEffects(ctx context.Context, tx pgx.Tx, p *page, effects map[sessionKey]*effect, letters []*meshv1.DeadLetter) error {
	var q pgx.Batch
	if p.len() > 0 {
		q.Queue(insertPage, p.args()...)
	}
	queueEffects(&q, effects)
	deadletters.Queue(&q, letters)
	if q.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, &q).Close()
}

// pairs are columns of keys with a third part.
type pairs struct{ users, names, parts []string }

func (p *pairs) add(s *session, part string) {
	p.users, p.names, p.parts = append(p.users, s.user), append(p.names, s.name), append(p.parts, part)
}

func queueEffects(q *pgx.Batch, effects map[sessionKey]*effect) {
	var dropped, added pairs
	for _, e := range effects {
		for filter, held := range e.filters {
			if held {
				added.add(e.session, filter)
			} else {
				dropped.add(e.session, filter)
			}
		}
		if e.touched {
			q.Queue(`UPDATE pushmesh.session SET edge = $3, connection_id = $4, expires_at = $5, used = $6 WHERE user_id = $1 AND name = $2`,
				e.user, e.name, e.edge, int64(e.connection), int64(e.expiresAt), e.used)
		}
	}
	if len(dropped.parts) > 0 {
		q.Queue(`DELETE FROM pushmesh.session_filter AS c USING unnest($1::text[], $2::text[], $3::text[]) AS g (user_id, name, filter)
			WHERE c.user_id = g.user_id AND c.name = g.name AND c.filter = g.filter`, dropped.users, dropped.names, dropped.parts)
	}
	if len(added.parts) > 0 {
		q.Queue(`INSERT INTO pushmesh.session_filter (user_id, name, filter) SELECT * FROM unnest($1::text[], $2::text[], $3::text[])
			ON CONFLICT DO NOTHING`, added.users, added.names, added.parts)
	}
}
