package store

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
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

// A resource goes from hand to hand: by release, by expiry, and through a planned stop of the
// store.
func TestClaims(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db string) {
		st := started(t, Settings{ID: "s1", DB: db, Standalone: true, LogLevel: "error"})
		desks(t, dial(t, st.Addr()))
		e1, e2 := newClaimNode(t, dial(t, st.Addr()), "edge:1"), newClaimNode(t, dial(t, st.Addr()), "edge:2")
		first := acquireTold("desk/1", "ann", 1)
		ann := claimIs(t, e1.do(first), claimGranted)
		second := acquireTold("desk/1", "bob", 2)
		second.TtlMs = 1000
		claimIs(t, e2.do(second), claimQueued)
		third := acquireTold("desk/1", "cid", 3)
		if q := claimIs(t, e2.do(third), claimQueued); q.GetPosition() != 2 || q.GetHolder() != "ann" {
			t.Errorf("%v", q)
		}
		claimIs(t, e1.do(claimOp(meshv1.ClaimOp_KIND_RELEASE, "desk/1", "ann", ann.GetToken())), claimFreed)
		bob := e2.next("bob", claimGranted)
		if bob.GetToken() <= ann.GetToken() {
			t.Errorf("token %d after %d", bob.GetToken(), ann.GetToken())
		}
		e2.next("bob", claimLost) // after a second
		cid := e2.next("cid", claimGranted)
		claimIs(t, e2.do(claimOp(meshv1.ClaimOp_KIND_RENEW, "desk/1", "cid", cid.GetToken())), claimGranted)
		if r := e2.do(claimOp(meshv1.ClaimOp_KIND_RENEW, "desk/1", "bob", bob.GetToken())); r.GetCode() != wirev1.Code_CODE_NOT_HELD {
			t.Errorf("an old token: %v", r)
		}
		claimIs(t, e1.do(acquireTold("desk/1", "ann", 1)), claimQueued)
		need(t, st.Stop(within(t)))

		st = serving(t, Settings{ID: "s1", DB: db, Standalone: true, LogLevel: "error"})
		e1, e2 = newClaimNode(t, dial(t, st.Addr()), "edge:1"), newClaimNode(t, dial(t, st.Addr()), "edge:2")
		if again := claimIs(t, e2.do(acquireTold("desk/1", "cid", 3)), claimGranted); again.GetToken() != cid.GetToken() {
			t.Errorf("%v, had token %d", again, cid.GetToken())
		}
		claimIs(t, e1.do(acquireTold("desk/1", "ann", 1)), claimQueued)
		claimIs(t, e2.do(claimOp(meshv1.ClaimOp_KIND_RELEASE, "desk/1", "cid", cid.GetToken())), claimFreed)
		if ann = e1.next("ann", claimGranted); ann.GetToken() <= cid.GetToken() {
			t.Errorf("token %d after %d", ann.GetToken(), cid.GetToken())
		}
	})
}

// Who holds and who waits is listed in pages, of one resource or of all below a prefix.
func TestListClaims(t *testing.T) {
	_, c := standalone(t, filepath.Join(t.TempDir(), "store.db"))
	desks(t, c)
	n := newClaimNode(t, c, "edge:1")
	for i := range 20 {
		for _, owner := range []string{"ann", "bob", "cid"} {
			n.do(acquireTold(fmt.Sprint("desk/", i), owner, uint64(i)+1))
		}
	}
	n.do(claimOp(meshv1.ClaimOp_KIND_ACQUIRE, "room/1", "ann", 0))
	list := func(resource, prefix string) (got []string) {
		t.Helper()
		req := &meshv1.StoreServiceListClaimsRequest{Resource: resource, Prefix: prefix, Limit: 7}
		for req.GetShard() < topic.Shards {
			resp, err := c.ListClaims(within(t), req)
			need(t, err)
			for _, p := range resp.GetPlaces() {
				got = append(got, fmt.Sprint(p.GetResource(), " ", p.GetOwner(), " ", p.GetPosition(), " ", p.GetToken() != 0, " ", p.GetNode()))
			}
			req.Shard, req.After = resp.GetNextShard(), resp.GetAfter()
		}
		return got
	}
	want := []string{"desk/7 ann 0 true edge:1", "desk/7 bob 1 false edge:1", "desk/7 cid 2 false edge:1"}
	if diff := cmp.Diff(want, list("desk/7", "")); diff != "" {
		t.Error(diff)
	}
	all := list("", "desk/1")
	seen := map[string]bool{}
	for _, p := range all {
		seen[p] = true
	}
	if len(all) != 33 || len(seen) != 33 || !seen["desk/19 cid 2 false edge:1"] { // 1 and 10 to 19
		t.Errorf("%d, %d: %v", len(all), len(seen), all)
	}
	if got := list("desk/none", ""); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
