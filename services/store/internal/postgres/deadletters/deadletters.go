// Package deadletters keeps the messages that sessions gave up.
package deadletters

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// letterLock makes dead letters commit in the order of their ids, so that a reader who pages by id
// misses none.
const letterLock = 0x7075736a

// letterPage is how many letters are read at a time where a filter may leave some out.
const letterPage = 256

// Letters of a database.
type Letters struct{ server *server.Server }

// New is ready to be used.
func New(s *server.Server) *Letters { return &Letters{s} }

// Queue has a transaction keep letters.
func Queue(q *pgx.Batch, letters []*meshv1.DeadLetter) {
	if len(letters) == 0 {
		return
	}
	q.Queue(`SELECT pg_advisory_xact_lock($1, 0)`, int32(letterLock))
	var epochs, seqs, ats []int64
	var reasons, attempts []int32
	var topics, users, sessions []string
	var bodies [][]byte
	for _, l := range letters {
		epochs, seqs, ats = append(epochs, int64(l.GetEpoch())), append(seqs, int64(l.GetSeq())), append(ats, int64(l.GetAt()))
		reasons, attempts = append(reasons, int32(l.GetReason())), append(attempts, int32(l.GetAttempts()))
		topics, users, sessions = append(topics, l.GetTopic()), append(users, l.GetUser()), append(sessions, l.GetSession())
		body := l.GetBody()
		if body == nil {
			body = []byte{}
		}
		bodies = append(bodies, body)
	}
	q.Queue(`INSERT INTO pushmesh.dead_letter (epoch, seq, at, reason, attempts, topic, user_id, session, body)
		SELECT epoch, seq, at, reason, attempts, topic, user_id, session, body
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[], $5::int[], $6::text[], $7::text[], $8::text[], $9::bytea[])
			WITH ORDINALITY AS l (epoch, seq, at, reason, attempts, topic, user_id, session, body, i)
		ORDER BY i ON CONFLICT DO NOTHING`, epochs, seqs, ats, reasons, attempts, topics, users, sessions, bodies)
}

// ListDeadLetters narrows by the filter's first levels in SQL and matches the rest here.
func (l *Letters) ListDeadLetters(ctx context.Context, filter string, after uint64, limit int) (found []*meshv1.DeadLetter, err error) {
	for {
		page, err := server.Query(ctx, l.server, scanLetter, `
			SELECT id, topic, epoch, seq, body, reason, attempts, user_id, session, at FROM pushmesh.dead_letter
			WHERE id > $1 AND starts_with(topic, $2) ORDER BY id LIMIT $3`, int64(after), literalPrefix(filter), max(limit, letterPage))
		if err != nil {
			return nil, err
		}
		for _, letter := range page {
			if filter == "" || topic.Match(filter, letter.GetTopic()) {
				if found = append(found, letter); len(found) == limit {
					return found, nil
				}
			}
			after = letter.GetId()
		}
		if len(page) < max(limit, letterPage) {
			return found, nil
		}
	}
}

// FindDeadLetters by id.
func (l *Letters) FindDeadLetters(ctx context.Context, ids []uint64) ([]*meshv1.DeadLetter, error) {
	return server.Query(ctx, l.server, scanLetter, `
		SELECT id, topic, epoch, seq, body, reason, attempts, user_id, session, at FROM pushmesh.dead_letter
		WHERE id = ANY($1) ORDER BY id`, signed(ids))
}

// UncopiedLetters goes along an index that has nothing else.
func (l *Letters) UncopiedLetters(ctx context.Context, after uint64, limit int) ([]*meshv1.DeadLetter, error) {
	return server.Query(ctx, l.server, scanLetter, `
		SELECT id, topic, epoch, seq, body, reason, attempts, user_id, session, at FROM pushmesh.dead_letter
		WHERE NOT copied AND id > $1 ORDER BY id LIMIT $2`, int64(after), limit)
}

// MarkLettersCopied by id.
func (l *Letters) MarkLettersCopied(ctx context.Context, ids []uint64) error {
	return l.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE pushmesh.dead_letter SET copied = true WHERE id = ANY($1) AND NOT copied`, signed(ids))
		return err
	})
}

func signed(ids []uint64) []int64 {
	which := make([]int64, len(ids))
	for i, id := range ids {
		which[i] = int64(id)
	}
	return which
}

// literalPrefix is what every topic that matches begins with.
func literalPrefix(filter string) string {
	if i := strings.IndexAny(filter, "+#"); i >= 0 {
		return strings.TrimSuffix(filter[:i], "/") // "a/#" matches "a" as well
	}
	return filter
}

func scanLetter(row pgx.CollectableRow) (*meshv1.DeadLetter, error) {
	var id, epoch, seq, at int64
	var reason, attempts int32
	l := &meshv1.DeadLetter{}
	err := row.Scan(&id, &l.Topic, &epoch, &seq, &l.Body, &reason, &attempts, &l.User, &l.Session, &at)
	l.Id, l.Epoch, l.Seq, l.At = uint64(id), uint64(epoch), uint64(seq), uint64(at)
	l.Reason, l.Attempts = wirev1.Code(reason), uint32(attempts)
	return l, err
}

// DiscardDeadLetters deletes by id.
func (l *Letters) DiscardDeadLetters(ctx context.Context, ids []uint64) (n int, err error) {
	err = l.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM pushmesh.dead_letter WHERE id = ANY($1)`, signed(ids))
		n = int(tag.RowsAffected())
		return err
	})
	return n, err
}

var _ backend.DeadLetters = (*Letters)(nil)
