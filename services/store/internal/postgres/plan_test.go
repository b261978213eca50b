package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/pgtest"
)

// What is asked all the time is answered from indexes in order, whatever the planner knows of
// slices that were made a moment ago.
func TestReadsAreAnsweredFromIndexesInOrder(t *testing.T) {
	d := open(t, pgtest.URL(t))
	need(t, d.MakeSlices(t.Context(), now()))
	plan, err := query(t.Context(), d, pgx.RowTo[string], `EXPLAIN `+strings.NewReplacer("$1", "'x'", "$2", "1", "$3", "5", "$4", "9").Replace(readRuns)+"32")
	need(t, err)
	text := strings.Join(plan, "\n")
	if strings.Contains(text, "Seq Scan") || strings.Contains(text, "Sort  ") || !strings.Contains(text, "Merge Append") {
		t.Errorf("the plan of a read:\n%s", text)
	}
}

// Connections of the pool are set up so that plans stay like that.
func TestConnectionsAreSetUp(t *testing.T) {
	d := open(t, pgtest.URL(t))
	for name, want := range map[string]string{
		"enable_seqscan": "off", "jit": "off", "plan_cache_mode": "force_generic_plan", "TimeZone": "UTC", "synchronous_commit": "on",
		"idle_in_transaction_session_timeout": "10s", "tcp_user_timeout": "5000",
	} {
		var got string
		need(t, d.do(t.Context(), func(ctx context.Context, conn *pgxpool.Conn) error {
			return conn.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&got)
		}))
		if got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
