package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func cursorsOf(ctx context.Context, tx pgx.Tx, user, name string) (all []*meshv1.SessionCursor, err error) {
	rows, err := tx.Query(ctx, `
		SELECT topic, epoch, floor, acked, tried, attempts FROM pushmesh.cursor WHERE user_id = $1 AND name = $2 ORDER BY topic`, user, name)
	var topic string
	var epoch, floor int64
	var acked, tried []int64
	var attempts []int32
	err = each(rows, err, []any{&topic, &epoch, &floor, &acked, &tried, &attempts}, func() {
		c := &meshv1.SessionCursor{Topic: topic, Epoch: uint64(epoch), Floor: uint64(floor)}
		for _, seq := range acked {
			c.Acked = append(c.Acked, uint64(seq))
		}
		for i, seq := range tried {
			if c.Attempts == nil {
				c.Attempts = make(map[uint64]uint32, len(tried))
			}
			c.Attempts[uint64(seq)] = uint32(attempts[i])
		}
		all = append(all, c)
	})
	return all, err
}

// sessionKey of a session.
type sessionKey struct{ user, name string }

// effect is what the accepted writes of one call do to a session together.
type effect struct {
	*session
	now     uint64
	touched bool
	cursors map[string]*meshv1.SessionCursor // nil value: removed
	filters map[string]bool                  // false: removed
}

// WriteCursors locks the sessions in the order of their keys, decides, and sends all changes at once.
func (d *DB) WriteCursors(ctx context.Context, writes []*meshv1.SessionWrite, now uint64) (codes []wirev1.Code, err error) {
	err = d.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		effects, err := lockSessions(ctx, tx, writes, now)
		if err != nil {
			return err
		}
		var letters []*meshv1.DeadLetter
		codes = make([]wirev1.Code, len(writes))
		for i, w := range writes {
			e := effects[sessionKey{w.GetUser(), w.GetName()}]
			if codes[i] = e.take(w); codes[i] == wirev1.Code_CODE_OK {
				letters = append(letters, w.GetDeadLetters()...)
			}
		}
		return writeEffects(ctx, tx, effects, letters)
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
			effects[sessionKey{s.user, s.name}] = &effect{session: s, now: now, cursors: map[string]*meshv1.SessionCursor{}, filters: map[string]bool{}}
		}
	}
	return effects, err
}

// take adds a write to the effect, or refuses it.
func (e *effect) take(w *meshv1.SessionWrite) wirev1.Code {
	if e == nil {
		return wirev1.Code_CODE_NOT_FOUND
	}
	if e.generation != w.GetGeneration() {
		return wirev1.Code_CODE_SESSION_TAKEN_OVER
	}
	for _, c := range w.GetCursors() {
		e.cursors[c.GetTopic()] = c
	}
	for _, t := range w.GetRemoveTopics() {
		e.cursors[t] = nil
	}
	for _, f := range w.GetRemoveFilters() {
		e.filters[f] = false
	}
	for _, f := range w.GetAddFilters() {
		e.filters[f] = true
	}
	switch {
	case w.GetDetach():
		e.edge, e.connection, e.expiresAt, e.touched = "", 0, e.now+e.ttl, true
	case e.edge == "": // taken for dead, but its holder lives
		e.expiresAt, e.touched = e.now+e.ttl, true
	}
	return wirev1.Code_CODE_OK
}

func writeEffects(ctx context.Context, tx pgx.Tx, effects map[sessionKey]*effect, letters []*meshv1.DeadLetter) error {
	var q pgx.Batch
	queueEffects(&q, effects)
	queueLetters(&q, letters)
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
	var gone, dropped, added pairs
	for _, e := range effects {
		for topic, c := range e.cursors {
			if c == nil {
				gone.add(e.session, topic)
			}
		}
		for filter, held := range e.filters {
			if held {
				added.add(e.session, filter)
			} else {
				dropped.add(e.session, filter)
			}
		}
		if e.touched {
			q.Queue(`UPDATE pushmesh.session SET edge = $3, connection_id = $4, expires_at = $5 WHERE user_id = $1 AND name = $2`,
				e.user, e.name, e.edge, int64(e.connection), int64(e.expiresAt))
		}
	}
	queueCursors(q, effects)
	if len(gone.parts) > 0 {
		q.Queue(`DELETE FROM pushmesh.cursor AS c USING unnest($1::text[], $2::text[], $3::text[]) AS g (user_id, name, topic)
			WHERE c.user_id = g.user_id AND c.name = g.name AND c.topic = g.topic`, gone.users, gone.names, gone.parts)
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

// queueCursors sends one statement for all cursors whose lists are empty, as most are, and one for each of the others: arrays of
// arrays of different lengths can't be sent as one.
func queueCursors(q *pgx.Batch, effects map[sessionKey]*effect) {
	const upsert = ` ON CONFLICT (user_id, name, topic) DO UPDATE SET epoch = excluded.epoch, floor = excluded.floor,
		acked = excluded.acked, tried = excluded.tried, attempts = excluded.attempts`
	var plain pairs
	var epochs, floors []int64
	for _, e := range effects {
		for topic, c := range e.cursors {
			switch {
			case c == nil:
			case len(c.GetAcked())+len(c.GetAttempts()) == 0:
				plain.add(e.session, topic)
				epochs, floors = append(epochs, int64(c.GetEpoch())), append(floors, int64(c.GetFloor()))
			default:
				acked, tried, attempts := lists(c)
				q.Queue(`INSERT INTO pushmesh.cursor (user_id, name, topic, epoch, floor, acked, tried, attempts) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`+upsert,
					e.user, e.name, topic, int64(c.GetEpoch()), int64(c.GetFloor()), acked, tried, attempts)
			}
		}
	}
	if len(plain.parts) > 0 {
		q.Queue(`INSERT INTO pushmesh.cursor (user_id, name, topic, epoch, floor, acked, tried, attempts)
			SELECT *, '{}', '{}', '{}' FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])`+upsert,
			plain.users, plain.names, plain.parts, epochs, floors)
	}
}

func lists(c *meshv1.SessionCursor) (acked, tried []int64, attempts []int32) {
	acked, tried, attempts = []int64{}, []int64{}, []int32{}
	for _, seq := range c.GetAcked() {
		acked = append(acked, int64(seq))
	}
	for _, seq := range slices.Sorted(maps.Keys(c.GetAttempts())) {
		tried, attempts = append(tried, int64(seq)), append(attempts, int32(c.GetAttempts()[seq]))
	}
	return acked, tried, attempts
}
