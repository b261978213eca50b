package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// idleBeforeCheck is how long a connection is trusted without having answered.
const idleBeforeCheck = time.Second

// noPartition is check_violation: what an insert says that finds no slice for its time.
const noPartition = "23514"

// insertRuns holds the statement of each class.
var insertRuns = func() (sql [backend.Classes]string) {
	for c := range backend.Classes {
		sql[c] = `INSERT INTO pushmesh.log_` + c.String() + ` (shard, commit, topic, epoch, first_seq, last_seq, at, packed)
			SELECT * FROM unnest($1::int[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[])`
	}
	return sql
}()

// insertKeys holds the statement of each class of keys.
var insertKeys = func() (sql [backend.KeyClasses]string) {
	for c := range backend.KeyClasses {
		sql[c] = `INSERT INTO pushmesh.key_` + c.String() + ` (shard, hash, message_id, epoch, seq, published_at, until)
			SELECT * FROM unnest($1::int[], $2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])`
	}
	return sql
}()

const (
	insertMarks = `INSERT INTO pushmesh.mark (shard, commit, topic, producer, producer_seq, epoch, seq, at)
		SELECT * FROM unnest($1::int[], $2::bigint[], $3::text[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])`
	insertBatch = `INSERT INTO pushmesh.batch (id, at) VALUES ($1, $2)`
)

// Commit sends the whole transaction at once and waits for its end: one round trip, whatever the batch holds.
func (w *writer) Commit(ctx context.Context, b *backend.Batch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.commit(ctx, b)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && errors.Is(err, backend.ErrNotCommitted) && pg.Code == noPartition {
		if err := w.db.slicesFor(ctx, b); err != nil {
			return fmt.Errorf("%w: %w", backend.ErrNotCommitted, err)
		}
		return w.commit(ctx, b)
	}
	return err
}

func (w *writer) commit(ctx context.Context, b *backend.Batch) error {
	if err := w.usable(); err != nil {
		return err
	}
	for _, c := range b.Commits {
		if err := w.requires(c.Shard); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrNotCommitted, err)
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := w.alive(ctx); err != nil {
		return err
	}
	err := w.send(ctx, b)
	if err == nil {
		w.used = time.Now()
		return nil
	}
	// The COMMIT went out with the rest, so the server may have done it unless it said otherwise, on a connection that
	// still stands: an error of severity ERROR ends the transaction.
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Severity == "ERROR" && !w.conn.IsClosed() {
		if _, rollbackErr := w.conn.Exec(ctx, "ROLLBACK"); rollbackErr != nil {
			w.lose()
			return fmt.Errorf("%w: postgres: %w", backend.ErrUnknown, errors.Join(err, rollbackErr))
		}
		return fmt.Errorf("%w: postgres: %w", backend.ErrNotCommitted, err)
	}
	sent := !pgconn.SafeToRetry(err)
	w.lose()
	if !sent {
		return fmt.Errorf("%w: postgres: %w", backend.ErrLost, err)
	}
	return fmt.Errorf("%w: postgres: %w", backend.ErrUnknown, err)
}

// alive asks a connection that has been idle for a while whether it still stands: a write to one that broke meanwhile would seem to
// succeed, and the outcome be unknown.
func (w *writer) alive(ctx context.Context) error {
	if time.Since(w.used) < idleBeforeCheck {
		return nil
	}
	if err := w.conn.Ping(ctx); err != nil {
		w.lose()
		return fmt.Errorf("%w: postgres: %w", backend.ErrLost, err)
	}
	return nil
}

func (w *writer) send(ctx context.Context, b *backend.Batch) error {
	var q pgx.Batch
	q.Queue("BEGIN")
	queueRuns(&q, b.Runs)
	queueKeys(&q, b.Keys)
	queueMarks(&q, b.Marks)
	q.Queue(insertBatch, [16]byte(b.ID), int64(b.At))
	q.Queue("COMMIT")
	results := w.conn.SendBatch(ctx, &q)
	var tag pgconn.CommandTag
	var err error
	for range q.Len() {
		if tag, err = results.Exec(); err != nil {
			break
		}
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err == nil && tag.String() != "COMMIT" {
		return &pgconn.PgError{Severity: "ERROR", Code: "25P02", Message: "the server rolled back: " + tag.String()}
	}
	return err
}

func queueRuns(q *pgx.Batch, runs []backend.Run) {
	var of [backend.Classes]int
	for i := range runs {
		of[runs[i].Class]++
	}
	for class, n := range of {
		if n == 0 {
			continue
		}
		shards, commits, topics, epochs := make([]int32, 0, n), make([]int64, 0, n), make([]string, 0, n), make([]int64, 0, n)
		firsts, lasts, ats, packed := make([]int64, 0, n), make([]int64, 0, n), make([]int64, 0, n), make([][]byte, 0, n)
		for i := range runs {
			r := &runs[i]
			if int(r.Class) != class {
				continue
			}
			shards, commits, topics, epochs = append(shards, int32(r.Shard)), append(commits, int64(r.Commit)), append(topics, r.Topic), append(epochs, int64(r.Epoch))
			firsts, lasts, ats, packed = append(firsts, int64(r.First)), append(lasts, int64(r.Last())), append(ats, int64(r.At)), append(packed, r.Packed)
		}
		q.Queue(insertRuns[class], shards, commits, topics, epochs, firsts, lasts, ats, packed)
	}
}

func queueKeys(q *pgx.Batch, keys []backend.Key) {
	for class := range backend.KeyClasses {
		var shards []int32
		var hashes, ids [][16]byte
		var epochs, seqs, published, untils []int64
		for i := range keys {
			k := &keys[i]
			if k.Class != class {
				continue
			}
			shards, hashes, ids = append(shards, int32(k.Shard)), append(hashes, k.Hash), append(ids, k.MessageID)
			epochs, seqs = append(epochs, int64(k.Epoch)), append(seqs, int64(k.Seq))
			published, untils = append(published, int64(k.PublishedAt)), append(untils, int64(k.Until))
		}
		if len(shards) > 0 {
			q.Queue(insertKeys[class], shards, hashes, ids, epochs, seqs, published, untils)
		}
	}
}

func queueMarks(q *pgx.Batch, marks []backend.Mark) {
	if len(marks) == 0 {
		return
	}
	commits := make([]int64, len(marks))
	producers := make([]backend.Producer, len(marks))
	for i, m := range marks {
		commits[i], producers[i] = int64(m.Commit), m.Producer
	}
	c := producerColumns(producers)
	q.Queue(insertMarks, c.shards, commits, c.topics, c.ids, c.numbers, c.epochs, c.seqs, c.ats)
}

// Committed looks for the batch's id.
func (w *writer) Committed(ctx context.Context, id backend.BatchID) (yes bool, err error) {
	err = w.use(ctx, statementTimeout, func(ctx context.Context) error {
		return w.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pushmesh.batch WHERE id = $1)`, [16]byte(id)).Scan(&yes)
	})
	return yes, err
}
