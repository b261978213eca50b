package postgres

import (
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

func TestInspect(t *testing.T) {
	d := open(t, pgtest.URL(t))
	all := d.Inspect(t.Context())
	if len(all) != 1 || all[0].GetProblem() != "" || all[0].GetKind() != "postgres" || all[0].GetName() != Home {
		t.Fatalf("%v", all)
	}
	i := all[0]
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit", "max_connections", "min_wal_size", "server_version"} {
		if i.GetSettings()[name] == "" {
			t.Errorf("%s is not told", name)
		}
	}
	if i.GetConnections() == 0 || i.GetStoreConnections() < 20 || i.GetPooler() != meshv1.InspectedDatabase_POOLER_NONE {
		t.Errorf("%v", i)
	}
	need(t, d.Close())
	if gone := d.Inspect(t.Context())[0]; gone.GetProblem() == "" || len(gone.GetSettings()) > 0 {
		t.Errorf("a database that is closed: %v", gone)
	}
}
