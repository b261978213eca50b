package book

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// told are the pushes of the last step, as "connection state position code".
func (d *desk) told() (all []string) {
	for _, p := range d.got.Pushes {
		st := p.GetState()
		all = append(all, fmt.Sprint(p.GetConn(), " ", st.GetState().String()[len("STATE_"):], " ", st.GetPosition(), " ", st.GetCode().String()[len("CODE_"):]))
	}
	return all
}

func (d *desk) tells(want ...string) {
	d.t.Helper()
	if got := d.told(); !slices.Equal(got, want) {
		d.t.Errorf("told %q, not %q", got, want)
	}
}

// prepared ends the one call of the last step.
func (d *desk) prepared(a Prepare, ok bool) {
	d.b.Prepared(d.now, a.Key, a.Token, ok)
	d.take()
}

func (d *desk) asked() Prepare {
	d.t.Helper()
	if len(d.got.Prepare) != 1 {
		d.t.Fatalf("asked for %v", d.got.Prepare)
	}
	return d.got.Prepare[0]
}

func successorOf(name string) func(*Op) { return func(op *Op) { op.Successor = name } }

func withPrepare(c *policy.Claims) { c.Prepare = &policy.Prepare{} }

// An offer that is declined, or not taken up, passes on.
func TestOfferPassesOn(t *testing.T) {
	d := newDesk(t)
	d.b.NodeUp(d.now, "edge:1", 1)
	a := d.is(d.do(acquire, "a"), isGranted)
	for i, owner := range []string{"b", "c", "e"} {
		d.is(d.do(acquire, owner, conn(uint64(i+2))), isQueued)
	}
	d.is(d.do(release, "a", token(a.Token)), isReleased)
	d.tells("2 GRANTED 0 OK", "3 QUEUED 1 OK", "4 QUEUED 2 OK")
	d.is(d.do(leave, "b", conn(2)), isReleased)
	d.tells("3 GRANTED 0 OK", "4 QUEUED 1 OK")
	d.advance(2*time.Second - time.Microsecond)
	d.tells()
	d.advance(time.Microsecond)
	d.tells("3 LOST 0 ACK_TIMEOUT", "4 GRANTED 0 OK")
	d.is(d.do(acquire, "e", conn(4)), isGranted)
	d.advance(10 * time.Second)
	d.is(d.do(leave, "e"), isGranted)
}

// A successor is before all who wait, has offer_ttl where it is told, and wait_ttl where it polls.
func TestSuccessor(t *testing.T) {
	d := newDesk(t)
	d.b.NodeUp(d.now, "edge:1", 1)
	a := d.is(d.do(acquire, "a"), isGranted)
	d.is(d.do(acquire, "b"), isQueued)
	d.is(d.do(acquire, "c", conn(3)), isQueued)
	d.refused(d.do(release, "a", token(a.Token), successorOf("a")), wirev1.Code_CODE_INVALID_ARGUMENT)
	d.is(d.do(release, "a", token(a.Token), successorOf("c")), isReleased)
	d.tells("3 GRANTED 0 OK")
	d.advance(2 * time.Second)
	d.tells("3 LOST 0 ACK_TIMEOUT")
	b := d.is(d.do(check_, "b"), isGranted)
	d.is(d.do(release, "b", token(b.Token), successorOf("new")), isReleased)
	d.advance(14 * time.Second)
	d.is(d.do(acquire, "e"), isQueued)
	d.is(d.do(renew, "new", token(d.is(d.do(check_, "new"), isGranted).Token)), isGranted)
}

// With fewer holders than hold, a successor waits for room, before all others, over a takeover too.
func TestSuccessorWithoutRoom(t *testing.T) {
	d := newDesk(t, func(c *policy.Claims) { c.Holders = 3 })
	var tokens []uint64
	for _, owner := range []string{"a", "b", "c"} {
		tokens = append(tokens, d.is(d.do(acquire, owner), isGranted).Token)
	}
	d.is(d.do(acquire, "w"), isQueued)
	d.is(d.do(acquire, "s"), isQueued)
	d.rules.Holders = 1
	d.refused(d.do(release, "a", token(tokens[0]), successorOf("b")), wirev1.Code_CODE_INVALID_ARGUMENT)
	d.is(d.do(release, "a", token(tokens[0]), successorOf("new")), isReleased)
	d.is(d.do(release, "b", token(tokens[1]), successorOf("s")), isReleased)
	d.b.Drop(shardOf("r"))
	d.load(shardOf("r"))
	for i, owner := range []string{"new", "s", "w"} {
		if st := d.is(d.do(check_, owner), isQueued); st.Position != uint32(i+1) {
			t.Errorf("%s is at %d", owner, st.Position)
		}
	}
	d.rules.Holders = 2 // raised: the next event would grant too
	d.b.Refresh(d.now)
	d.advance(0)
	d.is(d.do(check_, "new"), isGranted)
	d.is(d.do(check_, "s"), isQueued)
}

