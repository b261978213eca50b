package log

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// The log of the tests below: so many topics with so many runs each, half of them in either of two
// slices.
const (
	grownTopics = 8
	grownRuns   = 25_000
	grownPerRun = 5 // messages
)

// grown fills a log as fast as the server can and leaves it as it is then: nothing is analyzed or
// vacuumed.
func grown(t *testing.T) (d *Log, first, second backend.Slice) {
	t.Helper()
	url := pgtest.URL(t)
	d = open(t, url)
	second = backend.Day.Slice(now())
	first = backend.Day.Slice(second.Start - 1)
	for _, s := range []backend.Slice{first, second} {
		pgtest.Exec(t, url, fmt.Sprintf(`CREATE TABLE pushmesh.log_day_%[1]d PARTITION OF pushmesh.log_day FOR VALUES FROM (%[1]d) TO (%[2]d) WITH (toast_tuple_target = 8160, autovacuum_enabled = off)`, s.Start, s.End))
	}
	need(t, d.partitions.MakeSlices(t.Context(), now()))
	pgtest.Exec(t, url, fmt.Sprintf(`INSERT INTO pushmesh.log_day (epoch, first_seq, last_seq, commit, at, shard, topic, packed)
		SELECT 1, n * %[1]d + 1, (n + 1) * %[1]d, n + 1, CASE WHEN n < %[2]d / 2 THEN %[4]d ELSE %[5]d END + n, 3, 'room/' || topic, decode(repeat('00', 200), 'hex')
		FROM generate_series(0, %[2]d - 1) AS n, generate_series(1, %[3]d) AS topic`,
		grownPerRun, grownRuns, grownTopics, first.Start, second.Start))
	return d, first, second
}

// cost of statements that were executed.
type cost struct{ statements, blocks, passed int }

// costing is a connection that has the server say what each of its statements touched.
type costing struct {
	*pgx.Conn
	t    *testing.T
	cost *cost
}

func (c costing) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.cost.add(explained(ctx, c.t, c.Conn, sql, args...))
	return c.Conn.Query(ctx, sql, args...)
}

// node of a plan.
type node struct {
	Hit    int    `json:"Shared Hit Blocks"`
	Read   int    `json:"Shared Read Blocks"`
	Passed int    `json:"Rows Removed by Filter"`
	Loops  int    `json:"Actual Loops"`
	Plans  []node `json:"Plans"`
}

func (n node) passed() int {
	all := n.Passed * n.Loops
	for _, p := range n.Plans {
		all += p.passed()
	}
	return all
}

func (c *cost) add(n node) {
	c.statements++
	c.blocks += n.Hit + n.Read
	c.passed += n.passed()
}

// explained executes a statement by the plan that the store's connections have for it, and says
// what that touched.
func explained(ctx context.Context, t *testing.T, conn *pgx.Conn, sql string, args ...any) node {
	t.Helper()
	values := make([]string, len(args))
	for i, a := range args {
		values[i] = fmt.Sprintf("'%v'", a)
		if s, ok := a.([]string); ok {
			values[i] = "'{" + strings.Join(s, ",") + "}'"
		}
		if s, ok := a.([]int64); ok {
			values[i] = "'{" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s)), ","), "[]") + "}'"
		}
	}
	exec := func(sql string) {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	}
	exec("PREPARE probe AS " + sql)
	defer exec("DEALLOCATE probe")
	var plans []struct{ Plan node }
	rows, err := conn.Query(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE probe ("+strings.Join(values, ", ")+")", pgx.QueryExecModeSimpleProtocol)
	need(t, err)
	text, err := pgx.CollectOneRow(rows, pgx.RowTo[string])
	need(t, err)
	need(t, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan
}

// costOf says what a read touched, and how many runs it found.
func (l *Log) costOf(t *testing.T, from, to uint64, most int) (c cost, runs int) {
	t.Helper()
	t.Helper()
	lend := func(ctx context.Context, f func(ctx context.Context, conn server.Querier) error) error {
		return l.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error { return f(ctx, costing{conn.Conn(), t, &c}) })
	}
	need(t, finder{runs: lend}.ReadRuns(t.Context(), "room/3", 1, from, to, func(backend.Run) bool { runs++; return runs < most }))
	return c, runs
}

// What a read touches follows from what it asks for: not from how much lies behind that in the log,
// though nobody told the planner of that.
func TestWhatAReadTouchesDoesNotGrowWithTheLog(t *testing.T) {
	d, _, _ := grown(t)
	const head = grownRuns * grownPerRun
	for _, c := range []struct {
		messages, runs int
		// blocks: two for each slice that has nothing, and a few where the topic is
		most int
	}{
		{1, 1, 50},
		{2, 1, 50},
		{100, 20, 150},
		{1000, 200, 700},
	} {
		for _, from := range []uint64{1, head/4 + 1, head/2 - uint64(c.messages) + 1, head/2 + 1, head - 10_000 + 1, head - uint64(c.messages) + 1} {
			got, runs := d.costOf(t, from, from+uint64(c.messages)-1, grownRuns)
			t.Logf("%d messages from seq %d: %+v, %d runs", c.messages, from, got, runs)
			if runs != c.runs && (c.messages != 2 || runs > 2) {
				t.Errorf("%d messages from seq %d: %d runs, want %d", c.messages, from, runs, c.runs)
			}
			if got.blocks > c.most || got.passed > 0 {
				t.Errorf("%d messages from seq %d of %d touched %+v, want %d blocks at most and no row in vain", c.messages, from, head, got, c.most)
			}
		}
	}
}

// The question for a topic's oldest message is asked again and again: it passes over what has
// become too old since then.
func TestWhatTheOldestTouchesDoesNotGrowWithTheLog(t *testing.T) {
	d, _, second := grown(t)
	// the tenth run from this one on is the first that is retained
	const run, since = grownRuns - 1000, 10
	var got cost
	need(t, d.server.Do(t.Context(), func(ctx context.Context, conn *pgxpool.Conn) error {
		got.add(explained(ctx, t, conn.Conn(), oldestRuns, []string{"room/3"}, []int64{1}, []int64{int64(second.Start) + run + since}, []int64{run*grownPerRun + 1}))
		return nil
	}))
	if got.blocks > 60 || got.passed != since {
		t.Errorf("touched %+v, want 60 blocks at most and %d rows in vain", got, since)
	}
	found, err := d.Oldest(t.Context(), []backend.OldestQuestion{{Topic: "room/3", Epoch: 1, NotBefore: second.Start + run + since, From: run*grownPerRun + 1}})
	need(t, err)
	if want := (backend.OldestAnswer{Seq: (run+since)*grownPerRun + 1, At: second.Start + run + since}); found[0] != want {
		t.Errorf("found %+v, want %+v", found[0], want)
	}
}

// What is asked all the time is answered from indexes in order, whatever the planner knows of
// slices that were made a moment ago.
func TestReadsAreAnsweredFromIndexesInOrder(t *testing.T) {
	d := open(t, pgtest.URL(t))
	need(t, d.partitions.MakeSlices(t.Context(), now()))
	plan, err := server.Query(t.Context(), d.server, pgx.RowTo[string], `EXPLAIN `+strings.NewReplacer("$1", "'x'", "$2", "1", "$3", "5", "$4", "9").Replace(readRuns)+"32")
	need(t, err)
	text := strings.Join(plan, "\n")
	if strings.Contains(text, "Seq Scan") || strings.Contains(text, "Sort  ") || !strings.Contains(text, "Merge Append") {
		t.Errorf("the plan of a read:\n%s", text)
	}
}
