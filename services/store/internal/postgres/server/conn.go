package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
)

// Conn is a connection beside the pool, whose backend is recorded as one of a store's: fencing the
// store ends it. It has one user at a time. End or Lose gives it up.
type Conn struct {
	*pgx.Conn
	server  *Server
	process process
	at      string // which server, by Trust
}

// Connect makes a connection beside the pool; params are settings of its session.
func (s *Server) Connect(ctx context.Context, name string, params map[string]string) (*Conn, error) {
	cfg := s.fresh()
	maps.Copy(cfg.RuntimeParams, params)
	cfg.RuntimeParams["application_name"] = name
	conn, err := pgx.ConnectConfig(ctx, s.session(cfg))
	if err != nil {
		return nil, fmt.Errorf("postgres: connect: %w", err)
	}
	return &Conn{Conn: conn, server: s}, nil
}

// LockTimeout bounds how long the statements of a session wait for a lock.
func LockTimeout(d time.Duration) map[string]string {
	return map[string]string{"lock_timeout": strconv.FormatInt(d.Milliseconds(), 10)}
}

// Writing describes a connection of somebody who changes what a store owns.
type Writing struct {
	Name  string
	Owner backend.Owner
	// Lock is how long a statement waits for a lock.
	Lock time.Duration
	// Also queues what is done together with the record.
	Also func(c *Conn, b *pgx.Batch)
	// Statements are prepared, by name.
	Statements map[string]string
}

// OpenWriting makes a connection, through the gate, and records which backend serves it. Own makes
// it somebody's.
func (s *Server) OpenWriting(ctx context.Context, w Writing) (*Conn, error) {
	ticket, err := s.Gate.Try()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	c, err := s.openWriting(ctx, w)
	outcome := s.outcomeOf(ctx, err, time.Since(began))
	ticket.Leave(outcome)
	if outcome == dbgate.Failed {
		err = unavailable(err)
	}
	return c, err
}

func (s *Server) openWriting(ctx context.Context, w Writing) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.Config.Patience)
	defer cancel()
	c, err := s.Connect(ctx, w.Name, LockTimeout(w.Lock))
	if err != nil {
		return nil, err
	}
	if err := c.begin(ctx, w); err != nil {
		_ = c.Conn.Close(ctx)
		return nil, err
	}
	return c, nil
}

// begin checks the server (another one may answer than at the start), ends what is left of
// connections that this store lost, records this one, and forgets the records of those that are
// gone.
func (c *Conn) begin(ctx context.Context, w Writing) error {
	if err := c.Trust(ctx); err != nil {
		return err
	}
	if err := c.server.endRemains(ctx, c.Conn); err != nil {
		return err
	}
	var b pgx.Batch
	c.Record(&b, w.Owner)
	if w.Also != nil {
		w.Also(c, &b)
	}
	if err := c.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("postgres: record %s: %w", w.Name, err)
	}
	if err := c.prepare(ctx, w.Statements); err != nil {
		return fmt.Errorf("postgres: prepare: %w", err)
	}
	return nil
}

// Trust fails where the server would lose what is acknowledged, or has.
func (c *Conn) Trust(ctx context.Context) (err error) {
	if c.process, err = c.server.sound(ctx, c.Conn); err != nil {
		return err
	}
	c.at, err = c.server.familiar(ctx, c.Conn)
	return err
}

// At names the server that Trust found, and its timeline: one that is promoted or restored to an
// earlier moment has another name.
func (c *Conn) At() string { return c.at }

// Identify sets which backend serves the connection, where Trust did not.
func (c *Conn) Identify(pid int32, start time.Time) { c.process = process{pid: pid, start: start} }

// Backend is which process of the server serves the connection, and when that began.
func (c *Conn) Backend() (pid int32, start time.Time) { return c.process.pid, c.process.start }

// Record makes the connection's backend one of a store's, which fencing the store ends, and forgets
// the records of those that are gone.
func (c *Conn) Record(b *pgx.Batch, owner backend.Owner) {
	b.Queue(`DELETE FROM pushmesh.writer AS w WHERE NOT EXISTS (
		SELECT FROM pg_stat_activity AS a WHERE ` + SameBackend + `)`)
	c.RecordOnly(b, owner)
}

