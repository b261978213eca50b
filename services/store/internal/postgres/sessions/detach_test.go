package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/pgtest"
)

// node of a plan that was executed.
type node struct {
	Type    string  `json:"Node Type"`
	Index   string  `json:"Index Name"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Plans   []node  `json:"Plans"`
}

// looked adds up how many rows were looked at by each way to a table.
func (n *node) looked(at map[string]float64) {
	if strings.HasSuffix(n.Type, "Scan") && n.Type != "CTE Scan" && n.Type != "Function Scan" {
		at[strings.TrimSpace(n.Type+" "+n.Index)] += n.Loops * (n.Rows + n.Removed)
	}
	for i := range n.Plans {
		n.Plans[i].looked(at)
	}
}

// Whatever the server knows of the table, a slice of an edge's sessions is found by the index, and
// no more than that is looked at: neither all sessions nor all that the edge holds.
func TestASliceLooksAtNoOtherSessions(t *testing.T) {
	t.Parallel()
	const slice = 20
	url := pgtest.URL(t)
	d := open(t, url)
	undone := errors.New("undone")
	for _, held := range []string{"nothing", "much", "all"} {
		mine := map[string]int{"nothing": 1000, "much": 20_000, "all": 40_000}[held]
		t.Run(held, func(t *testing.T) {
			pgtest.Exec(t, url, `TRUNCATE pushmesh.session`)
			pgtest.Exec(t, url, `INSERT INTO pushmesh.session (user_id, name, generation, connection_id, attached_at, expires_at, ttl, edge)
				SELECT 'user-' || i, 'phone', 1, i, 1, 0, 3600000000, CASE WHEN i <= $1 THEN 'gone' ELSE 'edge-' || i % 3 END FROM generate_series(1, 40000) AS i`, mine)
			if held != "nothing" { // is known of the table
				pgtest.Exec(t, url, `ANALYZE pushmesh.session`)
			}
			looked, text := map[string]float64{}, ""
			err := d.server.Do(t.Context(), func(ctx context.Context, conn *pgxpool.Conn) error {
				return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, `PREPARE slice (text, bigint, bigint) AS `+detachEdge); err != nil {
						return err
					}
					defer func() { _, _ = tx.Exec(ctx, `DEALLOCATE slice`) }()
					if err := tx.QueryRow(ctx, fmt.Sprintf(`EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE slice ('gone', 2, %d)`, slice), pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
						return err
					}
					return undone
				})
			})
			if !errors.Is(err, undone) {
				t.Fatal(err)
			}
			var plans []struct{ Plan node }
			need(t, json.Unmarshal([]byte(text), &plans))
			plans[0].Plan.looked(looked)
			if len(looked) != 2 || looked["Index Scan session_edge"] != slice || looked["Index Scan session_pkey"] != slice {
				t.Errorf("for a slice of %d of %d these rows were looked at: %v\n%s", slice, mine, looked, text)
			}
		})
	}
}
