package chaos

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// entry of a topic's log.
type entry struct {
	epoch, seq uint64
	body       string
}

// logOf is a topic's whole log.
func logOf(t *testing.T, conn *pgx.Conn, name string) []entry {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT epoch, seq, convert_from(body, 'UTF8') FROM pushmesh.message WHERE topic = $1 ORDER BY epoch, seq`, name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e entry, err error) {
		err = row.Scan(&e.epoch, &e.seq, &e.body)
		return e, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func cut(key string) (topic, body string, found bool) { return strings.Cut(key, " ") }

// judge compares a topic's log with what was answered: seqs without a hole, each body once, and
// every answered one at its place.
func judge(t *testing.T, log []entry, name string, appenders ...*appender) {
	t.Helper()
	at := map[string]entry{}
	for i, e := range log {
		if e.seq != uint64(i+1) || e.epoch != log[0].epoch {
			t.Fatalf("%s: entry %d has epoch %d, seq %d", name, i+1, e.epoch, e.seq)
		}
		if twice, there := at[e.body]; there {
			t.Errorf("%s: %s is there twice, at %d and %d", name, e.body, twice.seq, e.seq)
		}
		at[e.body] = e
	}
	for _, a := range appenders {
		for key, p := range a.answered {
			topic, body, _ := cut(key)
			if topic != name {
				continue
			}
			if e, there := at[body]; !there || e.seq != p.seq || e.epoch != p.epoch {
				t.Errorf("%s: %s was answered with %d of %d; the log has it at %d of %d", name, body, p.seq, p.epoch, e.seq, e.epoch)
			}
		}
	}
}
