package sessions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Bounds of attaches.
const (
	// roundsAtOnce run at a time: one writes while another reads.
	roundsAtOnce = 2
	// attachesInRound go together.
	attachesInRound = 256
	// attachesWaiting for a round; further ones are refused.
	attachesWaiting = 4096
	// roundReads bounds how long a round reads what sessions have; then each caller reads its own.
	roundReads = 5 * time.Second
)

// attach is a call of AttachSession.
type attach struct {
	req *meshv1.AttachSessionRequest
	now uint64 // µs
	// done is closed once the round has ended, which has then set what follows.
	done chan struct{}
	// before is the session as it was, with its generation now; nil: it has to be attached alone,
	// or, of a peek, there is none.
	before     *session
	generation uint64
	// resp is nil where the caller has to read what the session has.
	resp *meshv1.AttachSessionResponse
	err  error // of the database; alone if it is of one of the round
}

func (a *attach) key() sessionKey { return sessionKey{a.req.GetUser(), a.req.GetName()} }

// rounds gathers attaches: those that come while some are under way go together. Who comes while
// nothing is waits for nobody. It owns roundsAtOnce goroutines at most, while there is work; Close
// waits for them.
type rounds struct {
	run func(take func() []*attach)
	all sync.WaitGroup

	mu      sync.Mutex
	waiting []*attach
	running int
}

// add has a round take the attach.
func (r *rounds) add(a *attach) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) >= attachesWaiting {
		return code.Retry(wirev1.Code_CODE_OVERLOADED, server.RetryAfter, fmt.Sprintf("attach session: %d others wait", attachesWaiting))
	}
	r.waiting = append(r.waiting, a)
	if r.running < roundsAtOnce {
		r.running++
		r.all.Go(func() {
			for r.more() {
				r.run(r.take)
			}
		})
	}
	return nil
}

// more reports whether somebody waits. Where nobody does the goroutine that asks has to end.
func (r *rounds) more() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) > 0 {
		return true
	}
	r.running--
	return false
}

// take is who is in the next round, in the order of the keys, in which rows are locked. Each
// session is in it once.
func (r *rounds) take() []*attach {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := map[sessionKey]bool{}
	round := []*attach{}
	left := r.waiting[:0]
	for _, a := range r.waiting {
		if len(round) == attachesInRound || taken[a.key()] {
			left = append(left, a)
			continue
		}
		taken[a.key()] = true
		round = append(round, a)
	}
	clear(r.waiting[len(left):])
	r.waiting = left
	slices.SortFunc(round, func(a, b *attach) int { return inOrder(owned{sessionKey: a.key()}, owned{sessionKey: b.key()}) })
	return round
}

// drop takes out who waits no more.
func (r *rounds) drop(a *attach) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(other *attach) bool { return other == a })
}

// together attaches in a round, and answers once it has ended or ctx has: then the session may have
// been attached or not.
func (d *Sessions) together(ctx context.Context, req *meshv1.AttachSessionRequest, now uint64) (*attach, error) {
	a := &attach{req: req, now: now, done: make(chan struct{})}
	if err := d.rounds.add(a); err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a, a.err
	case <-ctx.Done():
		d.rounds.drop(a)
		return nil, fmt.Errorf("attach session: %w", ctx.Err())
	}
}

// round attaches known sessions, answers peeks, and leaves the others to their callers. Nobody's
// context ends it: it is everybody's.
func (d *Sessions) round(take func() []*attach) {
	var all []*attach
	err := d.server.Do(context.Background(), func(ctx context.Context, conn *pgxpool.Conn) error {
		if all == nil { // it may be done again
			all = take()
		}
		return raiseAll(ctx, conn, all)
	})
	if err != nil && all == nil { // the gate let nobody in
		all = take()
	}
	var found []*attach
	for _, a := range all {
		switch {
		case err != nil:
			a.before = nil
			if !ofOne(err) {
				a.err = err
			}
		case a.before != nil:
			found = append(found, a)
		case a.req.GetPeek():
			a.resp = &meshv1.AttachSessionResponse{}
		}
	}
	if len(found) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), roundReads)
		if d.readAll(ctx, found) != nil {
			// what it was, each caller finds out for its own session
			for _, a := range found {
				a.resp = nil
			}
		}
		cancel()
	}
	for _, a := range all {
		close(a.done)
	}
}

// ofOne reports whether one of a round may have caused the error, and the others be well alone:
// data that the server does not take, something that is too large, a conflict with others, or a
// statement that was cancelled.
func ofOne(err error) bool {
	state := server.SQLState(err)
	switch state {
	case server.LockNotAvailable, server.QueryCanceled:
		return true
	}
	return strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23") || strings.HasPrefix(state, "40") || strings.HasPrefix(state, "54")
}

// wantedRow looks one session up in the index, whatever the planner thinks of the table, unless its
// time is over.
const wantedRow = `SELECT user_id, name, generation, edge, connection_id, born FROM pushmesh.session AS s
		WHERE s.user_id = w.user_id AND s.name = w.name AND (s.edge <> '' OR s.expires_at > w.now) LIMIT 1`

