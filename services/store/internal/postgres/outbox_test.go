package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// outboxTables take turns.
const outboxTables = 3

func withOutbox(t *testing.T) (*DB, string) {
	t.Helper()
	url := pgtest.URL(t)
	d := open(t, url)
	for k := range outboxTables {
		// a vacuum that happens to be there would keep a table from its turn
		execute(t, url, fmt.Sprintf(`ALTER TABLE pushmesh.outbox_%d SET (autovacuum_enabled = off)`, k),
			fmt.Sprintf(`ALTER TABLE pushmesh.outbox_tick_%d SET (autovacuum_enabled = off)`, k))
	}
	return d, url
}

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func do(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func openOutbox(t *testing.T, d *DB, id string) backend.Outbox {
	t.Helper()
	o, err := d.OpenOutbox(t.Context(), owner(id))
	need(t, err)
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// settle takes what is pending as published and says what it was.
func settle(t *testing.T, o backend.Outbox) (all []string) {
	t.Helper()
	entries, _, err := o.Pending(t.Context(), 100_000)
	need(t, err)
	if len(entries) == 0 {
		return nil
	}
	var ids []int64
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	rows, err := o.Rows(t.Context(), ids)
	need(t, err)
	for _, r := range rows {
		all = append(all, string(r.Payload))
	}
	need(t, o.Settle(t.Context(), ids[len(ids)-1], true, nil))
	return all
}

const publishX = `SELECT pushmesh.publish('room/1', 'x')`

func TestPublishRefusesWhatNobodyCouldTake(t *testing.T) {
	t.Parallel()
	d, url := withOutbox(t)
	conn := connectTo(t, url)
	do(t, conn, `INSERT INTO pushmesh.namespace VALUES ('room', 1, false, '{"maxPayload": 10}'), ('room/big', 1, false, '{"maxPayload": 20}')`)
	long := strings.Repeat("x", 256)
	for _, tt := range []struct{ args, want string }{
		{`NULL, 'x'`, "BAD_TOPIC"},
		{`'', 'x'`, "BAD_TOPIC"},
		{`'a//b', 'x'`, "BAD_TOPIC"},
		{`'/a', 'x'`, "BAD_TOPIC"},
		{`'a/', 'x'`, "BAD_TOPIC"},
		{`'a/+', 'x'`, "BAD_TOPIC"},
		{`'a/#', 'x'`, "BAD_TOPIC"},
		{`E'a\tb', 'x'`, "BAD_TOPIC"},
		{`'` + long + `', 'x'`, "BAD_TOPIC"},
		{`'$dead/x', 'x'`, "FORBIDDEN"},
		{`'room/1', NULL`, "INVALID_ARGUMENT"},
		{`'room/1', '12345678901'`, "PAYLOAD_TOO_LARGE"},
		{`'room/big', '123456789012345678901'`, "PAYLOAD_TOO_LARGE"},
		{`'other', convert_to(repeat('x', 262145), 'UTF8')`, "PAYLOAD_TOO_LARGE"},
		{`'room/1', 'x', '[]'`, "INVALID_ARGUMENT"},
		{`'room/1', 'x', '{"a": 1}'`, "INVALID_ARGUMENT"},
		{`'room/1', 'x', '{"": "1"}'`, "INVALID_ARGUMENT"},
		{`'room/1', 'x', jsonb_build_object('a', repeat('x', 8192))`, "INVALID_ARGUMENT"},
		{`'room/1', 'x', dedupe_key => ''`, "INVALID_ARGUMENT"},
		{`'room/1', 'x', dedupe_key => '` + long + `x'`, "INVALID_ARGUMENT"},
		{`'room/1', 'x', priority => 10`, "INVALID_ARGUMENT"},
		{`'room/1', 'x', ttl => '0'`, "INVALID_ARGUMENT"},
		{`'room/1', 'x', deliver_at => 'infinity'`, "INVALID_ARGUMENT"},
		{`'room/1', 'x', deliver_at => now() + interval '2 years'`, "INVALID_ARGUMENT"},
		{`'room/1', 'x', traceparent => repeat('x', 56)`, "INVALID_ARGUMENT"},
	} {
		_, err := conn.Exec(t.Context(), `SELECT pushmesh.publish(`+tt.args+`)`)
		if err == nil || !strings.Contains(err.Error(), "pushmesh: "+tt.want+":") {
			t.Errorf("%.60s: %v, want %s", tt.args, err, tt.want)
		}
	}
	do(t, conn, `SELECT pushmesh.publish('room/big/1', '12345678901234567890')`, `SELECT pushmesh.publish('roomy', convert_to(repeat('x', 262144), 'UTF8'))`)
	if got := settle(t, openOutbox(t, d, "a")); len(got) != 2 {
		t.Errorf("%d rows, want the 2 that were taken", len(got))
	}
}

// The SQL function and package topic agree on what a topic is.
func TestPublishKnowsTopics(t *testing.T) {
	t.Parallel()
	_, url := withOutbox(t)
	conn := connectTo(t, url)
	piece := rapid.SampledFrom([]string{"a", "b", "/", "//", "+", "#", "$", "é", "日", "\u007f", "\u0085", "\u00a0", "\x01", "\t", "\n", "'", `\`, " ", "."})
	rapid.Check(t, func(rt *rapid.T) {
		name := strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(rt, "pieces"), "")
		_, err := conn.Exec(t.Context(), `SELECT pushmesh.publish($1, 'x')`, name)
		if want := topic.Check(name) == nil && name[0] != '$'; want != (err == nil) {
			rt.Fatalf("%q: package topic says %v, SQL says %v", name, want, err)
		}
	})
}

// An application's role needs the function alone.
func TestPublishIsGranted(t *testing.T) {
	t.Parallel()
	d, url := withOutbox(t)
	conn := connectTo(t, pgtest.Superuser(t, url))
	role := strings.ReplaceAll(pgx.Identifier{"app_" + strings.TrimPrefix(conn.Config().Database, "pushmesh_test_")}.Sanitize(), `"`, "")
	do(t, conn, `CREATE ROLE `+role, `SET ROLE `+role)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), `RESET ROLE; DROP OWNED BY `+role+`; DROP ROLE `+role)
		need(t, err)
	})
	if _, err := conn.Exec(t.Context(), publishX); server.SQLState(err) != "42501" {
		t.Errorf("without a grant: %v", err)
	}
	do(t, conn, `RESET ROLE`, `GRANT USAGE ON SCHEMA pushmesh TO `+role, `SET ROLE `+role)
	if _, err := conn.Exec(t.Context(), publishX); server.SQLState(err) != "42501" {
		t.Errorf("without a grant of the function: %v", err)
	}
	do(t, conn, `RESET ROLE`, `GRANT EXECUTE ON FUNCTION pushmesh.publish TO `+role, `SET ROLE `+role, publishX)
	if _, err := conn.Exec(t.Context(), `SELECT FROM pushmesh.outbox_0`); server.SQLState(err) != "42501" {
		t.Errorf("the tables: %v", err)
	}
	if got := settle(t, openOutbox(t, d, "a")); len(got) != 1 {
		t.Errorf("%d rows, want 1", len(got))
	}
}

