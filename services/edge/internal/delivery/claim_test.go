package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

const (
	granted  = wirev1.ClaimState_STATE_GRANTED
	queued   = wirev1.ClaimState_STATE_QUEUED
	lost     = wirev1.ClaimState_STATE_LOST
	released = wirev1.ClaimState_STATE_RELEASED
	free     = wirev1.ClaimState_STATE_FREE
	taken    = wirev1.ClaimState_STATE_HELD_BY_OTHER
)

// claimWorld has seat/# for clients, with priorities up to 3.
func claimWorld(t *testing.T) *world {
	w := newWorld(t, Limits{})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true, MaxClientPriority: 3}}},
	})
	return w
}

func (c *client) claim(m *wirev1.Claim) { c.send(wirev1.FrameType_FRAME_TYPE_CLAIM, m) }

// answers has the next requests answered with a state.
func (w *world) answers(st wirev1.ClaimState_State, position uint32) {
	w.mesh.Claims.Answer = func(op *meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{State: &wirev1.ClaimState{Resource: op.GetResource(), State: st, Position: position, Token: op.GetToken()}}
	}
}

// tells pushes a state to the connection of the last request for its resource.
func (w *world) tells(st *wirev1.ClaimState) {
	for _, op := range slices.Backward(w.mesh.Claims.Asked) {
		if op.GetResource() == st.GetResource() {
			w.mesh.TellClaim(op, st)
			w.settle()
			return
		}
	}
	w.t.Fatal("nobody asked for ", st.GetResource())
}

func TestClaim(t *testing.T) {
	w := claimWorld(t)
	c := w.connect(&wirev1.Hello{ClientId: "ann"})
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1", TtlMs: 5000, Priority: 3, WaitMs: 7, NoWait: true})
	c.expect("ClaimState 1 seat/1 GRANTED token=1")
	op := w.mesh.Claims.Asked[0]
	want := &meshv1.ClaimOp{
		Kind: meshv1.ClaimOp_KIND_ACQUIRE, Resource: "seat/1", Owner: "client:ann", TtlMs: 5000, Priority: 3, WaitMs: 7, NoWait: true, Conn: w.h.connID(w.h.conns.Get(c.slot)), Bound: true,
	}
	if !proto.Equal(op, want) {
		t.Fatalf("asked %v, want %v", op, want)
	}
	c.claim(&wirev1.Claim{Id: 2, Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: 1, Successor: "client:bob"})
	if op = w.mesh.Claims.Asked[1]; op.GetKind() != meshv1.ClaimOp_KIND_RELEASE || op.GetToken() != 1 || op.GetSuccessor() != "client:bob" {
		t.Fatalf("asked %v", op)
	}
	w.h.Gone(c.slot)
	w.settle()
	if !slices.Equal(w.mesh.Claims.Ended, []uint64{want.Conn}) {
		t.Fatalf("ended %v, want %v", w.mesh.Claims.Ended, want.Conn)
	}
	plain := w.connect(&wirev1.Hello{})
	w.h.Gone(plain.slot)
	w.settle()
	if s := w.h.Stats(); len(w.mesh.Claims.Ended) != 1 || s.Claims.Held != 0 || w.h.conns.Mores.Taken() != 0 || s.Claims.Requests[wirev1.Claim_OP_ACQUIRE][0] != 1 {
		t.Fatalf("ended %v, open %d, parts of connections %d", w.mesh.Claims.Ended, s.Claims.Held, w.h.conns.Mores.Taken())
	}
}

