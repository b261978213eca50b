package log

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/partition"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// idleBeforeCheck is how long a connection is trusted without having answered.
const idleBeforeCheck = time.Second

// Statements that a writer prepares when it begins: a commit is nothing but these.
const (
	insertBatch     = "insert_batch"
	insertMarks     = "insert_marks"
	insertRuns      = "insert_log_"
	insertRun       = "insert_one_"
	insertScheduled = "insert_scheduled"
	deleteScheduled = "delete_scheduled"
	deleteLetters   = "delete_letters"
	markLetters     = "mark_letters"
	insertKeys      = "insert_key_"
	putKept         = "put_kept"
	deleteKept      = "delete_kept"
)

// prepared are the writer's statements by name. Arrays go down in one message and become rows
// there.
var prepared = func() map[string]string {
	sql := map[string]string{
		insertBatch: server.InsertBatch,
		insertMarks: `INSERT INTO pushmesh.mark (shard, commit, topic, producer, producer_seq, epoch, seq, at)
			SELECT * FROM unnest($1::int[], $2::bigint[], $3::text[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])`,
		insertScheduled: `INSERT INTO pushmesh.scheduled (due, published_at, ttl, message_id, shard, topic, traceparent, body)
			SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::uuid[], $5::int[], $6::text[], $7::text[], $8::bytea[])`,
		deleteScheduled: `DELETE FROM pushmesh.scheduled AS s USING unnest($1::bigint[], $2::uuid[]) AS gone (due, message_id)
			WHERE s.due = gone.due AND s.message_id = gone.message_id AND s.due BETWEEN $3 AND $4`,
		putKept:       putKeptSQL,
		deleteKept:    deleteKeptSQL,
		deleteLetters: `DELETE FROM pushmesh.dead_letter WHERE id = ANY($1::bigint[])`,
		// A letter that somebody is removing is let be: an append never waits for that, and where
		// it stays after all it is marked later.
		markLetters: `UPDATE pushmesh.dead_letter SET copied = true WHERE id IN (
			SELECT id FROM pushmesh.dead_letter WHERE id = ANY($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED)`,
	}
	for c := range backend.Classes {
		sql[insertRuns+c.String()] = `INSERT INTO pushmesh.log_` + c.String() + ` (shard, commit, topic, epoch, first_seq, last_seq, at, packed)
			SELECT * FROM unnest($1::int[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[])`
		// A batch of one run and nothing else: one statement without arrays takes the server two
		// thirds of the time.
		sql[insertRun+c.String()] = `WITH named AS (INSERT INTO pushmesh.batch (id, at) VALUES ($9, $10))
			INSERT INTO pushmesh.log_` + c.String() + ` (shard, commit, topic, epoch, first_seq, last_seq, at, packed)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
	}
	for c := range backend.KeyClasses {
		sql[insertKeys+c.String()] = `INSERT INTO pushmesh.key_` + c.String() + ` (shard, hash, message_id, epoch, seq, published_at, until)
			SELECT * FROM unnest($1::int[], $2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])`
	}
	return sql
}()

// Commit sends the whole transaction at once and waits for its end: one round trip, whatever the
// batch holds.
func (w *Writer) Commit(ctx context.Context, b *backend.Batch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.commit(ctx, b)
	for tries := 0; err != nil && errors.Is(err, backend.ErrNotCommitted); tries++ {
		switch {
		case partition.NoPartition(err) && tries == 0:
			if err := w.log.partitions.MakeFor(ctx, b); err != nil {
				return fmt.Errorf("%w: %w", backend.ErrNotCommitted, err)
			}
		case server.Transient(err) && tries < server.MaxRetries:
			if !server.Pause(ctx, tries) {
				return err
			}
		default:
			return err
		}
		err = w.commit(ctx, b)
	}
	return err
}

func (w *Writer) commit(ctx context.Context, b *backend.Batch) error {
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
	ctx, cancel := context.WithTimeout(ctx, w.log.server.Config.Patience)
	defer cancel()
	if err := w.alive(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := w.Conn.Pipelined(ctx, w.log.server.Config.Patience, func(p *pgconn.Pipeline) { w.write(p, b) }, nil)
	w.log.server.NoteWrite(ctx, err, time.Since(began))
	if err == nil {
		w.used = time.Now()
		return nil
	}
	// All of it went out at once, so the server may have committed unless it said otherwise, on a
	// connection that still stands: an error of severity ERROR ends the transaction.
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Severity == "ERROR" && !w.Conn.IsClosed() && w.Conn.PgConn().TxStatus() == idle {
		return fmt.Errorf("%w: postgres: %w", backend.ErrNotCommitted, err)
	}
	sent := !pgconn.SafeToRetry(err)
	w.markLost()
	if !sent {
		return fmt.Errorf("%w: postgres: %w", backend.ErrLost, err)
	}
	return fmt.Errorf("%w: postgres: %w", backend.ErrUnknown, err)
}

// alive asks a connection that has been idle for a while whether it still stands: a write to one
// that broke meanwhile would seem to succeed, and the outcome be unknown.
func (w *Writer) alive(ctx context.Context) error {
	if time.Since(w.used) < idleBeforeCheck {
		return nil
	}
	began := time.Now()
	if err := w.Conn.Ping(ctx); err != nil {
		w.log.server.NoteWrite(ctx, err, time.Since(began))
		w.markLost()
		return fmt.Errorf("%w: postgres: %w", backend.ErrLost, err)
	}
	return nil
}

// idle is what the server says of a connection without a transaction.
const idle = 'I'

// write sends the statements of a batch.
func (w *Writer) write(p *pgconn.Pipeline, b *backend.Batch) {
	execute := func(statement string, params ...[]byte) {
		p.SendQueryPrepared(statement, params, server.BinaryForm, nil)
	}
	if lone(b) {
		execute(insertRun+b.Runs[0].Class.String(), w.run(b)...)
		return
	}
	for class, runs := range byClass(b.Runs, int(backend.Classes), func(r *backend.Run) int { return int(r.Class) }) {
		if len(runs) > 0 {
			execute(insertRuns+backend.Class(class).String(), w.runs(runs)...)
		}
	}
	for class, keys := range byClass(b.Keys, int(backend.KeyClasses), func(k *backend.Key) int { return int(k.Class) }) {
		if len(keys) > 0 {
			execute(insertKeys+backend.KeyClass(class).String(), w.keys(keys)...)
		}
	}
	if len(b.Marks) > 0 {
		execute(insertMarks, w.marks(b.Marks)...)
	}
	if len(b.Scheduled) > 0 {
		execute(insertScheduled, w.scheduled(b.Scheduled)...)
	}
	if len(b.Removed) > 0 {
		execute(deleteScheduled, w.removed(b.Removed)...)
	}
	if len(b.Kept) > 0 {
		execute(putKept, w.kept(b.Kept)...)
	}
	if len(b.Unkept) > 0 {
		execute(deleteKept, w.unkept(b.Unkept)...)
	}
	if len(b.Letters) > 0 {
		execute(deleteLetters, w.letters(b.Letters)...)
	}
	if len(b.Copied) > 0 {
		execute(markLetters, w.letters(b.Copied)...)
	}
	execute(insertBatch, b.ID[:], binary.BigEndian.AppendUint64(nil, b.At))
}

// lone reports whether a batch is one run and nothing else, as when messages come one at a time.
func lone(b *backend.Batch) bool {
	return len(b.Runs) == 1 && len(b.Keys)+len(b.Marks)+len(b.Scheduled)+len(b.Removed)+len(b.Letters)+len(b.Copied)+len(b.Kept)+len(b.Unkept) == 0
}

// run is the parameters of a lone run and its batch's name.
func (w *Writer) run(b *backend.Batch) [][]byte {
	r := &b.Runs[0]
	int8 := func(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }
	return [][]byte{
		binary.BigEndian.AppendUint32(nil, uint32(r.Shard)), int8(r.Commit), []byte(r.Topic), int8(r.Epoch), int8(r.First), int8(r.Last()), int8(r.At), r.Packed,
		b.ID[:], int8(b.At),
	}
}

// byClass sorts rows by the table that they go to. Most batches have one.
func byClass[E any](all []E, classes int, class func(*E) int) [][]E {
	of := make([][]E, classes)
	for i := range all {
		if class(&all[i]) != class(&all[0]) {
			for i := range all {
				c := class(&all[i])
				of[c] = append(of[c], all[i])
			}
			return of
		}
	}
	if len(all) > 0 {
		of[class(&all[0])] = all
	}
	return of
}

func (w *Writer) runs(all []backend.Run) [][]byte {
	a := &w.arrays
	a.Reset()
	server.Column(a, server.OIDInt4, all, func(a *server.Arrays, r *backend.Run) { a.Int4(r.Shard) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, r *backend.Run) { a.Int8(r.Commit) })
	server.Column(a, server.OIDText, all, func(a *server.Arrays, r *backend.Run) { a.Text(r.Topic) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, r *backend.Run) { a.Int8(r.Epoch) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, r *backend.Run) { a.Int8(r.First) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, r *backend.Run) { a.Int8(r.Last()) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, r *backend.Run) { a.Int8(r.At) })
	server.Column(a, server.OIDBytes, all, func(a *server.Arrays, r *backend.Run) { a.Bytes(r.Packed) })
	return a.Params()
}

func (w *Writer) keys(all []backend.Key) [][]byte {
	a := &w.arrays
	a.Reset()
	server.Column(a, server.OIDInt4, all, func(a *server.Arrays, k *backend.Key) { a.Int4(k.Shard) })
	server.Column(a, server.OIDUUID, all, func(a *server.Arrays, k *backend.Key) { a.Bytes(k.Hash[:]) })
	server.Column(a, server.OIDUUID, all, func(a *server.Arrays, k *backend.Key) { a.Bytes(k.MessageID[:]) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, k *backend.Key) { a.Int8(k.Epoch) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, k *backend.Key) { a.Int8(k.Seq) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, k *backend.Key) { a.Int8(k.PublishedAt) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, k *backend.Key) { a.Int8(k.Until) })
	return a.Params()
}

func (w *Writer) marks(all []backend.Mark) [][]byte {
	a := &w.arrays
	a.Reset()
	server.Column(a, server.OIDInt4, all, func(a *server.Arrays, m *backend.Mark) { a.Int4(m.Shard) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, m *backend.Mark) { a.Int8(m.Commit) })
	server.Column(a, server.OIDText, all, func(a *server.Arrays, m *backend.Mark) { a.Text(m.Topic) })
	server.Column(a, server.OIDUUID, all, func(a *server.Arrays, m *backend.Mark) { a.Bytes(m.ID[:]) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, m *backend.Mark) { a.Int8(m.ProducerSeq) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, m *backend.Mark) { a.Int8(m.Epoch) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, m *backend.Mark) { a.Int8(m.Seq) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, m *backend.Mark) { a.Int8(m.At) })
	return a.Params()
}

// letters are the ids of those that a batch publishes again, or copies.
func (w *Writer) letters(ids []uint64) [][]byte {
	a := &w.arrays
	a.Reset()
	server.Column(a, server.OIDInt8, ids, func(a *server.Arrays, id *uint64) { a.Int8(*id) })
	return a.Params()
}

// Committed looks for the batch's id.
func (w *Writer) Committed(ctx context.Context, id backend.BatchID) (yes bool, err error) {
	err = w.use(ctx, w.log.server.Config.Patience, func(ctx context.Context) error {
		return w.Conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pushmesh.batch WHERE id = $1)`, [16]byte(id)).Scan(&yes)
	})
	return yes, err
}
