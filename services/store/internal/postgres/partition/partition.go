// Package partition keeps the tables that lie in slices, by time or by id: it makes partitions
// ahead, and drops those that nothing needs any more.
package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// sliceLock is the first key of the advisory locks around slices: one store makes them at a time,
// one drops.
const (
	sliceLock = 0x70757369
	making    = 0
	dropping  = 1 // further ones: appended
)

// Batch ids are kept for an hour, in slices of half an hour.
const (
	batchWidth = 30 * time.Minute
	batchKeep  = time.Hour
)

// scheduledKeep is long after the last insert into a slice of scheduled messages: that comes before
// they are due.
const scheduledKeep = time.Hour

// Partitions of a database.
type Partitions struct {
	server *server.Server

	mu     sync.Mutex
	held   map[string]int // by reason, at the last round of drops
	heldAt time.Time
}

// New does nothing yet.
func New(s *server.Server) *Partitions { return &Partitions{server: s} }

// Why a slice that is over is still there.
const (
	// HeldByReader says that a transaction uses the table, or has it to itself.
	HeldByReader = "reader"
	// HeldByLateMessages says that scheduled messages which are due are in it: their shards have no
	// owner.
	HeldByLateMessages = "late_messages"
	// HeldBehind says that another slice of its table could not be taken out before it.
	HeldBehind = "behind"
)

// Held is how many slices that are over the last round of this store could not drop, by reason, and
// when that was.
func (p *Partitions) Held() (held map[string]int, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.held), p.heldAt
}

// slice is one partition: [Start, End) of a table.
type slice struct {
	table string
	backend.Slice
}

// name of the partition says its table and its start.
func (s slice) name() string { return s.table + "_" + strconv.FormatUint(s.Start, 10) }

func batchSlice(at uint64) backend.Slice {
	w := uint64(batchWidth.Microseconds())
	return backend.Slice{Start: at - at%w, End: at - at%w + w}
}

// MakeSlices makes what commits need now and until one width later.
func (p *Partitions) MakeSlices(ctx context.Context, now uint64) error {
	var want []slice
	add := func(table string, from, to backend.Slice) {
		for ; from.Start <= to.Start; from = from.Next() {
			want = append(want, slice{table, from})
		}
	}
	for c := range backend.Classes {
		this := c.Slice(now)
		add("log_"+c.String(), this, this.Next())
	}
	for c := range backend.KeyClasses {
		add("key_"+c.String(), c.Slice(now), c.Reach(now).Next())
	}
	this := batchSlice(now)
	add("batch", this, this.Next())
	// those further ahead when they are needed
	add("scheduled", backend.ScheduledSlice(now), backend.ScheduledSlice(now).Next())
	if err := p.make(ctx, want); err != nil {
		return err
	}
	return p.makePageSlices(ctx, p.make)
}

// MakeFor makes the slices of a batch, which came at a time for which none were made ahead.
func (p *Partitions) MakeFor(ctx context.Context, b *backend.Batch) error {
	want := []slice{{"batch", batchSlice(b.At)}}
	seen := map[string]bool{}
	add := func(s slice) {
		if !seen[s.name()] {
			seen[s.name()] = true
			want = append(want, s)
		}
	}
	for i := range b.Runs {
		add(slice{"log_" + b.Runs[i].Class.String(), b.Runs[i].Class.Slice(b.Runs[i].At)})
	}
	for i := range b.Keys {
		add(slice{"key_" + b.Keys[i].Class.String(), b.Keys[i].Class.Slice(b.Keys[i].Until)})
	}
	for i := range b.Scheduled {
		add(slice{"scheduled", backend.ScheduledSlice(b.Scheduled[i].Due)})
	}
	return p.makeOrTell(ctx, want)
}

// makeOrTell is make for a session that found none of some slices: where they are there, it did not
// learn of them.
func (p *Partitions) makeOrTell(ctx context.Context, want []slice) error {
	made, err := p.attach(ctx, want)
	if err == nil && len(made) == 0 {
		made = want
	}
	return errors.Join(err, p.tell(ctx, made))
}

// make makes those that are missing.
func (p *Partitions) make(ctx context.Context, want []slice) error {
	made, err := p.attach(ctx, want)
	return errors.Join(err, p.tell(ctx, made))
}

// tell has every session look again which slices the tables of some have, as it must once they are
// there: see tell_slices.
func (p *Partitions) tell(ctx context.Context, made []slice) error {
	var tables []string
	for _, s := range made {
		tables = append(tables, s.table)
	}
	slices.Sort(tables)
	for _, table := range slices.Compact(tables) {
		err := p.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if err := lockMaking(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `SELECT pushmesh.tell_slices($1)`, table)
			return err
		})
		if err != nil {
			return fmt.Errorf("postgres: tell of the slices of %s: %w", table, err)
		}
	}
	return nil
}