func TestClaimsRefused(t *testing.T) {
	w := claimWorld(t)
	c := w.connect(&wirev1.Hello{})
	for _, x := range []struct {
		m    *wirev1.Claim
		want string
	}{
		{&wirev1.Claim{Resource: "seat//1"}, "BAD_TOPIC"},
		{&wirev1.Claim{Resource: "seat/+"}, "BAD_TOPIC"},
		{&wirev1.Claim{Resource: "$dead/x"}, "BAD_TOPIC"},
		{&wirev1.Claim{Resource: "seat/1", Op: 6}, "INVALID_ARGUMENT"},
		{&wirev1.Claim{Resource: "seat/1", Op: -1}, "INVALID_ARGUMENT"},
		{&wirev1.Claim{Resource: "seat/1", Op: wirev1.Claim_OP_RENEW}, "INVALID_ARGUMENT"},
		{&wirev1.Claim{Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE}, "INVALID_ARGUMENT"},
		{&wirev1.Claim{Resource: "seat/1", Successor: "client:b"}, "INVALID_ARGUMENT"},
		{&wirev1.Claim{Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: 1, Successor: strings.Repeat("x", 256)}, "INVALID_ARGUMENT"},
		{&wirev1.Claim{Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: 1, Successor: "a\n"}, "INVALID_ARGUMENT"},
		{&wirev1.Claim{Resource: "seat/1", Priority: 10}, "INVALID_ARGUMENT"},
		{&wirev1.Claim{Resource: "seat/1", Priority: 4}, "FORBIDDEN"},
		{&wirev1.Claim{Resource: "room/1"}, "FORBIDDEN"},
		{&wirev1.Claim{Resource: "room/1", Op: wirev1.Claim_OP_WATCH}, "FORBIDDEN"},
	} {
		x.m.Id = 4
		c.claim(x.m)
		c.expect("Error " + x.want + " ref=4")
	}
	if s := w.h.Stats(); len(w.mesh.Claims.Asked) != 0 || s.Claims.Requests[wirev1.Claim_OP_ACQUIRE][wirev1.Code_CODE_FORBIDDEN] != 2 || w.h.conns.Mores.Taken() != 0 {
		t.Fatalf("asked %v, counted %v", w.mesh.Claims.Asked, s.Claims.Requests)
	}
	c.claim(&wirev1.Claim{Resource: "seat/1"})
	c.expect("Error INVALID_ARGUMENT ref=0")
}

// An edge that does not know what clients may must not refuse those for good who come back to what
// they hold.
func TestClaimsWaitForPolicies(t *testing.T) {
	w := claimWorld(t)
	c := w.connect(&wirev1.Hello{})
	known := w.table
	w.table = policy.Unknown("not known")
	w.h.rules.Refuses = func(filter string) *code.Error { return w.table.Refuses(filter) }
	c.claim(&wirev1.Claim{Id: 1, Resource: "room/1"})
	c.expect("Error UNAVAILABLE ref=1")
	w.table = known
	c.claim(&wirev1.Claim{Id: 1, Resource: "room/1"})
	c.expect("Error FORBIDDEN ref=1")
}

func TestClaimsAreBounded(t *testing.T) {
	w := claimWorld(t)
	c := w.connect(&wirev1.Hello{})
	w.mesh.Hold()
	for i := range uint32(claims.MaxAsked) {
		c.claim(&wirev1.Claim{Id: i + 1, Resource: "seat/1"})
	}
	c.expect()
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/1"})
	c.claim(&wirev1.Claim{Id: 99, Resource: "seat/1"})
	c.expect("Error INVALID_ARGUMENT ref=1", "Error INVALID_ARGUMENT ref=2", "Error RATE_LIMITED ref=99")
	w.mesh.Release()
	w.settle()
	c.take()
	if len(c.got) != claims.MaxAsked {
		t.Fatalf("%d answers", len(c.got))
	}
	c.got = nil
	for i := 2; i <= claims.MaxHeld; i++ {
		c.claim(&wirev1.Claim{Id: 1, Resource: fmt.Sprint("seat/", i)})
		c.expect(fmt.Sprintf("ClaimState 1 seat/%d GRANTED token=%d", i, claims.MaxAsked+i-1))
	}
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/more", Op: wirev1.Claim_OP_WATCH})
	c.expect("Error RATE_LIMITED ref=1")
	w.answers(released, 0)
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/7", Op: wirev1.Claim_OP_RELEASE, Token: 7})
	c.expect("ClaimState 1 seat/7 RELEASED token=7")
	w.answers(queued, 2)
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/more"})
	c.expect("ClaimState 1 seat/more QUEUED 2")
	if s := w.h.Stats(); s.Claims.Held != claims.MaxHeld {
		t.Fatalf("%d are open", s.Claims.Held)
	}
}