// RecordOnly replaces what is recorded of the connection's backend: behind a pooler it may have
// been that of a store that died, and is marked as long as it is this session's.
func (c *Conn) RecordOnly(b *pgx.Batch, owner backend.Owner) {
	if c.PgConn().PID() != uint32(c.process.pid) { // somebody else answers for the server
		c.process.mark = 1 + rand.Uint32N(math.MaxInt32)
		b.Queue(`SELECT pg_advisory_lock_shared($1, $2)`, int32(markClass), int32(c.process.mark))
	}
	b.Queue(`INSERT INTO pushmesh.writer (pid, backend_start, store_id, incarnation) VALUES ($1, $2, $3, $4)
		ON CONFLICT (pid, backend_start) DO UPDATE SET store_id = excluded.store_id, incarnation = excluded.incarnation`,
		c.process.pid, c.process.start, owner.StoreID, int64(owner.Incarnation))
}

// prepare has the server know statements by name, in one round trip.
func (c *Conn) prepare(ctx context.Context, statements map[string]string) (err error) {
	p := c.PgConn().StartPipeline(ctx)
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

// Own has the server's Close end the user of the connection.
func (c *Conn) Own(ctx context.Context, user io.Closer) error {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.Join(errors.New("postgres: closed"), c.Conn.Close(ctx))
	}
	s.open[c] = user
	return nil
}

// Lose closes the connection at once, without a word to a server that may hang. Its backend may
// live on for a while, with locks: the next one of this store ends it.
func (c *Conn) Lose() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Conn.Close(ctx)
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	s.remains = append(s.remains, c.process)
}

// End closes the connection and forgets the record of its backend, after before, which may be nil.
// That the server is gone is no error: with it went what the connection had.
func (c *Conn) End(before func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.server.Config.Patience)
	defer cancel()
	c.server.mu.Lock()
	delete(c.server.open, c)
	c.server.mu.Unlock()
	var err error
	if !c.IsClosed() {
		if before != nil {
			err = before(ctx)
		}
		if err == nil {
			_, err = c.Exec(ctx, `DELETE FROM pushmesh.writer WHERE pid = $1 AND backend_start = $2`, c.process.pid, c.process.start)
		}
	}
	closeErr := c.Conn.Close(ctx)
	for _, e := range []error{err, closeErr} {
		if e != nil && !Unreachable(e) {
			return e
		}
	}
	return nil
}

// markClass is the first key of the advisory lock that a session behind a pooler has; the second is
// its mark.
const markClass = 0x7075736c

// endWithin is how long a new connection waits for the end of a lost one.
const endWithin = 500 * time.Millisecond

// endRemains terminates backends that this process lost: their connections are closed on our side,
// but a server that hung or a network that went away may not know yet. A pooler that knows has
// reset the backend, and may have given it to anybody, conn included: the mark went with the
// session.
func (s *Server) endRemains(ctx context.Context, conn *pgx.Conn) error {
	s.mu.Lock()
	remains := slices.Clone(s.remains)
	s.mu.Unlock()
	for _, p := range remains {
		rows, err := conn.Query(ctx, `
			SELECT pg_terminate_backend(a.pid, $3) FROM pg_stat_activity AS a WHERE a.pid = $1 AND a.backend_start = $2
			AND ($4 = 0::oid OR EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.classid = $5 AND l.objid = $4 AND l.objsubid = 2))`,
			p.pid, p.start, endWithin.Milliseconds(), p.mark, uint32(markClass))
		if err != nil {
			return fmt.Errorf("postgres: end a lost connection: %w", err)
		}
		ended, err := pgx.CollectRows(rows, pgx.RowTo[bool])
		if err != nil {
			return fmt.Errorf("postgres: end a lost connection: %w", err)
		}
		if slices.Contains(ended, false) { // the next one tries again
			continue
		}
		s.mu.Lock()
		s.remains = slices.DeleteFunc(s.remains, func(q process) bool { return q == p })
		s.mu.Unlock()
	}
	return nil
}
