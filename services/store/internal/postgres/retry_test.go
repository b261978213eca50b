package postgres

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// failing makes the first n inserts into a table fail with an error code. Sequences are not rolled
// back: they count the tries.
func failing(t *testing.T, url, table, sqlstate string, n int) (tries func() int) {
	name := "tries_" + table
	execute(t, url,
		"CREATE SEQUENCE "+name,
		fmt.Sprintf(`CREATE FUNCTION fail_%[1]s() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN
				IF nextval('%[2]s') <= %[3]d THEN RAISE EXCEPTION 'given up' USING ERRCODE = '%[4]s'; END IF;
				RETURN NEW;
			END $$`, table, name, n, sqlstate),
		fmt.Sprintf("CREATE TRIGGER fail BEFORE INSERT ON pushmesh.%[1]s FOR EACH ROW EXECUTE FUNCTION fail_%[1]s()", table))
	return func() (last int) {
		conn, err := pgx.Connect(t.Context(), url)
		need(t, err)
		defer func() { need(t, conn.Close(t.Context())) }()
		need(t, conn.QueryRow(t.Context(), "SELECT last_value FROM "+name).Scan(&last))
		return last
	}
}

func rows(t *testing.T, url, table string) (n int) {
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	need(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pushmesh."+table).Scan(&n))
	return n
}

// A batch that the server gave up in favour of another transaction is tried three times more,
// whole, and no further; anything else isn't.
func TestCommitsThatLostAreTriedAgain(t *testing.T) {
	t.Parallel()
	whole := pgtest.URL(t) // with slices; the others are copies
	d := open(t, whole)
	need(t, d.MakeSlices(t.Context(), now()))
	need(t, d.Close())
	for name, c := range map[string]struct {
		sqlstate        string
		failures, tries int
		committed       bool
	}{
		"serialization failure":       {"40001", 3, 4, true},
		"deadlock":                    {"40P01", 1, 2, true},
		"serialization failures":      {"40001", 4, 4, false},
		"what would fail again":       {"23505", 1, 1, false},
		"no room for the transaction": {"53100", 1, 1, false},
	} {
		for runs := 1; runs <= 2; runs++ { // in one statement, and in several
			t.Run(fmt.Sprintf("%s, runs=%d", name, runs), func(t *testing.T) {
				url := pgtest.Copy(t, whole)
				d := open(t, url)
				w, h, err := writerOf(t.Context(), d, "a", 3)
				need(t, err)
				tries := failing(t, url, "batch", c.sqlstate, c.failures)
				b := batch(3, h.epoch[3], 1)
				for len(b.Runs) < runs {
					next := b.Runs[0]
					next.First = b.Runs[len(b.Runs)-1].Last() + 1
					b.Runs = append(b.Runs, next)
				}
				err = w.Commit(t.Context(), b)
				if c.committed != (err == nil) || !c.committed && !errors.Is(err, backend.ErrNotCommitted) {
					t.Fatalf("commit: %v", err)
				}
				if got := tries(); got != c.tries {
					t.Errorf("%d tries, want %d", got, c.tries)
				}
				yes, err := w.Committed(t.Context(), b.ID)
				need(t, err)
				want := 0
				if c.committed {
					want = runs
				}
				if n := rows(t, url, "log"); yes != c.committed || n != want {
					t.Errorf("committed: %v, with %d rows, want %d", yes, n, want)
				}
				if !c.committed { // the writer is still good
					execute(t, url, "DROP TRIGGER fail ON pushmesh.batch")
					need(t, w.Commit(t.Context(), b))
				}
			})
		}
	}
}

// The same holds for transactions of the pool.
func TestTransactionsThatLostAreTriedAgain(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	tries := failing(t, url, "session", "40001", 3)
	_, err := d.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: "phone", EdgeId: "e"}, backend.Quota{}, now())
	need(t, err)
	if got := tries(); got != 4 {
		t.Errorf("%d tries, want 4", got)
	}
	if n := rows(t, url, "session"); n != 1 {
		t.Errorf("%d sessions", n)
	}
}
