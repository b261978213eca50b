package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// Who attaches a session that is deleted, or adopted, at that moment has a new one.
func TestASessionGoesWhileItIsAttached(t *testing.T) {
	t.Parallel()
	url, wire := pgtest.URL(t), &pgtest.Wire{}
	d := openWith(t, Config{URL: url, Dial: wire.Dial, Patience: backendtest.Patience})
	ask := &meshv1.AttachSessionRequest{User: "ann", Name: "s", EdgeId: "e"}
	first, err := d.AttachSession(t.Context(), ask, backend.Quota{}, now())
	need(t, err)
	other, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, other.Close(t.Context())) }()
	gone := false
	wire.Judge(func(s pgtest.Statement) pgtest.Fate {
		if !gone && strings.Contains(s.SQL, "FROM pushmesh.session WHERE") && strings.Contains(s.SQL, "FOR UPDATE") {
			gone = true
			_, err := other.Exec(t.Context(), `DELETE FROM pushmesh.session`)
			need(t, err)
		}
		return pgtest.Pass
	})
	again, err := d.AttachSession(t.Context(), ask, backend.Quota{}, now())
	need(t, err)
	if !gone || again.GetResumed() || again.GetGeneration() <= first.GetGeneration() {
		t.Errorf("gone %v: %v, after %v", gone, again, first)
	}
}