func TestPushesHaveTheLastID(t *testing.T) {
	w := claimWorld(t)
	c := w.connect(&wirev1.Hello{})
	w.answers(queued, 3)
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	w.tells(&wirev1.ClaimState{Resource: "seat/1", State: queued, Position: 2})
	c.claim(&wirev1.Claim{Id: 2, Resource: "seat/1", Op: wirev1.Claim_OP_CHECK})
	w.tells(&wirev1.ClaimState{Resource: "seat/1", State: granted, Token: 9})
	w.answers(granted, 0)
	c.claim(&wirev1.Claim{Id: 3, Resource: "seat/1", Op: wirev1.Claim_OP_RENEW, Token: 9})
	w.tells(&wirev1.ClaimState{Resource: "seat/1", State: lost, Code: wirev1.Code_CODE_EXPIRED})
	c.expect("ClaimState 1 seat/1 QUEUED 3", "ClaimState 1 seat/1 QUEUED 2", "ClaimState 2 seat/1 QUEUED 3", "ClaimState 2 seat/1 GRANTED token=9",
		"ClaimState 3 seat/1 GRANTED token=9", "ClaimState 2 seat/1 LOST EXPIRED")
	// The place is over, and nobody watches.
	w.tells(&wirev1.ClaimState{Resource: "seat/1", State: free})
	c.expect()
	if s := w.h.Stats(); s.Claims.Held != 0 || s.Claims.Pushes != 3 || s.StaleEvents != 1 {
		t.Fatalf("open %d, pushes %d, stale %d", s.Claims.Held, s.Claims.Pushes, s.StaleEvents)
	}
	// After a reconnect there may be nothing but a RENEW.
	c.claim(&wirev1.Claim{Id: 4, Resource: "seat/2", Op: wirev1.Claim_OP_RENEW, Token: 9})
	w.tells(&wirev1.ClaimState{Resource: "seat/2", State: lost})
	c.expect("ClaimState 4 seat/2 GRANTED token=9", "ClaimState 4 seat/2 LOST OK")
}

func TestWatchedResourceIsToldOfUntilLeave(t *testing.T) {
	w := claimWorld(t)
	c := w.connect(&wirev1.Hello{})
	w.answers(taken, 0)
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1", Op: wirev1.Claim_OP_WATCH})
	w.tells(&wirev1.ClaimState{Resource: "seat/1", State: free})
	w.answers(granted, 0)
	c.claim(&wirev1.Claim{Id: 2, Resource: "seat/1"})
	w.answers(released, 0)
	c.claim(&wirev1.Claim{Id: 3, Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: 5})
	w.tells(&wirev1.ClaimState{Resource: "seat/1", State: taken})
	c.expect("ClaimState 1 seat/1 HELD_BY_OTHER", "ClaimState 1 seat/1 FREE", "ClaimState 2 seat/1 GRANTED", "ClaimState 3 seat/1 RELEASED token=5", "ClaimState 2 seat/1 HELD_BY_OTHER")
	// What a wrong token's RELEASE tells is not about the place.
	w.answers(queued, 1)
	c.claim(&wirev1.Claim{Id: 4, Resource: "seat/1"})
	w.answers(taken, 0)
	c.claim(&wirev1.Claim{Id: 5, Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: 5})
	w.tells(&wirev1.ClaimState{Resource: "seat/1", State: queued, Position: 1})
	w.answers(released, 0)
	c.claim(&wirev1.Claim{Id: 6, Resource: "seat/1", Op: wirev1.Claim_OP_LEAVE})
	w.tells(&wirev1.ClaimState{Resource: "seat/1", State: free})
	c.expect("ClaimState 4 seat/1 QUEUED 1", "ClaimState 5 seat/1 HELD_BY_OTHER token=5", "ClaimState 4 seat/1 QUEUED 1", "ClaimState 6 seat/1 RELEASED")
	if n := w.h.Stats().Claims.Held; n != 0 {
		t.Fatalf("%d are open", n)
	}
}

func TestRefusalOfAStoreIsHandedOn(t *testing.T) {
	w := claimWorld(t)
	c := w.connect(&wirev1.Hello{})
	w.mesh.Claims.Answer = func(*meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{Code: wirev1.Code_CODE_UNAVAILABLE, Error: "no store", RetryAfterMs: 250}
	}
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	c.take()
	if e, ok := c.got[0].m.(*wirev1.Error); !ok || e.GetCode() != wirev1.Code_CODE_UNAVAILABLE || e.GetRef() != 1 || e.GetRetryAfterMs() != 250 || e.GetMessage() != "no store" {
		t.Fatalf("got %v", c.got[0].m)
	}
	if s := w.h.Stats(); s.Claims.Held != 0 || s.Claims.Requests[wirev1.Claim_OP_ACQUIRE][wirev1.Code_CODE_UNAVAILABLE] != 1 {
		t.Fatalf("counted %v", s.Claims.Requests)
	}
	// It may have been done nevertheless.
	w.h.Gone(c.slot)
	w.settle()
	if len(w.mesh.Claims.Ended) != 1 {
		t.Fatal("nobody was told that the connection ended")
	}
}