// Who is prepared waits at position 1, keeps its turn, and is granted the token that the call had.
func TestPrepare(t *testing.T) {
	d := newDesk(t, withPrepare)
	d.b.NodeUp(d.now, "edge:1", 1)
	if st := d.is(d.do(acquire, "a", conn(1)), isQueued); st.Position != 1 {
		t.Errorf("at %d", st.Position)
	}
	call := d.asked()
	d.is(d.do(acquire, "b", conn(2), func(op *Op) { op.Priority = 9 }), isQueued)
	if st := d.is(d.do(acquire, "a", conn(1)), isQueued); st.Position != 1 {
		t.Errorf("a priority overtook who was prepared: it is at %d", st.Position)
	}
	d.prepared(call, true)
	d.tells("1 GRANTED 0 OK", "2 QUEUED 1 OK")
	if a := d.is(d.do(check_, "a", conn(1)), isGranted); a.Token != call.Token {
		t.Errorf("token %d, the call had %d", a.Token, call.Token)
	}
	d.is(d.do(release, "a", token(call.Token)), isReleased)
	call = d.asked()
	d.prepared(call, false)
	d.tells("2 LOST 0 UNAVAILABLE")
}

// Who leaves while it is prepared leaves at once, but no other call is made before that one has
// ended.
func TestLeaveWhilePrepared(t *testing.T) {
	d := newDesk(t, withPrepare)
	d.is(d.do(acquire, "a"), isQueued)
	call := d.asked()
	d.is(d.do(acquire, "b"), isQueued)
	d.is(d.do(leave, "a"), isReleased)
	if st := d.is(d.do(acquire, "a"), isQueued); st.Position != 2 || len(d.got.Prepare) != 0 {
		t.Errorf("came back to %v, asked for %v", st, d.got.Prepare)
	}
	d.prepared(call, true)
	next := d.asked()
	if next.Owner != "b" || next.Token <= call.Token {
		t.Errorf("next: %v after %v", next, call)
	}
	d.prepared(next, true)
	d.is(d.do(check_, "b"), isGranted)
	d.prepared(next, true) // once more: it is over
	d.is(d.do(check_, "b"), isGranted)
}

// Of several slots, whoever is ready first waits until those before it are: tokens of a resource
// grow.
func TestPreparedInOrder(t *testing.T) {
	d := newDesk(t, withPrepare, func(c *policy.Claims) { c.Holders = 2 })
	d.is(d.do(acquire, "a"), isQueued)
	a := d.asked()
	d.is(d.do(acquire, "b"), isQueued)
	b := d.asked()
	d.prepared(b, true)
	d.is(d.do(check_, "b"), isQueued)
	d.prepared(a, false)
	d.is(d.do(check_, "b"), isGranted)
	d.is(d.do(check_, "a"), isHeld)
}

// The first 16 are told their positions at once, all others once a second.
func TestPositions(t *testing.T) {
	d := newDesk(t)
	d.b.NodeUp(d.now, "edge:1", 1)
	for i := range uint64(40) {
		d.do(acquire, fmt.Sprint("o", i), conn(i))
	}
	for i := range uint64(2) {
		d.do(leave, fmt.Sprint("o", i+1), conn(i+1))
		if len(d.got.Pushes) != 16 {
			t.Errorf("%d are told at once", len(d.got.Pushes))
		}
	}
	if n := len(d.advance(0).Pushes); n != 37-16 {
		t.Errorf("%d are told then", n)
	}
	d.do(leave, "o3", conn(3))
	d.advance(time.Second - time.Microsecond)
	d.tells()
	if n := len(d.advance(time.Microsecond).Pushes); n != 36-16 {
		t.Errorf("%d are told a second later", n)
	}
}
