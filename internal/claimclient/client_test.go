package claimclient

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// node is a client and what it told.
type node struct {
	*Client
	stores *storeclient.Client

	mu      sync.Mutex
	told    []string
	changed chan struct{}
}

func (n *node) tell(conn uint64, owner string, st *wirev1.ClaimState) {
	n.note(fmt.Sprintf("%d %s %s", conn, owner, show(st)))
}

func (n *node) note(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, s)
	close(n.changed)
	n.changed = make(chan struct{})
}

// show is the short form of a state.
func show(st *wirev1.ClaimState) string {
	s := st.GetState().String()[len("STATE_"):]
	switch st.GetState() {
	case wirev1.ClaimState_STATE_GRANTED:
		s += fmt.Sprint(" ", st.GetToken())
	case wirev1.ClaimState_STATE_QUEUED:
		s += fmt.Sprint(" ", st.GetPosition())
	case wirev1.ClaimState_STATE_LOST:
		s += fmt.Sprint(" ", st.GetToken(), " ", code.Name(st.GetCode()))
	case wirev1.ClaimState_STATE_HELD_BY_OTHER:
		s += " " + st.GetHolder()
	}
	return s
}

// heard waits for what was told so far to be exactly this.
func (n *node) heard(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		n.mu.Lock()
		got, changed := slices.Clone(n.told), n.changed
		n.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		if len(got) >= len(want) {
			t.Fatalf("told %q, want %q", got, want)
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("told %q, want %q", got, want)
		}
	}
}

func newNode(t *testing.T, cfg Config, seeds ...*store) *node {
	t.Helper()
	addrs := make([]string, len(seeds))
	for i, s := range seeds {
		addrs[i] = s.addr
	}
	n := &node{stores: storeclient.New(storeclient.Config{Seeds: addrs}), changed: make(chan struct{})}
	cfg.Node, cfg.Incarnation, cfg.Stores, cfg.Notify = "edge:e1", 7, n.stores, n.tell
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	if cfg.Recheck == 0 {
		cfg.Recheck = 100 * patience
	}
	n.Client = New(cfg)
	for _, p := range []interface{ Start(context.Context) error }{n.stores, n.Client} {
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.Client.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := n.stores.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	n.knows(t, 0, "")
	return n
}

// knows waits until the shard's owner is known; "": any.
func (n *node) knows(t *testing.T, shard int, addr string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		changed := n.stores.Changed()
		if got, _, err := n.stores.Owner(shard); err == nil && (addr == "" || got == addr) {
			return
		}
		n.stores.Refresh()
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatalf("the owner of shard %d is not known", shard)
		}
	}
}

// call is an operation of owner o on resource r.
func (n *node) call(t *testing.T, m *meshv1.ClaimOp) *wirev1.ClaimState {
	t.Helper()
	fill(m)
	st, err := n.Call(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func fill(m *meshv1.ClaimOp) *meshv1.ClaimOp {
	if m.GetResource() == "" {
		m.Resource = "r"
	}
	if m.GetOwner() == "" {
		m.Owner = "o"
	}
	return m
}

func granted(token uint64) *wirev1.ClaimState {
	return &wirev1.ClaimState{Resource: "r", State: wirev1.ClaimState_STATE_GRANTED, Token: token}
}

func waits(position uint32) *wirev1.ClaimState {
	return &wirev1.ClaimState{Resource: "r", State: wirev1.ClaimState_STATE_QUEUED, Position: position}
}

func lost(token uint64, k wirev1.Code) *wirev1.ClaimState {
	return &wirev1.ClaimState{Resource: "r", State: wirev1.ClaimState_STATE_LOST, Token: token, Code: k}
}

func held(holder string) *wirev1.ClaimState {
	return &wirev1.ClaimState{Resource: "r", State: wirev1.ClaimState_STATE_HELD_BY_OTHER, Holder: holder, Holding: 1}
}

func free() *wirev1.ClaimState {
	return &wirev1.ClaimState{Resource: "r", State: wirev1.ClaimState_STATE_FREE}
}

func released() *wirev1.ClaimState {
	return &wirev1.ClaimState{Resource: "r", State: wirev1.ClaimState_STATE_RELEASED}
}

func toConn(conn uint64, st *wirev1.ClaimState) *meshv1.ClaimPush {
	return &meshv1.ClaimPush{Conn: conn, Owner: "o", State: st}
}

func toWatchers(st *wirev1.ClaimState) *meshv1.ClaimPush { return &meshv1.ClaimPush{State: st} }

func TestResultsAndPushesInOrder(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	done := func(what string) func(*meshv1.ClaimResult) {
		return func(r *meshv1.ClaimResult) { n.note(what + " " + show(r.GetState())) }
	}
	n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_ACQUIRE, Conn: 4}), done("acquire"))
	first := s.op(t, 1, of(meshv1.ClaimOp_KIND_ACQUIRE))
	n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_ACQUIRE, Resource: "other"}), done("other"))
	second := s.op(t, 2, of(meshv1.ClaimOp_KIND_ACQUIRE))
	other := held("x")
	other.Resource = "other"
	s.sends(t, &meshv1.StoreServiceClaimsResponse{
		Results: []*meshv1.ClaimResult{ok(second, other), ok(first, waits(2))},
		Pushes:  []*meshv1.ClaimPush{toConn(4, waits(1)), toConn(4, granted(9))},
	})
	s.pushes(t, toConn(4, lost(9, wirev1.Code_CODE_EXPIRED)))
	n.heard(t, "other HELD_BY_OTHER x", "acquire QUEUED 2", "4 o QUEUED 1", "4 o GRANTED 9", "4 o LOST 9 EXPIRED")
	if hello := s.hellos[0]; hello.GetNode() != "edge:e1" || hello.GetIncarnation() != 7 {
		t.Errorf("the stream begins with %v", hello)
	}
	s.says(free())
	n.none(t)
}

func TestErrorsOfTheStore(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.answers(func(*meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{Code: wirev1.Code_CODE_OVERLOADED, Error: "full", RetryAfterMs: 40}
	})
	_, err := n.Call(t.Context(), fill(&meshv1.ClaimOp{}))
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_OVERLOADED || e.Message != "full" || e.RetryAfter != 40*time.Millisecond {
		t.Errorf("got %v", err)
	}
}

func TestBatches(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(free())
	const ops = 5000
	var wg sync.WaitGroup
	wg.Add(ops)
	for i := range ops {
		n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_CHECK, Resource: fmt.Sprint("r", i)}), func(*meshv1.ClaimResult) { wg.Done() })
	}
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most > maxBatch || s.most < 2 || len(s.ops) != ops || len(s.hellos) != 1 {
		t.Errorf("%d operations at most in a message, %d in all, on %d streams", s.most, len(s.ops), len(s.hellos))
	}
}

// resourceIn finds a resource of a shard that fits.
func resourceIn(fits func(shard int) bool) string {
	for i := 0; ; i++ {
		if r := fmt.Sprintf("room/%d", i); fits(topic.Shard(r)) {
			return r
		}
	}
}
