package chaos

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// logged is what the log holds of a topic, in the order of seq.
func logged(t *testing.T, conn *pgx.Conn, topic string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT convert_from(payload, 'UTF8') FROM pushmesh.message WHERE topic = $1 ORDER BY epoch, seq`, topic)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func appended(t *testing.T, conn *pgx.Conn, topic string) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT coalesce(max(last_seq), 0) FROM pushmesh.log WHERE topic = $1`, topic).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// The store that reads the outbox is killed in the middle of a large transaction's messages, its
// successor too, and a router: each message is in the log once, in order, and what was rolled back
// is not.
func TestTransactionsSurviveKills(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	m := begin(t, procmesh.Options{Stores: 2, Routers: 2, DB: url})
	conn := connect(t, url)
	for try := range 6 {
		if transactionsSurviveKills(t, m, conn, fmt.Sprintf("chaos/tx-%d", try)) {
			return
		}
	}
	t.Error("all messages were in the log before everyone was killed")
}

// transactionsSurviveKills publishes to three topics of a name. False: on a busy machine someone
// was killed too late to show anything.
func transactionsSurviveKills(t *testing.T, m *procmesh.Mesh, conn *pgx.Conn, name string) (inTime bool) {
	t.Helper()
	const messages = 30_000
	topics := []string{name + "-1", name + "-2", name + "-3"}
	publish := `SELECT pushmesh.publish('` + name + `-' || (i % 3 + 1), convert_to(i::text, 'UTF8')) FROM generate_series($1::int, $2::int) AS i`
	inTime = true
	execute(t, conn, "BEGIN")
	execute(t, conn, publish, 1_000_000, 1_001_000)
	execute(t, conn, "ROLLBACK")
	began := time.Now()
	execute(t, conn, publish, 1, messages)
	victims := []*procmesh.Process{m.Stores[0], m.Routers[0], m.Stores[1]}
	for i, victim := range victims {
		at := (i + 1) * messages / 3 / (len(victims) + 2)
		procmesh.Await(t, fmt.Sprintf("%d messages of a topic are in the log", at), func() bool { return appended(t, conn, topics[0]) >= at })
		victim.Kill()
		if n := appended(t, conn, topics[0]); n == messages/3 {
			t.Logf("%s was killed too late to show anything", victim.Name)
			inTime = false
		}
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s killed with %d of %d messages in the log, %s after the commit", victim.Name, appended(t, conn, topics[0]), messages/3, time.Since(began).Round(time.Millisecond))
	}
	execute(t, conn, publish, messages+1, messages+3)
	procmesh.Await(t, "everything is in the log", func() bool {
		return !slices.ContainsFunc(topics, func(topic string) bool { return appended(t, conn, topic) < messages/3+1 })
	})
	t.Logf("all %d messages in the log after %s", messages+3, time.Since(began).Round(time.Millisecond))
	for k, topic := range topics {
		got := logged(t, conn, topic)
		if len(got) != messages/3+1 {
			t.Errorf("%s: %d messages, want %d", topic, len(got), messages/3+1)
		}
		for i, payload := range got {
			first := k
			if k == 0 {
				first = 3 // i % 3 = 0
			}
			if want := strconv.Itoa(first + 3*i); payload != want {
				t.Fatalf("%s: message %d is %s, want %s", topic, i+1, payload, want)
			}
		}
	}
	return inTime
}

// One of two databases dies, and later hangs: what transactions publish to the other's shards goes
// on meanwhile, and what they publish to its shards is in the log when it is back, each message
// once and in order. The store that reads the outbox is killed in between.
func TestTransactionsDoNotWaitForADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	const here, there = namespace + "/tx-here", namespace + "/tx-there"
	url, server := pgtest.URL(t), pgtest.New(t)
	m := begin(t, procmesh.Options{Stores: 2, Routers: 1, DB: url, StoreArgs: []string{"--shard-db", "b=" + server.URL()}})
	if topic.Shard(here) == topic.Shard(there) {
		t.Fatal("both topics have one shard")
	}
	procmesh.Await(t, "the shard is moved", func() bool {
		out, err := exec.CommandContext(t.Context(), m.Pushmesh, "shard", "move", "--db", url, "--shard-db", "b="+server.URL(),
			"--shards", strconv.Itoa(topic.Shard(there)), "--to", "b").CombinedOutput()
		if err != nil {
			t.Logf("%s: %v", out, err)
		}
		return err == nil
	})
	conn := connect(t, url)
	next := 0
	publish := func(n int) {
		t.Helper()
		for range n {
			next++
			execute(t, conn, `SELECT pushmesh.publish(name, convert_to($1, 'UTF8')) FROM unnest($2::text[]) AS name`, strconv.Itoa(next), []string{there, here})
		}
	}
	inOrder := func(when string, on *pgx.Conn, name string) {
		t.Helper()
		procmesh.Await(t, when+": all is in the log of "+name, func() bool { return appended(t, on, name) >= next })
		all := logged(t, on, name)
		if len(all) != next {
			t.Errorf("%s: %s has %d messages, want %d", when, name, len(all), next)
		}
		for i, payload := range all {
			if payload != strconv.Itoa(i+1) {
				t.Fatalf("%s: message %d of %s is %s", when, i+1, name, payload)
			}
		}
	}
	publish(10)
	inOrder("at first", conn, here)
	for _, fault := range []struct {
		name       string
		begin, end func() error
	}{{"dead", server.Kill, server.Restart}, {"hanging", server.Pause, server.Resume}} {
		if err := fault.begin(); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			publish(10)
			began := time.Now()
			inOrder(fault.name, conn, here)
			t.Logf("%s: the other database's messages were in the log after %s", fault.name, time.Since(began).Round(time.Millisecond))
		}
		m.Stores[0].Kill()
		publish(10)
		if err := m.Stores[0].Start(); err != nil {
			t.Fatal(err)
		}
		if err := fault.end(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		inOrder(fault.name+" before", conn, here)
		inOrder(fault.name+" before", connect(t, server.URL()), there)
		t.Logf("%s before: all was in both logs after %s", fault.name, time.Since(began).Round(time.Millisecond))
	}
}
