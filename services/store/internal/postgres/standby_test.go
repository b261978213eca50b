package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// Where somebody cancels a commit that waits for its standby, the server says OK with a warning: it
// is on one disk, and would be lost with it. That is no answer, whoever committed.
func TestACancelledWaitForTheStandbyIsNoAnswer(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	standby := pgtest.NewStandby(t, pg, "standby")
	need(t, pg.AwaitStandby("standby"))
	d := openWith(t, Config{URL: pg.URL(), Patience: backendtest.Patience})
	need(t, d.MakeSlices(t.Context(), now()))
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	need(t, w.Commit(t.Context(), batch(3, h.epoch[3], 1)))
	claims, err := d.OpenClaims(t.Context(), owner("a"))
	need(t, err)
	taken, _, err := claims.Take(t.Context(), []int{3}, true, func(backend.ClaimPlace) {})
	need(t, err)
	second := batch(3, h.epoch[3], 2)
	for _, c := range []struct {
		who    string
		commit func(ctx context.Context) error
	}{
		{"an append", func(ctx context.Context) error { return w.Commit(ctx, second) }},
		{"a claim", func(ctx context.Context) error {
			_, err := claims.Commit(ctx, &backend.ClaimChanges{Put: []backend.ClaimPlace{{ClaimKey: backend.ClaimKey{Shard: 3, Seq: taken[0].Next}, Owner: "o"}}})
			return err
		}},
		{"a take of claims", func(ctx context.Context) error {
			r, err := d.OpenClaims(ctx, owner("b"))
			if err != nil {
				return err
			}
			defer func() { need(t, r.Close()) }()
			_, _, err = r.Take(ctx, []int{4}, true, func(backend.ClaimPlace) {})
			return err
		}},
		{"a take of shards", func(ctx context.Context) error {
			w, err := d.OpenWriter(ctx, owner("b"))
			if err != nil {
				return err
			}
			defer func() { need(t, w.Close()) }()
			_, err = w.TakeShards(ctx, []int{4})
			return err
		}},
		{"a session", func(ctx context.Context) error {
			_, err := d.AttachSession(ctx, &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: "e"}, backend.Quota{}, now())
			return err
		}},
	} {
		need(t, standby.Pause())
		outcome := make(chan error, 1)
		go func() { outcome <- c.commit(t.Context()) }()
		err := cancelWaits(t, pg, outcome)
		need(t, standby.Resume())
		if err == nil {
			t.Errorf("%s was answered, though it is on one disk alone", c.who)
		}
		t.Log(c.who, err)
	}
	if t.Failed() { // whoever was answered still has what others wait for below
		return
	}

	// Another writer of the same store finds the append, once the standby has it.
	next, _, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	if there, err := next.Committed(t.Context(), second.ID); err != nil || !there {
		t.Errorf("the append is there: %t, %v", there, err)
	}
	need(t, d.Close()) // while there is a standby to wait for
	need(t, pg.Kill())
	need(t, standby.TakeOver())
	promoted := openWith(t, Config{URL: standby.URL(), Patience: backendtest.Patience, TrustPromotion: true})
	after, _, err := writerOf(t.Context(), promoted, "a", 3)
	need(t, err)
	if there, err := after.Committed(t.Context(), second.ID); err != nil || !there {
		t.Errorf("the promoted standby has it: %t, %v", there, err)
	}
}

// cancelWaits cancels whoever waits for a standby until there is an outcome.
func cancelWaits(t *testing.T, pg *pgserver.Server, outcome <-chan error) error {
	t.Helper()
	conn := connected(t, pg.Superuser())
	defer func() { need(t, conn.Close(context.Background())) }()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(backendtest.Patience)
	for {
		_, err := conn.Exec(t.Context(), `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		need(t, err)
		select {
		case err := <-outcome:
			return err
		case <-deadline:
			t.Fatal(fmt.Errorf("no outcome within %s", backendtest.Patience))
		case <-poll.C:
		}
	}
}
