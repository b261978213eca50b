package store

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// What docs/postgres.md says of connections, and what stores say of themselves, is what the server
// has of them.
func TestConnectionsOfStoresAreThoseThatAreTold(t *testing.T) {
	t.Parallel()
	nats, server := natsServer(t), pgtest.New(t)
	const stores = 2
	var all []*Store
	for _, id := range []string{"a", "b"} {
		all = append(all, serving(t, Settings{ID: id, DB: server.URL(), NATS: nats.ClientURL(), LogLevel: "error"}))
	}
	conn, err := pgx.Connect(t.Context(), server.Superuser())
	need(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	want := map[string]int{"pushmesh-writer": 2 * stores, "pushmesh-watch": stores, "pushmesh-claims": stores, "pushmesh-outbox": 1}
	var beside map[string]int
	eventually(t, "each store has its connections", func() bool {
		rows, err := conn.Query(t.Context(), `SELECT application_name, count(*) FROM pg_stat_activity WHERE application_name LIKE 'pushmesh-%' GROUP BY 1`)
		need(t, err)
		beside = map[string]int{}
		var name string
		var n int
		_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
			beside[name] = n
			return nil
		})
		need(t, err)
		if pool := beside["pushmesh-store"]; pool > stores*20 {
			t.Fatalf("%d connections of pools", pool)
		}
		delete(beside, "pushmesh-store")
		return maps.Equal(beside, want)
	})
	// as docs/postgres.md has it, but for the outbox, which is no store's own
	const sum = stores * (2 + 1 + 1 + 20)
	// The server shows a connection before its store has begun to use it.
	eventually(t, fmt.Sprintf("stores tell of the %d connections that the server may have", sum), func() bool {
		told := 0
		for _, st := range all {
			answer, err := dial(t, st.Addr()).Inspect(within(t), &meshv1.InspectRequest{})
			need(t, err)
			told += int(answer.GetDatabases()[0].GetStoreConnections())
		}
		return told == sum
	})
}