// raiseKnown makes callers the holders of sessions that there are, and that nobody is changing. It
// waits for no lock, so that it is part of no deadlock: what others have locked is left out. What
// was found is gathered into arrays; see detachEdge.
const raiseKnown = `WITH held AS MATERIALIZED (
		SELECT w.i, s.* FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS w (user_id, name, now, i) CROSS JOIN LATERAL (
		` + wantedRow + ` FOR NO KEY UPDATE SKIP LOCKED) AS s
	), gathered AS MATERIALIZED (
		SELECT array_agg(i::int) AS at, array_agg(user_id) AS users, array_agg(name) AS names, array_agg(edge) AS edges,
			array_agg(connection_id) AS connections, array_agg(born) AS borns FROM held
	)
	UPDATE pushmesh.session AS s SET generation = greatest(($3::bigint[])[k.i], s.generation + 1), edge = ($4::text[])[k.i],
		connection_id = ($5::bigint[])[k.i], attached_at = ($3::bigint[])[k.i], expires_at = 0, ttl = ($6::bigint[])[k.i]
	FROM gathered AS g, unnest(g.at, g.users, g.names, g.edges, g.connections, g.borns) AS k (i, user_id, name, edge, connection_id, born)
	WHERE s.user_id = k.user_id AND s.name = k.name
	RETURNING k.i, s.generation, k.edge, k.connection_id, k.born`

const peekKnown = `SELECT w.i::int, s.generation, s.edge, s.connection_id, s.born
	FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS w (user_id, name, now, i) CROSS JOIN LATERAL (` + wantedRow + `) AS s`

// raiseAll asks for peeks, and raises the generations of the others, in one round trip and one
// transaction.
func raiseAll(ctx context.Context, conn *pgxpool.Conn, all []*attach) error {
	var peeks, holds []*attach
	for _, a := range all {
		a.before = nil
		if a.req.GetPeek() {
			peeks = append(peeks, a)
		} else {
			holds = append(holds, a)
		}
	}
	q := &pgx.Batch{}
	if len(peeks) > 0 {
		users, names, nows := keysOf(peeks)
		q.Queue(peekKnown, users, names, nows).Query(foundOf(peeks))
	}
	if len(holds) > 0 {
		users, names, nows := keysOf(holds)
		edges, connections, ttls := make([]string, len(holds)), make([]int64, len(holds)), make([]int64, len(holds))
		for i, a := range holds {
			edges[i], connections[i], ttls[i] = a.req.GetEdgeId(), int64(a.req.GetConnectionId()), int64(ttlOf(a.req))
		}
		q.Queue(raiseKnown, users, names, nows, edges, connections, ttls).Query(foundOf(holds))
	}
	if q.Len() == 0 {
		return nil
	}
	return conn.SendBatch(ctx, q).Close()
}

func keysOf(all []*attach) (users, names []string, nows []int64) {
	for _, a := range all {
		users, names, nows = append(users, a.req.GetUser()), append(names, a.req.GetName()), append(nows, int64(a.now))
	}
	return users, names, nows
}

// foundOf says what became of each that was found.
func foundOf(all []*attach) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var i int
		var generation, connection, born int64
		var edge string
		return server.Each(rows, nil, []any{&i, &generation, &edge, &connection, &born}, func() {
			a := all[i-1]
			a.generation = uint64(generation)
			a.before = &session{user: a.req.GetUser(), name: a.req.GetName(), edge: edge, connection: uint64(connection), born: uint64(born)}
		})
	}
}

// Of each session that is asked for, by the index.
const (
	cursorsOfAll = `SELECT w.i::int, c.* FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (user_id, name, i)
		CROSS JOIN LATERAL (` + cursorRows + ` WHERE user_id = w.user_id AND name = w.name OFFSET 0) AS c`
	filtersOfAll = `SELECT w.i::int, f.filter FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (user_id, name, i)
		CROSS JOIN LATERAL (SELECT filter FROM pushmesh.session_filter WHERE user_id = w.user_id AND name = w.name OFFSET 0) AS f
		ORDER BY w.i, f.filter`
)

// readAll fills in the answers with what the sessions have. Pages are asked before the table, as
// cursorsOf does, and after the commit: whoever had a session before can write no more.
func (d *Sessions) readAll(ctx context.Context, found []*attach) error {
	if err := d.pages.sync(ctx); err != nil {
		return err
	}
	users, names, _ := keysOf(found)
	newest := make([]newestCursors, len(found))
	err := d.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		for i, a := range found { // it may be done again
			a.resp, newest[i] = a.answer(), d.pages.newestOf(a.key())
		}
		q := &pgx.Batch{}
		q.Queue(cursorsOfAll, users, names).Query(func(rows pgx.Rows) error {
			defer rows.Close()
			for rows.Next() {
				var i int
				c, err := scanCursorAnd(rows, &i)
				if err != nil {
					return err
				}
				newest[i-1].take(c)
			}
			return rows.Err()
		})
		q.Queue(filtersOfAll, users, names).Query(func(rows pgx.Rows) error {
			var i int
			var filter string
			return server.Each(rows, nil, []any{&i, &filter}, func() {
				found[i-1].resp.Filters = append(found[i-1].resp.Filters, filter)
			})
		})
		return conn.SendBatch(ctx, q).Close()
	})
	if err != nil {
		return err
	}
	for i, a := range found {
		if a.resp.Cursors, err = newest[i].public(a.before.born); err != nil {
			return err
		}
	}
	return nil
}

// answer is that to who attached, without what the session has.
func (a *attach) answer() *meshv1.AttachSessionResponse {
	return &meshv1.AttachSessionResponse{
		Generation: a.generation, Resumed: true, PreviousEdge: a.before.edge, PreviousConnectionId: a.before.connection,
	}
}
