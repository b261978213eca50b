package store

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// backends lists the server's backends that append for a store: who was fenced has other ones
// afterwards.
func backends(t *testing.T, db, store string) (all []string) {
	t.Helper()
	conn, err := pgx.Connect(within(t), db)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	rows, err := conn.Query(within(t), `SELECT w.pid || ' since ' || w.backend_start FROM pushmesh.writer AS w
		JOIN pg_stat_activity AS a ON a.pid = w.pid AND a.backend_start = w.backend_start
		WHERE w.store_id = $1 AND a.application_name = 'pushmesh-writer' ORDER BY 1`, store)
	need(t, err)
	all, err = pgx.CollectRows(rows, pgx.RowTo[string])
	need(t, err)
	return all
}

// published counts appends to both halves of the shards, each asked of the store that owns the
// half.
type published struct{ taken, refused int }

func (p *published) once(t *testing.T, c meshv1.StoreServiceClient, name string) {
	t.Helper()
	if r := one(t, c, name); r.GetCode() == wirev1.Code_CODE_OK {
		p.taken++
	} else {
		p.refused++
	}
}

// looks is how many times a store must have looked around before a test believes that it leaves
// another one alone: some times the silence that would end in a fence.
const looks = 20

// Two halves of NATS, a store in each, one database: neither store hears of the other but through
// the database. They share the shards all the same, nobody is fenced, and every append is taken.
func TestStoresOnTwoHalvesOfNATS(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	first := serving(t, Settings{ID: "first", DB: db, NATS: natsServer(t).ClientURL(), LogLevel: "error"})
	second := serving(t, Settings{ID: "second", DB: db, NATS: natsServer(t).ClientURL(), LogLevel: "error"})
	a, b := dial(t, first.Addr()), dial(t, second.Addr())
	half := fmt.Sprint(map[string]int{"first": topic.Shards / 2, "second": topic.Shards / 2})
	eventually(t, "the shards are divided, and both say so", func() bool {
		return fmt.Sprint(shares(t, a)) == half && fmt.Sprint(shares(t, b)) == half
	})
	before := fmt.Sprint(backends(t, db, "first"), backends(t, db, "second"))
	var p published
	low, high := topicIn(true), topicIn(false)
	for end := time.Now().Add(looks * 500 * time.Millisecond); time.Now().Before(end); {
		p.once(t, a, low)
		p.once(t, b, high)
	}
	t.Logf("%+v", p)
	if p.refused > 0 || p.taken == 0 {
		t.Errorf("%d of %d appends were refused", p.refused, p.refused+p.taken)
	}
	if after := fmt.Sprint(backends(t, db, "first"), backends(t, db, "second")); after != before {
		t.Errorf("somebody was fenced: backends %s, before %s", after, before)
	}
}

// NATS is away and Postgres ends a store's connections: the store has its shards again without
// NATS.
func TestShardsComeBackWithoutNATS(t *testing.T) {
	t.Parallel()
	nats, db := natsServer(t), pgtest.URL(t)
	st := serving(t, Settings{ID: "first", DB: db, NATS: nats.ClientURL(), LogLevel: "error"})
	c := dial(t, st.Addr())
	taken(t, c, item(1, "room/1", "x"))
	nats.Shutdown()
	nats.WaitForShutdown()
	eventually(t, "the store misses NATS", func() bool { return st.core.bus.Check() != nil })
	for range 3 {
		was := backends(t, db, "first")
		pgtest.Exec(t, db, `SELECT pg_terminate_backend(pid) FROM pushmesh.writer`)
		taken(t, c, item(1, "room/1", "x"))
		eventually(t, "the store has all writers again", func() bool {
			return len(backends(t, db, "first")) == len(was) && fmt.Sprint(backends(t, db, "first")) != fmt.Sprint(was)
		})
	}
}

// A store is frozen until another one has fenced it, and goes on. It fences nobody. So it is where
// a pooler in session mode is between it and the database: what is fenced then are the pooler's
// connections.
func TestAThawedStoreFencesNobody(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]func(t *testing.T, db string) string{
		"directly":         func(_ *testing.T, db string) string { return db },
		"through a pooler": func(t *testing.T, db string) string { return pgtest.Pooler(t, db, "session") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nats, db := natsServer(t), pgtest.URL(t)
			process, _ := firstStore(t, nats.ClientURL(), way(t, db))
			second := serving(t, Settings{ID: "second", DB: db, NATS: nats.ClientURL(), LogLevel: "error"})
			b := dial(t, second.Addr())
			half := fmt.Sprint(map[string]int{"first": topic.Shards / 2, "second": topic.Shards / 2})
			for round := range 3 {
				eventually(t, "the shards are divided", func() bool { return fmt.Sprint(shares(t, b)) == half })
				was := fmt.Sprint(backends(t, db, "second"))
				need(t, process.Process.Signal(syscall.SIGSTOP))
				eventually(t, "the second store owns everything", func() bool { return shares(t, b)["second"] == topic.Shards })
				need(t, process.Process.Signal(syscall.SIGCONT))
				eventually(t, "the shards are divided again", func() bool { return fmt.Sprint(shares(t, b)) == half })
				if is := fmt.Sprint(backends(t, db, "second")); is != was {
					t.Fatalf("round %d: the store that was there all the time was fenced: backends %s, before %s", round, is, was)
				}
			}
		})
	}
}

// A store whose role may not end another one's connections says so while both work, with the grant
// that it lacks, and no more when it has it: not in the incident in which the other hangs, and
// keeps its shards.
func TestAStoreThatCannotBeFencedIsNamed(t *testing.T) {
	t.Parallel()
	nats, db := natsServer(t), pgtest.URL(t)
	other := pgtest.Another(t, db)
	role := func(of string) string {
		u, err := url.Parse(of)
		need(t, err)
		return u.User.Username()
	}
	// so that it may see and end the first one's
	pgtest.Exec(t, pgtest.Superuser(t, db), `GRANT `+role(db)+` TO `+role(other))
	first := serving(t, Settings{ID: "first", DB: db, NATS: nats.ClientURL(), LogLevel: "error"})
	if line := verbose(t, first, "fencing"); line != "fencing: ok" {
		t.Errorf("alone: %s", line)
	}
	second := started(t, Settings{ID: "second", DB: other, NATS: nats.ClientURL(), LogLevel: "error"})
	grant := `GRANT pg_read_all_stats, pg_signal_backend TO `
	eventually(t, "the first store says that it can't fence the second, and why", func() bool {
		line := verbose(t, first, "fencing")
		return strings.HasPrefix(line, "fencing: degraded: store second can't be fenced") && strings.Contains(line, grant+`"`+role(db)+`"`)
	})
	if line := verbose(t, second, "fencing"); line != "fencing: ok" {
		t.Errorf("the one that may: %s", line)
	}
	pgtest.Exec(t, pgtest.Superuser(t, db), grant+role(db))
	eventually(t, "with the grant all is well", func() bool { return verbose(t, first, "fencing") == "fencing: ok" })
	need(t, second.Stop(within(t)))
}
