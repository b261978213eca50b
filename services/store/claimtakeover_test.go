package store

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// either has the store whose shard it is do an operation.
func either(t testing.TB, o *meshv1.ClaimOp, nodes ...*claimNode) (r *meshv1.ClaimResult) {
	t.Helper()
	eventually(t, fmt.Sprint("a store answers ", o), func() bool {
		for _, n := range nodes {
			r = <-n.begin(o)[0]
			if c := r.GetCode(); r != nil && c != wirev1.Code_CODE_UNAVAILABLE && c != wirev1.Code_CODE_CONFLICT {
				return true
			}
		}
		return false
	})
	return r
}

// deskIn is a resource whose shard lies in the lower half or not.
func deskIn(lower bool) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("desk/", i); (topic.Shard(name) < topic.Shards/2) == lower {
			return name
		}
	}
}

func end(t testing.TB, process *exec.Cmd) {
	t.Helper()
	need(t, process.Process.Kill())
	_ = process.Wait() // it was killed
}

// freeze stops a process. Until each of its threads stands still it may answer.
func freeze(t testing.TB, process *exec.Cmd) {
	t.Helper()
	need(t, process.Process.Signal(syscall.SIGSTOP))
	eventually(t, "the process stands still", func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", process.Process.Pid))
		need(t, err)
		for _, path := range stats {
			stat, err := os.ReadFile(path) // #nosec G304 -- of a child
			if _, state, found := bytes.Cut(stat, []byte(") ")); err == nil && found && !bytes.ContainsAny(state[:1], "TZX") {
				return false
			}
		}
		return true
	})
}

// The owner of a shard is frozen, so that another store takes its claims, thaws, and is killed
// later: who holds keeps the hold, the line its order; tokens grow, and nobody gets what another
// has.
func TestClaimsTakenOver(t *testing.T) {
	t.Parallel()
	nats, db := natsServer(t), pgtest.URL(t)
	process, first := firstStore(t, nats.ClientURL(), db)
	st := serving(t, Settings{ID: "second", DB: db, NATS: nats.ClientURL(), LogLevel: "error"})
	second := dial(t, st.Addr())
	half := map[string]int{"first": topic.Shards / 2, "second": topic.Shards / 2}
	eventually(t, "the shards are divided", func() bool { return fmt.Sprint(shares(t, first)) == fmt.Sprint(half) })
	desks(t, second, first)
	desk := deskIn(true)
	a, b := newClaimNode(t, first, "edge:1"), newClaimNode(t, second, "edge:1")
	join := func(owner string, conn uint64) *meshv1.ClaimOp { return acquireTold(desk, owner, conn) }
	ann := claimIs(t, either(t, join("ann", 1), a, b), claimGranted)
	for i, owner := range []string{"bob", "cid", "dan"} {
		claimIs(t, either(t, join(owner, uint64(i)+2), a, b), claimQueued)
	}
	op := func(kind meshv1.ClaimOp_Kind, owner string, token uint64) *meshv1.ClaimOp {
		return claimOp(kind, desk, owner, token)
	}

	freeze(t, process)
	stale := a.begin(op(meshv1.ClaimOp_KIND_RENEW, "ann", ann.GetToken()), op(meshv1.ClaimOp_KIND_RELEASE, "ann", ann.GetToken()))
	frozen := time.Now()
	if r := claimIs(t, either(t, join("ann", 1), b), claimGranted); r.GetToken() != ann.GetToken() {
		t.Errorf("%v, had token %d", r, ann.GetToken())
	}
	t.Logf("taken over after %s", time.Since(frozen).Round(time.Millisecond))
	for i, owner := range []string{"bob", "cid", "dan"} {
		if r := claimIs(t, either(t, join(owner, uint64(i)+2), b), claimQueued); r.GetPosition() != uint32(i)+1 {
			t.Errorf("%s: %v", owner, r)
		}
	}
	claimIs(t, either(t, op(meshv1.ClaimOp_KIND_RELEASE, "ann", ann.GetToken()), b), claimFreed)
	bob := b.next("bob", claimGranted)
	if bob.GetToken() <= ann.GetToken() {
		t.Errorf("token %d after %d", bob.GetToken(), ann.GetToken())
	}
	claimIs(t, either(t, op(meshv1.ClaimOp_KIND_RENEW, "bob", bob.GetToken()), b), claimGranted)
	need(t, process.Process.Signal(syscall.SIGCONT))
	for _, c := range stale {
		if r := <-c; r != nil && r.GetCode() == wirev1.Code_CODE_OK && r.GetState().GetCode() != wirev1.Code_CODE_NOT_HELD {
			t.Errorf("the store that was frozen says %v", r)
		}
	}
	// It has its half again, or will: whoever answers knows of bob alone.
	if r := either(t, op(meshv1.ClaimOp_KIND_RENEW, "ann", ann.GetToken()), a, b); r.GetCode() != wirev1.Code_CODE_NOT_HELD {
		t.Errorf("an old token: %v", r)
	}
	eventually(t, "the shards are divided again", func() bool { return fmt.Sprint(shares(t, second)) == fmt.Sprint(half) })
	if r := claimIs(t, either(t, join("bob", 2), a), claimGranted); r.GetToken() != bob.GetToken() {
		t.Errorf("%v, had token %d", r, bob.GetToken())
	}

	end(t, process)
	killed := time.Now()
	claimIs(t, either(t, join("dan", 4), b), claimQueued)
	t.Logf("taken over after %s", time.Since(killed).Round(time.Millisecond))
	claimIs(t, either(t, join("cid", 3), b), claimQueued)
	claimIs(t, either(t, op(meshv1.ClaimOp_KIND_RELEASE, "bob", bob.GetToken()), b), claimFreed)
	if cid := b.next("cid", claimGranted); cid.GetToken() <= bob.GetToken() {
		t.Errorf("token %d after %d", cid.GetToken(), bob.GetToken())
	}
}

// Postgres is killed and comes back: nothing is lost, and the store goes on by itself.
func TestClaimsPostgresRestarted(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	st := serving(t, Settings{ID: "s1", DB: server.URL(), Standalone: true, LogLevel: "error"})
	desks(t, dial(t, st.Addr()))
	n := newClaimNode(t, dial(t, st.Addr()), "edge:1")
	hold := acquireTold("desk/1", "ann", 1)
	ann := claimIs(t, n.do(hold), claimGranted)
	claimIs(t, n.do(acquireTold("desk/1", "bob", 2)), claimQueued)
	need(t, server.Kill())
	eventually(t, "operations are refused", func() bool {
		r := <-n.begin(claimOp(meshv1.ClaimOp_KIND_CHECK, "desk/1", "ann", 0))[0]
		return r.GetCode() == wirev1.Code_CODE_UNAVAILABLE
	})
	need(t, server.Restart())
	if r := claimIs(t, n.do(hold), claimGranted); r.GetToken() != ann.GetToken() {
		t.Errorf("%v, had token %d", r, ann.GetToken())
	}
	claimIs(t, n.do(acquireTold("desk/1", "bob", 2)), claimQueued)
	claimIs(t, n.do(claimOp(meshv1.ClaimOp_KIND_RELEASE, "desk/1", "ann", ann.GetToken())), claimFreed)
	if bob := n.next("bob", claimGranted); bob.GetToken() <= ann.GetToken() {
		t.Errorf("token %d after %d", bob.GetToken(), ann.GetToken())
	}
}