// attach makes those that are missing, each in a transaction of its own: on a slow disk all
// together may take longer than a statement may. ATTACH PARTITION lets inserts and reads go on. It
// returns those that it made, also beside an error.
func (p *Partitions) attach(ctx context.Context, want []slice) (made []slice, err error) {
	for len(want) > 0 {
		var missing []slice
		err := p.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			have, err := lockSlices(ctx, tx)
			if err != nil {
				return err
			}
			missing = slices.DeleteFunc(slices.Clone(want), func(s slice) bool { _, ok := have[s.name()]; return ok })
			if len(missing) == 0 {
				return nil
			}
			return makeSlice(ctx, tx, missing[0])
		})
		if err != nil {
			return made, err
		}
		n := min(1, len(missing))
		made, want = append(made, missing[:n]...), missing[n:]
	}
	return made, nil
}

// lockMaking keeps others from making slices until the transaction ends.
func lockMaking(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '1s'`); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1, $2)`, int32(sliceLock), int32(making)); err != nil {
		return fmt.Errorf("postgres: make slices: %w", err)
	}
	return nil
}

// lockSlices is lockMaking, and says which slices there are.
func lockSlices(ctx context.Context, tx pgx.Tx) (map[string]state, error) {
	if err := lockMaking(ctx, tx); err != nil {
		return nil, err
	}
	return partitions(ctx, tx)
}

func makeSlice(ctx context.Context, tx pgx.Tx, s slice) error {
	if _, err := tx.Exec(ctx, `SELECT pushmesh.make_slice($1, $2, $3)`, s.table, int64(s.Start), int64(s.End)); err != nil {
		return fmt.Errorf("postgres: make slice %s: %w", s.name(), err)
	}
	return nil
}

// MakeLike makes the slices that another database has for rows of shards.
func (p *Partitions) MakeLike(ctx context.Context, other server.Querier) error {
	have, err := partitions(ctx, other)
	if err != nil {
		return err
	}
	var want []slice
	for name, st := range have {
		if s, _ := over(name, 0, nil); st == attached && s.End != 0 && s.table != CursorPages.table && s.table != Checkpoints.table {
			want = append(want, s)
		}
	}
	return p.make(ctx, want)
}

// state of a partition on its way out.
type state int

const (
	attached state = iota
	detaching
	detached
)

// partitions by name.
func partitions(ctx context.Context, on server.Querier) (map[string]state, error) {
	rows, err := on.Query(ctx, `
		SELECT c.relname, coalesce(i.inhdetachpending, false), i.inhrelid IS NULL
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
		WHERE n.nspname = 'pushmesh' AND c.relkind = 'r' AND c.relname ~ '^(log_[a-z]+|key_[a-z]+|batch|scheduled|cursor_page|checkpoint)_[0-9]+$'`)
	all := map[string]state{}
	var name string
	var pending, alone bool
	err = server.Each(rows, err, []any{&name, &pending, &alone}, func() {
		switch {
		case alone:
			all[name] = detached
		case pending:
			all[name] = detaching
		default:
			all[name] = attached
		}
	})
	return all, err
}

// over finds the slice of a partition's name, and whether nothing in it is needed at now, where
// pages below voided are void.
func over(name string, now uint64, voided map[string]uint64) (s slice, yes bool) {
	i := strings.LastIndexByte(name, '_')
	at, err := strconv.ParseUint(name[i+1:], 10, 64)
	if err != nil {
		return slice{}, false
	}
	table := name[:max(i, 0)]
	s.table = table
	var keep time.Duration
	switch {
	case table == CursorPages.table || table == Checkpoints.table:
		s.Slice, now = pageSlice(at), voided[table]
	case table == "batch":
		s.Slice, keep = batchSlice(at), batchKeep
	case table == "scheduled":
		s.Slice, keep = backend.ScheduledSlice(at), scheduledKeep
	case strings.HasPrefix(table, "log_"):
		for c := range backend.Classes {
			if table == "log_"+c.String() {
				s.Slice, keep = c.Slice(at), c.Keep()
			}
		}
	default:
		for c := range backend.KeyClasses {
			if table == "key_"+c.String() {
				s.Slice = c.Slice(at)
			}
		}
	}
	return s, s.End != 0 && s.End+uint64(keep.Microseconds()) <= now
}

