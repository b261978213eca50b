package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// idleBeforeCheck is how long a connection is trusted without having answered.
const idleBeforeCheck = time.Second

// noPartition is check_violation: what an insert says that finds no slice for its time.
const noPartition = "23514"

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
)

// prepared are the writer's statements by name. Arrays go down in one message and become rows
// there.
var prepared = func() map[string]string {
	sql := map[string]string{
		insertBatch: `INSERT INTO pushmesh.batch (id, at) VALUES ($1, $2)`,
		insertMarks: `INSERT INTO pushmesh.mark (shard, commit, topic, producer, producer_seq, epoch, seq, at)
			SELECT * FROM unnest($1::int[], $2::bigint[], $3::text[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])`,
		insertScheduled: `INSERT INTO pushmesh.scheduled (due, published_at, ttl, message_id, shard, topic, traceparent, body)
			SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::uuid[], $5::int[], $6::text[], $7::text[], $8::bytea[])`,
		deleteScheduled: `DELETE FROM pushmesh.scheduled AS s USING unnest($1::bigint[], $2::uuid[]) AS gone (due, message_id)
			WHERE s.due = gone.due AND s.message_id = gone.message_id AND s.due BETWEEN $3 AND $4`,
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

// prepare has the server know statements by name, in one round trip.
func prepare(ctx context.Context, conn *pgx.Conn, statements map[string]string) (err error) {
	p := conn.PgConn().StartPipeline(ctx)
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		// in one order, so that a test can name what is sent
		p.SendPrepare(name, statements[name], nil)
	}
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	for range statements {
		if _, e := p.GetResults(); e != nil && err == nil {
			err = e
		}
	}
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	return err
}

// Commit sends the whole transaction at once and waits for its end: one round trip, whatever the
// batch holds.
func (w *writer) Commit(ctx context.Context, b *backend.Batch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.commit(ctx, b)
	for tries := 0; err != nil && errors.Is(err, backend.ErrNotCommitted); tries++ {
		switch {
		case pgCode(err) == noPartition && tries == 0:
			if err := w.db.slicesFor(ctx, b); err != nil {
				return fmt.Errorf("%w: %w", backend.ErrNotCommitted, err)
			}
		case transient(err) && tries < maxRetries:
			if !pause(ctx, tries) {
				return err
			}
		default:
			return err
		}
		err = w.commit(ctx, b)
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
	ctx, cancel := context.WithTimeout(ctx, w.db.cfg.Patience)
	defer cancel()
	if err := w.alive(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := w.send(ctx, b)
	w.db.noted(ctx, err, time.Since(began))
	if err == nil {
		w.used = time.Now()
		return nil
	}
	// All of it went out at once, so the server may have committed unless it said otherwise, on a
	// connection that still stands: an error of severity ERROR ends the transaction.
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Severity == "ERROR" && !w.conn.IsClosed() && w.conn.PgConn().TxStatus() == idle {
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
func (w *writer) alive(ctx context.Context) error {
	if time.Since(w.used) < idleBeforeCheck {
		return nil
	}
	began := time.Now()
	if err := w.conn.Ping(ctx); err != nil {
		w.db.noted(ctx, err, time.Since(began))
		w.markLost()
		return fmt.Errorf("%w: postgres: %w", backend.ErrLost, err)
	}
	return nil
}

// idle is what the server says of a connection without a transaction.
const idle = 'I'

// send has one transaction executed. It returns once the server has said what became of it.
//
// Everything before a Sync is one transaction, which the server commits when it reaches that: no
// BEGIN and no COMMIT are needed, and the answer to the Sync is the answer to the commit. ctx ends
// it by the connection's deadline: a commit under way is given up for its time alone, and pgx would
// otherwise start a goroutine to wait for that each time.
func (w *writer) send(ctx context.Context, b *backend.Batch) error {
	raw := w.conn.PgConn().Conn()
	if deadline, ok := ctx.Deadline(); ok {
		if err := raw.SetDeadline(deadline); err != nil {
			return err
		}
		// one that can't be set is closed, and the next use says so
		defer func() { _ = raw.SetDeadline(time.Time{}) }()
	}
	p := w.conn.PgConn().StartPipeline(context.Background())
	w.write(p, b)
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	committed, err := outcome(p)
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	if err == nil && !committed {
		return errors.New("the server did not answer the commit")
	}
	return err
}

// outcome reads answers up to the one to the Sync, or the first that is an error.
func outcome(p *pgconn.Pipeline) (committed bool, err error) {
	for {
		results, err := p.GetResults()
		if err != nil {
			return false, err
		}
		switch r := results.(type) {
		case *pgconn.ResultReader:
			if _, err := r.Close(); err != nil {
				return false, err
			}
		case *pgconn.PipelineSync:
			return true, nil
		default:
			return false, nil
		}
	}
}

// binaryForm says that every parameter is in binary form.
var binaryForm = []int16{1}

// write sends the statements of a batch.
func (w *writer) write(p *pgconn.Pipeline, b *backend.Batch) {
	execute := func(statement string, params ...[]byte) {
		p.SendQueryPrepared(statement, params, binaryForm, nil)
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
	return len(b.Runs) == 1 && len(b.Keys)+len(b.Marks)+len(b.Scheduled)+len(b.Removed)+len(b.Letters)+len(b.Copied) == 0
}

// run is the parameters of a lone run and its batch's name.
func (w *writer) run(b *backend.Batch) [][]byte {
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

func (w *writer) runs(all []backend.Run) [][]byte {
	a := &w.arrays
	a.reset()
	column(a, oidInt4, all, func(a *arrays, r *backend.Run) { a.int4(r.Shard) })
	column(a, oidInt8, all, func(a *arrays, r *backend.Run) { a.int8(r.Commit) })
	column(a, oidText, all, func(a *arrays, r *backend.Run) { a.text(r.Topic) })
	column(a, oidInt8, all, func(a *arrays, r *backend.Run) { a.int8(r.Epoch) })
	column(a, oidInt8, all, func(a *arrays, r *backend.Run) { a.int8(r.First) })
	column(a, oidInt8, all, func(a *arrays, r *backend.Run) { a.int8(r.Last()) })
	column(a, oidInt8, all, func(a *arrays, r *backend.Run) { a.int8(r.At) })
	column(a, oidBytes, all, func(a *arrays, r *backend.Run) { a.bytes(r.Packed) })
	return a.params()
}

func (w *writer) keys(all []backend.Key) [][]byte {
	a := &w.arrays
	a.reset()
	column(a, oidInt4, all, func(a *arrays, k *backend.Key) { a.int4(k.Shard) })
	column(a, oidUUID, all, func(a *arrays, k *backend.Key) { a.bytes(k.Hash[:]) })
	column(a, oidUUID, all, func(a *arrays, k *backend.Key) { a.bytes(k.MessageID[:]) })
	column(a, oidInt8, all, func(a *arrays, k *backend.Key) { a.int8(k.Epoch) })
	column(a, oidInt8, all, func(a *arrays, k *backend.Key) { a.int8(k.Seq) })
	column(a, oidInt8, all, func(a *arrays, k *backend.Key) { a.int8(k.PublishedAt) })
	column(a, oidInt8, all, func(a *arrays, k *backend.Key) { a.int8(k.Until) })
	return a.params()
}

func (w *writer) marks(all []backend.Mark) [][]byte {
	a := &w.arrays
	a.reset()
	column(a, oidInt4, all, func(a *arrays, m *backend.Mark) { a.int4(m.Shard) })
	column(a, oidInt8, all, func(a *arrays, m *backend.Mark) { a.int8(m.Commit) })
	column(a, oidText, all, func(a *arrays, m *backend.Mark) { a.text(m.Topic) })
	column(a, oidUUID, all, func(a *arrays, m *backend.Mark) { a.bytes(m.ID[:]) })
	column(a, oidInt8, all, func(a *arrays, m *backend.Mark) { a.int8(m.ProducerSeq) })
	column(a, oidInt8, all, func(a *arrays, m *backend.Mark) { a.int8(m.Epoch) })
	column(a, oidInt8, all, func(a *arrays, m *backend.Mark) { a.int8(m.Seq) })
	column(a, oidInt8, all, func(a *arrays, m *backend.Mark) { a.int8(m.At) })
	return a.params()
}

// Committed looks for the batch's id.
func (w *writer) Committed(ctx context.Context, id backend.BatchID) (yes bool, err error) {
	err = w.use(ctx, w.db.cfg.Patience, func(ctx context.Context) error {
		return w.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pushmesh.batch WHERE id = $1)`, [16]byte(id)).Scan(&yes)
	})
	return yes, err
}