// One store reads; a frozen one is fenced with its writers, and its successor learns that a batch
// was begun.
func TestTheOutboxHasOneReader(t *testing.T) {
	t.Parallel()
	d, url := withOutbox(t)
	conn := connectTo(t, url)
	first := openOutbox(t, d, "a")
	if _, err := d.OpenOutbox(t.Context(), owner("b")); !errors.Is(err, backend.ErrOtherReader) {
		t.Fatalf("a second reader: %v", err)
	}
	do(t, conn, `SELECT pushmesh.publish('room/1', '1')`, `SELECT pushmesh.publish('room/1', '2')`)
	entries, repeated, err := first.Pending(t.Context(), 10)
	need(t, err)
	if len(entries) != 2 || repeated {
		t.Fatalf("pending %v, repeated %v", entries, repeated)
	}
	do(t, conn, `SELECT pushmesh.publish('room/1', '3')`) // of the next batch
	need(t, first.Settle(t.Context(), entries[0].ID, false, nil))
	need(t, d.Fence(t.Context(), "a", 1))
	second := openOutbox(t, d, "b")
	if err := first.Settle(t.Context(), entries[1].ID, true, nil); err == nil {
		t.Error("a fenced reader notes its position")
	}
	rest, repeated, err := second.Pending(t.Context(), 10)
	need(t, err)
	if len(rest) != 1 || rest[0].ID != entries[1].ID || !repeated {
		t.Errorf("the successor finds %v, repeated %v; want the second row, repeated", rest, repeated)
	}
	need(t, second.Settle(t.Context(), rest[0].ID, true, []backend.OutboxRefusal{{ID: rest[0].ID, Code: "FORBIDDEN", Error: "why"}}))
	var refused string
	need(t, conn.QueryRow(t.Context(), `SELECT topic || ' ' || code || ' ' || convert_from(payload, 'UTF8') FROM pushmesh.outbox_refused`).Scan(&refused))
	if refused != "room/1 FORBIDDEN 2" {
		t.Errorf("kept as refused: %s", refused)
	}
	if got := settle(t, second); fmt.Sprint(got) != "[3]" {
		t.Errorf("then %v", got)
	}
	need(t, second.Close())
	third := openOutbox(t, d, "c")
	if got := settle(t, third); got != nil {
		t.Errorf("a third reader finds %v again", got)
	}
}

