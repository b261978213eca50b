package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/pgtest"
)

// Connections of the pool are set up so that plans stay like that.
func TestConnectionsAreSetUp(t *testing.T) {
	d := open(t, pgtest.URL(t))
	for name, want := range map[string]string{
		"enable_seqscan": "off", "jit": "off", "plan_cache_mode": "force_generic_plan", "TimeZone": "UTC", "synchronous_commit": "on",
		"idle_in_transaction_session_timeout": "10s", "tcp_user_timeout": "5000",
	} {
		var got string
		need(t, d.Do(t.Context(), func(ctx context.Context, conn *pgxpool.Conn) error {
			return conn.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&got)
		}))
		if got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
