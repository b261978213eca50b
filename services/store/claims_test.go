package store

import (
	"path/filepath"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	claimGranted = wirev1.ClaimState_STATE_GRANTED
	claimQueued  = wirev1.ClaimState_STATE_QUEUED
	claimLost    = wirev1.ClaimState_STATE_LOST
	claimFreed   = wirev1.ClaimState_STATE_RELEASED
)

// onBoth runs a test on each kind of database.
func onBoth(t *testing.T, f func(t *testing.T, db string)) {
	t.Run("sqlite", func(t *testing.T) { f(t, "sqlite:"+filepath.Join(t.TempDir(), "store.db")) })
	t.Run("postgres", func(t *testing.T) { f(t, pgtest.URL(t)) })
}

// A resource goes from hand to hand: by release, by expiry, and through a planned stop of the store.
func TestClaims(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db string) {
		st := started(t, Settings{ID: "s1", DB: db, Standalone: true, LogLevel: "error"})
		e1, e2 := newClaimNode(t, dial(t, st.Addr()), "edge:1"), newClaimNode(t, dial(t, st.Addr()), "edge:2")
		first := acquireTold("room/1", "ann", 1)
		first.TtlMs = 60_000
		ann := claimIs(t, e1.do(first), claimGranted)
		second := acquireTold("room/1", "bob", 2)
		second.TtlMs = 1000
		claimIs(t, e2.do(second), claimQueued)
		third := acquireTold("room/1", "cid", 3)
		third.TtlMs = 60_000
		if q := claimIs(t, e2.do(third), claimQueued); q.GetPosition() != 2 || q.GetHolder() != "ann" {
			t.Errorf("%v", q)
		}
		claimIs(t, e1.do(claimOp(meshv1.ClaimOp_KIND_RELEASE, "room/1", "ann", ann.GetToken())), claimFreed)
		bob := e2.next("bob", claimGranted)
		if bob.GetToken() <= ann.GetToken() {
			t.Errorf("token %d after %d", bob.GetToken(), ann.GetToken())
		}
		e2.next("bob", claimLost) // after a second, or had it been taken up in two
		cid := e2.next("cid", claimGranted)
		claimIs(t, e2.do(claimOp(meshv1.ClaimOp_KIND_RENEW, "room/1", "cid", cid.GetToken())), claimGranted)
		if r := e2.do(claimOp(meshv1.ClaimOp_KIND_RENEW, "room/1", "bob", bob.GetToken())); r.GetCode() != wirev1.Code_CODE_NOT_HELD {
			t.Errorf("an old token: %v", r)
		}
		claimIs(t, e1.do(acquireTold("room/1", "ann", 1)), claimQueued)
		need(t, st.Stop(within(t)))

		st = serving(t, Settings{ID: "s1", DB: db, Standalone: true, LogLevel: "error"})
		e1, e2 = newClaimNode(t, dial(t, st.Addr()), "edge:1"), newClaimNode(t, dial(t, st.Addr()), "edge:2")
		if again := claimIs(t, e2.do(acquireTold("room/1", "cid", 3)), claimGranted); again.GetToken() != cid.GetToken() {
			t.Errorf("%v, had token %d", again, cid.GetToken())
		}
		claimIs(t, e1.do(acquireTold("room/1", "ann", 1)), claimQueued)
		claimIs(t, e2.do(claimOp(meshv1.ClaimOp_KIND_RELEASE, "room/1", "cid", cid.GetToken())), claimFreed)
		if ann = e1.next("ann", claimGranted); ann.GetToken() <= cid.GetToken() {
			t.Errorf("token %d after %d", ann.GetToken(), cid.GetToken())
		}
	})
}