// dropTimeout bounds how long anything may wait for the locks of a drop.
const dropTimeout = 100 * time.Millisecond

// dropAllTimeout bounds one round of drops; the next goes on.
const dropAllTimeout = 20 * time.Second

// DropSlices takes old slices out of their tables and drops them. Whoever reads one makes it wait
// for the next call, never an append.
func (p *Partitions) DropSlices(ctx context.Context, now uint64) (dropped int, err error) {
	err = p.server.Do(ctx, func(_ context.Context, conn *pgxpool.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, dropAllTimeout)
		defer cancel()
		r := dropper{conn: conn.Conn(), owner: p.server.Owns(), now: now, blocked: map[string]bool{}, late: map[string]bool{}, held: map[string]string{}}
		done, err := r.dropSlices(ctx)
		dropped = r.dropped
		if done {
			p.noteHeld(ctx, &r)
		}
		return err
	})
	return dropped, err
}

// noteHeld keeps what a whole round could not drop, and names in the log who is in the way, where
// that is new.
func (p *Partitions) noteHeld(ctx context.Context, r *dropper) {
	held := map[string]int{}
	tables := map[string]bool{}
	for name, reason := range r.held {
		held[reason]++
		if reason == HeldByReader {
			s, _ := over(name, 0, nil)
			tables[s.table] = true
		}
	}
	p.mu.Lock()
	before := p.held[HeldByReader]
	p.held, p.heldAt = held, time.Now()
	p.mu.Unlock()
	if before == 0 && held[HeldByReader] > 0 {
		all := slices.Sorted(maps.Keys(tables))
		p.server.Config.Log.Warn("slices that are over can't be dropped, since transactions use their tables", "slices", held[HeldByReader], "tables", all, "by", users(ctx, r.conn, all))
	}
}

// users names who uses tables: what a role may see of others is less than of its own.
func users(ctx context.Context, conn *pgx.Conn, tables []string) []string {
	rows, err := conn.Query(ctx, `
		SELECT DISTINCT format('pid %s, role %s, application %s, transaction since %s', a.pid, a.usename, a.application_name, coalesce(a.xact_start::text, 'a time that this role may not see'))
		FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid JOIN pg_class AS c ON c.oid = l.relation
		WHERE l.locktype = 'relation' AND l.granted AND c.relnamespace = 'pushmesh'::regnamespace AND regexp_replace(c.relname, '_[0-9]+$', '') = ANY($1)
			AND l.pid <> pg_backend_pid() AND a.application_name <> 'pushmesh-writer' LIMIT 5`, tables)
	if err != nil {
		return nil
	}
	all, _ := pgx.CollectRows(rows, pgx.RowTo[string])
	return all
}

// dropSlices is one round; done: it has looked at all.
func (r *dropper) dropSlices(ctx context.Context) (done bool, err error) {
	conn := r.conn
	var mine bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, $2)`, int32(sliceLock), int32(dropping)).Scan(&mine); err != nil || !mine {
		return false, err // another store is at it
	}
	defer func() {
		_, resetErr := conn.Exec(ctx, fmt.Sprintf(`RESET lock_timeout; SELECT pg_advisory_unlock(%d, %d)`, sliceLock, dropping), pgx.QueryExecModeSimpleProtocol)
		if resetErr != nil {
			// it must not go back to the pool like this
			err = errors.Join(err, resetErr, conn.Close(ctx))
		}
	}()
	if _, err := conn.Exec(ctx, fmt.Sprintf(`SET lock_timeout = %d`, dropTimeout.Milliseconds()), pgx.QueryExecModeSimpleProtocol); err != nil {
		return false, err
	}
	all, err := partitions(ctx, conn)
	if err != nil {
		return false, err
	}
	if r.voided, err = voided(ctx, conn); err != nil {
		return false, err
	}
	for _, first := range []bool{true, false} {
		// a detachment that is under way allows no second one
		for name, st := range all {
			if first != (st == detaching) {
				continue
			}
			if err := r.drop(ctx, name, st); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// dropper is one round.
type dropper struct {
	conn    *pgx.Conn
	owner   bool // of the tables; who is not has functions that do less at a time
	now     uint64
	voided  map[string]uint64
	dropped int
	// tables with a detachment that can't be ended now, which allow no second one, or that can't
	// begin one
	blocked map[string]bool
	// of those, tables whose commits are too slow for a function to detach: slices are emptied
	late map[string]bool
	held map[string]string // slices that are over and stay, and why
}

func (r *dropper) drop(ctx context.Context, name string, st state) error {
	s, yes := over(name, r.now, r.voided)
	if !yes || st != detached && r.blocked[s.table] {
		if yes {
			r.held[name] = HeldBehind
		}
		if yes && st == attached && r.late[s.table] {
			return r.empty(ctx, name)
		}
		return nil
	}
	if !r.owner {
		return r.dropByFunction(ctx, s.table, name)
	}
	if s.table == "scheduled" { // what is due late, since its shard has no owner, holds its slice
		var waits bool
		if err := r.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pushmesh.`+name+`)`).Scan(&waits); err != nil || waits {
			r.held[name] = HeldByLateMessages
			return err
		}
	}
	steps := []string{
		attached:  fmt.Sprintf(`ALTER TABLE pushmesh.%s DETACH PARTITION pushmesh.%s CONCURRENTLY`, s.table, name),
		detaching: fmt.Sprintf(`ALTER TABLE pushmesh.%s DETACH PARTITION pushmesh.%s FINALIZE`, s.table, name),
	}
	if st != detached {
		switch ok, err := gently(ctx, r.conn, steps[st]); {
		case err != nil:
			return fmt.Errorf("postgres: detach %s: %w", name, err)
		case !ok:
			r.blocked[s.table], r.held[name] = true, HeldByReader
			return nil
		}
	}
	ok, err := gently(ctx, r.conn, `DROP TABLE pushmesh.`+name)
	if err != nil {
		return fmt.Errorf("postgres: drop %s: %w", name, err)
	}
	if ok {
		r.dropped++
	} else {
		r.held[name] = HeldByReader
	}
	return nil
}