// rotate asks for a rotation whatever the age.
func rotate(t *testing.T, o backend.Outbox) backend.OutboxState {
	t.Helper()
	s, err := o.Rotate(t.Context(), 0, 1<<40)
	need(t, err)
	return s
}

// Under a steady load the tables are as large as what a few turns bring. Someone who uses a table
// makes them grow, is named, and loses nothing; afterwards they shrink.
func TestTheOutboxDoesNotBloat(t *testing.T) {
	d, url := withOutbox(t)
	conn, reader := connectTo(t, url), connectTo(t, url)
	o := openOutbox(t, d, "a")
	published, seen := 0, 0
	load := func() backend.OutboxState {
		do(t, conn, `SELECT pushmesh.publish('room/1', decode(repeat('78', 1000), 'hex')) FROM generate_series(1, 500)`)
		published += 500
		seen += len(settle(t, o))
		return rotate(t, o)
	}
	var flat int64
	for range 10 {
		flat = max(flat, load().Bytes)
	}
	for range 10 {
		if s := load(); s.Blocked || s.Bytes > 2*flat {
			t.Fatalf("under a steady load: %+v, at first at most %d bytes", s, flat)
		}
	}
	do(t, reader, `BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM pushmesh.outbox`)
	var blocked backend.OutboxState
	for range 10 {
		blocked = load()
	}
	if !blocked.Blocked || blocked.Bytes < 2*flat {
		t.Errorf("with a reader of the tables: %+v, want blocked and growing", blocked)
	}
	do(t, reader, `COMMIT`)
	for range 4 {
		blocked = load()
	}
	if blocked.Blocked || blocked.Bytes > 2*flat {
		t.Errorf("after the reader: %+v, before at most %d bytes", blocked, flat)
	}
	// A long snapshot of something else is nobody's trouble: nothing is updated or deleted here.
	do(t, reader, `BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM pushmesh.shard`)
	for range 10 {
		if s := load(); s.Blocked || s.Bytes > 2*flat {
			t.Fatalf("with a reader of other tables: %+v, before at most %d bytes", s, flat)
		}
	}
	if seen != published {
		t.Errorf("%d published, %d seen", published, seen)
	}
}

// Whichever table a transaction writes to, whenever it commits: a rotation never takes what was not
// read.
func TestRotationTakesNothingUnread(t *testing.T) {
	d, url := withOutbox(t)
	old, other := connectTo(t, url), connectTo(t, url)
	o := openOutbox(t, d, "a")
	// it will see the first table as the present one for ever
	do(t, old, `BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT 1 FROM pushmesh.shard`)
	do(t, other, publishX)
	settle(t, o)
	for range 2 {
		if s := rotate(t, o); s.Blocked {
			t.Fatalf("%+v", s)
		}
	}
	do(t, old, `SELECT pushmesh.publish('room/1', 'old')`) // into the table whose turn is next
	if s := rotate(t, o); !s.Blocked {
		t.Errorf("a table with an open transaction's row: %+v", s)
	}
	do(t, old, `COMMIT`)
	if s := rotate(t, o); !s.Blocked {
		t.Errorf("a table with an unread row: %+v", s)
	}
	if got := settle(t, o); fmt.Sprint(got) != "[old]" {
		t.Errorf("got %v", got)
	}
	if s := rotate(t, o); s.Blocked {
		t.Errorf("a table that was read: %+v", s)
	}
}

// An outbox that was copied to another server, where transactions are numbered anew, is read whole.
func TestACopiedOutboxIsRead(t *testing.T) {
	d, url := withOutbox(t)
	conn := connectTo(t, url)
	do(t, conn, publishX, publishX)
	do(t, conn, `UPDATE pushmesh.outbox_0 SET xid = '99999999999'`,
		`INSERT INTO pushmesh.outbox_tick_0 (n, done, after_id) VALUES (5, '99999999990:99999999990:', 0)`, publishX)
	o := openOutbox(t, d, "a")
	entries, repeated, err := o.Pending(t.Context(), 10)
	need(t, err)
	if len(entries) != 3 || !repeated {
		t.Errorf("%d rows, repeated %v; want 3, repeated", len(entries), repeated)
	}
	need(t, o.Settle(t.Context(), entries[2].ID, true, nil))
	do(t, conn, `SELECT pushmesh.publish('room/1', 'new')`)
	if got := settle(t, o); fmt.Sprint(got) != "[new]" {
		t.Errorf("then %v", got)
	}
}