// A client that takes nothing has one state of each resource waiting for it, the last, but gets to
// know of every place that ended.
func TestStatesDoNotPileUp(t *testing.T) {
	w := claimWorld(t)
	c := w.connect(&wirev1.Hello{})
	w.answers(queued, 1000)
	for i := range 2 {
		c.claim(&wirev1.Claim{Id: uint32(i + 1), Resource: fmt.Sprint("seat/", i)})
	}
	c.expect("ClaimState 1 seat/0 QUEUED 1000", "ClaimState 2 seat/1 QUEUED 1000")
	c.slow = true
	for i := range uint32(999) {
		for k := range 2 {
			w.tells(&wirev1.ClaimState{Resource: fmt.Sprint("seat/", k), State: queued, Position: 999 - i})
		}
	}
	conn := w.h.conns.Get(c.slot)
	if owed := conn.Out.Answers(); owed > claims.MaxQueued+1000 || conn.Claims.Unsent() != 2 {
		t.Fatalf("%d bytes are owed, %d states wait", owed, conn.Claims.Unsent())
	}
	w.tells(&wirev1.ClaimState{Resource: "seat/1", State: lost, Code: wirev1.Code_CODE_IDLE_TIMEOUT})
	c.slow = false
	c.take()
	var last [2]string
	for _, f := range c.got {
		if m := f.m.(*wirev1.ClaimState); m.GetResource() == "seat/0" {
			last[0] = f.text()
		} else {
			last[1] = f.text()
		}
	}
	c.got = nil
	if want := [2]string{"ClaimState 1 seat/0 QUEUED 1", "ClaimState 2 seat/1 LOST IDLE_TIMEOUT"}; last != want {
		t.Fatalf("at last %q, want %q", last, want)
	}
	if conn.Claims.Unsent() != 0 {
		t.Fatalf("%d states wait", conn.Claims.Unsent())
	}
	// An answer does not overtake what waits.
	c.slow = true
	for i := range uint32(999) {
		w.tells(&wirev1.ClaimState{Resource: "seat/0", State: queued, Position: 999 - i})
	}
	w.answers(granted, 0)
	c.claim(&wirev1.Claim{Id: 3, Resource: "seat/0", Op: wirev1.Claim_OP_CHECK})
	c.slow = false
	c.take()
	if n := len(c.got); c.got[n-2].text() != "ClaimState 1 seat/0 QUEUED 1" || c.got[n-1].text() != "ClaimState 3 seat/0 GRANTED" {
		t.Fatalf("at last %q, %q", c.got[n-2].text(), c.got[n-1].text())
	}
}

func TestDrainRefusesNewPlacesAlone(t *testing.T) {
	w := claimWorld(t)
	c := w.connect(&wirev1.Hello{})
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	w.mesh.Hold()
	c.claim(&wirev1.Claim{Id: 2, Resource: "seat/1", Op: wirev1.Claim_OP_RENEW, Token: 1})
	w.h.Event(exchange.Drain{DeadlineMS: 5000})
	w.settle()
	c.claim(&wirev1.Claim{Id: 3, Resource: "seat/2"})
	c.claim(&wirev1.Claim{Id: 4, Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: 1})
	c.expect("ClaimState 1 seat/1 GRANTED token=1", "GoAway", "Error DRAINING ref=3")
	w.pass(500 * time.Millisecond)
	w.mesh.Release() // the connection was kept for its answers
	c.expect("ClaimState 2 seat/1 GRANTED token=2", "ClaimState 4 seat/1 GRANTED token=3")
	w.pass(500 * time.Millisecond)
	c.expect()
	if s := w.h.Stats(); s.Connections != 0 {
		t.Fatalf("%d connections are left", s.Connections)
	}
}

func TestBackendsDoNotClaimHere(t *testing.T) {
	w := claimWorld(t)
	c := w.connect(&wirev1.Hello{})
	w.h.conns.Get(c.slot).Backend = true
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	c.expect("Error UNSUPPORTED ref=1")
}
