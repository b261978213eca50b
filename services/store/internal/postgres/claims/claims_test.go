package claims

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// claimsOf opens a run that has taken shard 3, and says the first of its numbers.
func claimsOf(t *testing.T, d *Claims, id string, force bool) (*writer, uint64) {
	t.Helper()
	opened, err := d.OpenClaims(t.Context(), owner(id))
	need(t, err)
	t.Cleanup(func() { _ = opened.Close() })
	r, ok := opened.(*writer)
	if !ok {
		t.Fatalf("a %T", opened)
	}
	taken, _, err := r.Take(t.Context(), []int{3}, force, func(backend.ClaimPlace) {})
	need(t, err)
	return r, taken[0].Next
}

// A store that was frozen in the middle of what it says to the server leaves a transaction open,
// which would have the run for ever.
func TestAFrozenStoresClaimsAreTaken(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	frozen, _ := claimsOf(t, d, "frozen", false)
	_, err := frozen.conn.Exec(t.Context(), `BEGIN`)
	need(t, err)
	_, err = frozen.conn.Exec(t.Context(), `SELECT FROM pushmesh.claim_run WHERE id = $1 FOR KEY SHARE`, frozen.id)
	need(t, err)
	begun := time.Now()
	other, next := claimsOf(t, d, "other", true)
	t.Logf("taken after %s", time.Since(begun))
	_, err = other.Commit(t.Context(), &backend.ClaimChanges{Put: []backend.ClaimPlace{{ClaimKey: backend.ClaimKey{Shard: 3, Seq: next}}}})
	need(t, err)
	_, err = frozen.Commit(t.Context(), &backend.ClaimChanges{})
	if e := code.From(err); err == nil || !errors.Is(err, backend.ErrFenced) && e.Code != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("the frozen store's commit: %v", err)
	}
}

// Runs whose backend is gone are taken from without force, and forgotten; others are not.
func TestRunsOfClaimsThatAreOverAreForgotten(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	live, err := d.OpenClaims(t.Context(), owner("live"))
	need(t, err)
	defer func() { need(t, live.Close()) }()
	gone, _ := claimsOf(t, d, "gone", false)
	// what a later process with its pid would be
	pgtest.Exec(t, url, `UPDATE pushmesh.claim_run SET backend_start = backend_start - interval '1 s' WHERE store_id = 'gone'`)
	_, err = live.Commit(t.Context(), &backend.ClaimChanges{})
	need(t, err)
	_, _, err = live.Take(t.Context(), []int{3}, false, func(backend.ClaimPlace) {})
	need(t, err)
	if _, err := gone.Commit(t.Context(), &backend.ClaimChanges{}); !errors.Is(err, backend.ErrFenced) {
		t.Errorf("the run that was taken from: %v, want ErrFenced", err)
	}
	lost, _ := claimsOf(t, d, "lost", true)
	pgtest.Terminate(t, url, `application_name = 'pushmesh-claims'`)
	last, err := d.OpenClaims(t.Context(), owner("last"))
	need(t, err)
	defer func() { need(t, last.Close()) }()
	if _, err := lost.Commit(t.Context(), &backend.ClaimChanges{}); err == nil || code.From(err).Code != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("a run without its backend: %v", err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	var runs, mine int
	need(t, conn.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE store_id = 'last') FROM pushmesh.claim_run`).Scan(&runs, &mine))
	if runs != 1 || mine != 1 {
		t.Errorf("%d runs are recorded, %d of them the last one's; want that alone", runs, mine)
	}
}

// A shard that somebody takes at this moment is somebody's, and asking for it does a run no harm.
func TestClaimsThatAreBeingTakenAreTaken(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	r, _ := claimsOf(t, d, "a", false)
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	tx, err := conn.Begin(t.Context())
	need(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM pushmesh.claim_shard WHERE shard = 4 FOR UPDATE`)
	need(t, err)
	none := func(backend.ClaimPlace) {}
	if _, _, err := r.Take(t.Context(), []int{4, 3}, false, none); !errors.Is(err, backend.ErrShardTaken) {
		t.Errorf("got %v, want ErrTaken", err)
	}
	need(t, tx.Rollback(t.Context()))
	_, err = r.Commit(t.Context(), &backend.ClaimChanges{})
	need(t, err)
	_, _, err = r.Take(t.Context(), []int{4, 3}, false, none)
	need(t, err)
}

// What people look at.
func TestClaimsCanBeLookedAt(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	r, next := claimsOf(t, d, "a", false)
	_, err := r.Commit(t.Context(), &backend.ClaimChanges{Put: []backend.ClaimPlace{{
		ClaimKey: backend.ClaimKey{Shard: 3, Seq: next}, Resource: "room/1", Owner: "o\xff", Token: next + 1, JoinedAt: 1_700_000_000_000_000, GrantedAt: 1_700_000_000_500_000,
	}}})
	need(t, err)
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	var row string
	need(t, conn.QueryRow(t.Context(), `SELECT concat_ws(' ', resource, owner, token = $1, extract(epoch FROM granted_at), gone_at IS NULL, store_id) FROM pushmesh.claim`, int64(next+1)).Scan(&row))
	if want := `room/1 o\377 t 1700000000.500000 t a`; row != want {
		t.Errorf("got %s\nwant %s", row, want)
	}
}