// The list finds new rows by the index of transactions, however much lies settled before them.
func TestListingIsCheap(t *testing.T) {
	d, url := withOutbox(t)
	conn := connectTo(t, url)
	o := openOutbox(t, d, "a")
	do(t, conn, `SELECT pushmesh.publish('room/1', 'x') FROM generate_series(1, 50000)`)
	entries, _, err := o.Pending(t.Context(), 50_000)
	need(t, err)
	need(t, o.Settle(t.Context(), entries[49_999].ID, true, nil))
	const cheap = 20 * time.Millisecond
	best, deadline := time.Hour, time.Now().Add(backendtest.Patience/4)
	for tries := 0; tries < 20 || best > cheap && time.Now().Before(deadline); tries++ {
		// the machine may be busy: the best counts
		do(t, conn, publishX)
		began := time.Now()
		if got := settle(t, o); len(got) != 1 {
			t.Fatalf("%d rows", len(got))
		}
		best = min(best, time.Since(began))
	}
	t.Logf("a batch of one row behind 50,000 settled ones: %s", best)
	if best > cheap {
		t.Error("too slow: settled rows are walked")
	}
}

// What is parked leaves the outbox and its tables' turns, comes in order for each shard within what
// is asked for, and is known to the next reader; what is parked twice is there once.
func TestWhatWaitsInTheOutbox(t *testing.T) {
	d, url := withOutbox(t)
	conn := connectTo(t, url)
	first := openOutbox(t, d, "a")
	do(t, conn, `SELECT pushmesh.publish('room/1', convert_to(i::text, 'UTF8'), headers => '{"k": "v"}', priority => 3) FROM generate_series(1, 6) AS i`)
	entries, _, err := first.Pending(t.Context(), 10)
	need(t, err)
	ids, shards := make([]int64, len(entries)), []int{1, 2, 1, 2, 1, 2}
	for i, e := range entries {
		ids[i] = e.ID
	}
	written, err := first.Rows(t.Context(), ids)
	need(t, err)
	added, err := first.Park(t.Context(), ids, shards)
	need(t, err)
	again, err := first.Park(t.Context(), ids[:2], shards[:2])
	need(t, err)
	if len(added) != 6 || len(again) != 0 {
		t.Fatalf("parked %v, then %v", added, again)
	}
	need(t, first.Settle(t.Context(), ids[5], true, nil))
	for range 2 * outboxTables {
		if s := rotate(t, first); s.Blocked {
			t.Fatalf("%+v", s)
		}
	}
	need(t, first.Close())
	o := openOutbox(t, d, "b")
	all, err := o.Waiting(t.Context())
	need(t, err)
	if fmt.Sprint(all) != fmt.Sprint(added) || all[0].Size != entries[0].Size {
		t.Errorf("the next reader finds %v, want %v", all, added)
	}
	check := func(shards []int, each, most, bytes int, want ...int) {
		t.Helper()
		var rows []backend.OutboxRow
		for _, i := range want {
			rows = append(rows, written[i])
		}
		got, err := o.WaitingRows(t.Context(), shards, each, most, bytes)
		need(t, err)
		if fmt.Sprint(got) != fmt.Sprint(rows) {
			t.Errorf("shards %v, %d each, %d rows, %d bytes: %v, want %v", shards, each, most, bytes, got, rows)
		}
	}
	size := all[0].Size
	check([]int{1, 2, 3}, 10, 10, 100*size, 0, 1, 2, 3, 4, 5)
	check([]int{2, 1}, 1, 10, 100*size, 0, 1)
	check([]int{2}, 2, 10, 100*size, 1, 3)
	check([]int{2, 1}, 10, 4, 100*size, 0, 1, 3, 5)
	check([]int{2, 1}, 10, 10, 2*size, 1, 3)
	check([]int{1}, 10, 10, 1, 0)
	check([]int{3}, 10, 10, 100*size)
	gone, err := o.Unpark(t.Context(), []int64{ids[0], ids[1]}, []int{1, 2}, []backend.OutboxRefusal{{ID: ids[1], Code: "FORBIDDEN", Error: "why"}})
	need(t, err)
	if len(gone) != 2 {
		t.Errorf("gone: %v", gone)
	}
	check([]int{1, 2}, 10, 10, 100*size, 2, 3, 4, 5)
	var refused string
	need(t, conn.QueryRow(t.Context(), `SELECT string_agg(topic || ' ' || code || ' ' || convert_from(payload, 'UTF8'), ',') FROM pushmesh.outbox_refused`).Scan(&refused))
	if refused != "room/1 FORBIDDEN 2" {
		t.Errorf("kept as refused: %s", refused)
	}
}