// dropByFunction leaves what can't be had at once, and scheduled messages that are due late. A
// detachment that is not concurrent holds appends up while it waits for readers: where one takes
// long it is not begun.
func (r *dropper) dropByFunction(ctx context.Context, table, name string) error {
	if _, asked := r.blocked[table]; !asked {
		busy, err := readLong(ctx, r.conn, table)
		if err != nil {
			return fmt.Errorf("postgres: readers of %s: %w", table, err)
		}
		r.blocked[table] = busy
	}
	if r.blocked[table] {
		r.held[name] = HeldByReader
		return nil
	}
	for _, step := range []string{detachSlice, `SELECT true FROM pushmesh.drop_slice($1)`} {
		var done bool
		err := r.conn.QueryRow(ctx, step, name).Scan(&done)
		if server.SQLState(err) == server.LockNotAvailable {
			r.blocked[table], r.held[name] = true, HeldByReader
			if step != detachSlice || table == "scheduled" { // which holds what is due late
				return nil
			}
			r.late[table] = true
			return r.empty(ctx, name)
		}
		if err != nil {
			return fmt.Errorf("postgres: drop %s: %w", name, err)
		}
		if !done {
			r.held[name] = HeldByLateMessages
			return nil
		}
	}
	r.dropped++
	return nil
}

const detachSlice = `SELECT pushmesh.detach_slice($1)`

// empty gives the space of an old slice back that can't be taken out of its table for now. Nobody
// appends to it, so that no commit waits.
func (r *dropper) empty(ctx context.Context, name string) error {
	if _, err := r.conn.Exec(ctx, `SELECT pushmesh.empty_slice($1)`, name); err != nil && server.SQLState(err) != server.LockNotAvailable {
		return fmt.Errorf("postgres: empty %s: %w", name, err)
	}
	return nil
}

// longRead is how long a transaction uses a table before it counts as one that reads long. Commits
// take less.
const longRead = 200 * time.Millisecond

// readLong reports whether a transaction that uses a table goes on using it.
func readLong(ctx context.Context, conn *pgx.Conn, table string) (busy bool, err error) {
	const users = `SELECT coalesce(array_agg(DISTINCT virtualtransaction), '{}') FROM pg_locks
		WHERE locktype = 'relation' AND relation = to_regclass($1) AND granted AND pid <> pg_backend_pid()`
	var before, still []string
	if err := conn.QueryRow(ctx, users, "pushmesh."+table).Scan(&before); err != nil || len(before) == 0 {
		return false, err
	}
	pause := time.NewTimer(longRead)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	err = conn.QueryRow(ctx, users, "pushmesh."+table).Scan(&still)
	return slices.ContainsFunc(still, func(v string) bool { return slices.Contains(before, v) }), err
}

// gently runs a statement that gives up where a lock is held too long: false.
func gently(ctx context.Context, conn *pgx.Conn, sql string) (bool, error) {
	_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if server.SQLState(err) == server.LockNotAvailable {
		return false, nil
	}
	return err == nil, err
}
