package claims_test

import (
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/claims"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/prepare"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

func need(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// store is a lane on a database, with a log that owns what it is told to.
type store struct {
	t    testing.TB
	lane *claims.Lane
	jobs chan prepare.Job

	mu     sync.Mutex
	owned  [topic.Shards]uint64
	number uint64
	unsure error
	away   error
	table  *policy.Table
}

// open starts a lane that owns all shards, or none.
func open(t testing.TB, db *database, id string, all bool, changes ...func(*store, *claims.Config)) *store {
	s := &store{t: t, table: policy.NewTable(nil), jobs: make(chan prepare.Job, 10_000)}
	if all {
		s.own(0, topic.Shards)
	}
	cfg := claims.Config{
		Backend: db, Owner: backend.Owner{StoreID: id}, Prepare: func(j prepare.Job) { s.jobs <- j },
		Limits:   claims.Limits{Unanswered: 10_000, PushBytes: 1 << 20},
		Away:     func() error { s.mu.Lock(); defer s.mu.Unlock(); return s.away },
		Owned:    func(dst []uint64) { s.mu.Lock(); defer s.mu.Unlock(); copy(dst, s.owned[:]) },
		Own:      func(n int) uint64 { s.mu.Lock(); defer s.mu.Unlock(); return s.owned[n] },
		Sure:     func(context.Context, int) error { s.mu.Lock(); defer s.mu.Unlock(); return s.unsure },
		Policies: func() *policy.Table { s.mu.Lock(); defer s.mu.Unlock(); return s.table },
	}
	for _, change := range changes {
		change(s, &cfg)
	}
	s.lane = claims.New(cfg)
	need(t, s.lane.Start(t.Context()))
	t.Cleanup(func() { s.stop() })
	return s
}

var stopped sync.Map

func (s *store) stop() {
	if _, was := stopped.LoadOrStore(s, true); !was {
		need(s.t, s.lane.Stop(context.Background()))
	}
}

// own has the log own shards from first on, anew.
func (s *store) own(first, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := first; i < first+n; i++ {
		s.number++
		s.owned[i] = s.number
	}
}

func (s *store) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.owned[:])
}

// rule makes the policy of everything below "r".
func (s *store) rule(p *pushmeshv1.ClaimPolicy) {
	s.mu.Lock()
	s.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "r", Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(time.Hour), Claims: p}}})
	s.mu.Unlock()
	s.lane.Ruled()
}

// ready waits until all shards are served.
func (s *store) ready() {
	s.t.Helper()
	for range 10_000 {
		if s.lane.Check() == nil {
			return
		}
		pass(time.Millisecond)
	}
	s.t.Fatalf("not served: %v", s.lane.Check())
}

// node is an edge's stream.
type node struct {
	t testing.TB
	grpc.ServerStream
	ctx    context.Context
	cancel context.CancelFunc
	in     chan *meshv1.StoreServiceClaimsRequest
	frozen chan struct{} // nil: it takes what it is sent
	ref    atomic.Uint64

	mu      sync.Mutex
	results map[uint64]chan *meshv1.ClaimResult
	pushes  chan *meshv1.ClaimPush
	ended   chan struct{}
	err     error
}

func (s *store) node(name string, incarnation uint64) *node {
	return s.dial(name, incarnation, nil)
}

func (s *store) dial(name string, incarnation uint64, frozen chan struct{}) *node {
	n := &node{
		t: s.t, in: make(chan *meshv1.StoreServiceClaimsRequest, 1), results: map[uint64]chan *meshv1.ClaimResult{},
		pushes: make(chan *meshv1.ClaimPush, 200_000), ended: make(chan struct{}), frozen: frozen,
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.in <- &meshv1.StoreServiceClaimsRequest{Node: name, Incarnation: incarnation}
	go func() {
		n.err = s.lane.Serve(n)
		n.cancel()
		close(n.ended)
	}()
	s.t.Cleanup(func() { n.cancel(); <-n.ended })
	return n
}

func (n *node) Context() context.Context { return n.ctx }

func (n *node) Recv() (*meshv1.StoreServiceClaimsRequest, error) {
	select {
	case m, more := <-n.in:
		if !more {
			return nil, io.EOF
		}
		return m, nil
	case <-n.ctx.Done():
		return nil, n.ctx.Err()
	}
}

func (n *node) Send(m *meshv1.StoreServiceClaimsResponse) error {
	if n.frozen != nil {
		select {
		case <-n.frozen:
		case <-n.ctx.Done():
			return n.ctx.Err()
		}
	}
	for _, r := range m.GetResults() {
		n.mu.Lock()
		c := n.results[r.GetRef()]
		delete(n.results, r.GetRef())
		n.mu.Unlock()
		if c == nil {
			n.t.Errorf("an answer to nothing: %v", r)
			continue
		}
		c <- r
	}
	for _, p := range m.GetPushes() {
		n.pushes <- p
	}
	return nil
}

// begin sends operations; answers come on the channels.
func (n *node) begin(ops ...*meshv1.ClaimOp) (answers []chan *meshv1.ClaimResult) {
	n.mu.Lock()
	for _, o := range ops {
		o.Ref = n.ref.Add(1)
		c := make(chan *meshv1.ClaimResult, 1)
		n.results[o.Ref] = c
		answers = append(answers, c)
	}
	n.mu.Unlock()
	select {
	case n.in <- &meshv1.StoreServiceClaimsRequest{Ops: ops}:
	case <-n.ctx.Done():
	}
	return answers
}

// do waits for the answer. Without one, and a stream that ended, it is nil.
func (n *node) do(o *meshv1.ClaimOp) *meshv1.ClaimResult {
	n.t.Helper()
	c := n.begin(o)[0]
	select {
	case r := <-c:
		return r
	case <-n.ended:
		select {
		case r := <-c:
			return r
		default:
			return nil
		}
	}
}

func op(kind meshv1.ClaimOp_Kind, resource, owner string, token uint64) *meshv1.ClaimOp {
	return &meshv1.ClaimOp{Kind: kind, Resource: resource, Owner: owner, Token: token}
}

const (
	acquire = meshv1.ClaimOp_KIND_ACQUIRE
	renew   = meshv1.ClaimOp_KIND_RENEW
	release = meshv1.ClaimOp_KIND_RELEASE
	check   = meshv1.ClaimOp_KIND_CHECK
	watch   = meshv1.ClaimOp_KIND_WATCH
)

// told is an acquire that is told of changes.
func told(resource, owner string, conn uint64) *meshv1.ClaimOp {
	o := op(acquire, resource, owner, 0)
	o.Conn, o.Bound = conn, true
	return o
}

// is fails unless an answer is a state.
func is(t testing.TB, r *meshv1.ClaimResult, want wirev1.ClaimState_State) *wirev1.ClaimState {
	t.Helper()
	if r == nil || r.GetCode() != wirev1.Code_CODE_OK || r.GetState().GetState() != want {
		t.Fatalf("%v, want %v", r, want)
	}
	return r.GetState()
}

// refused fails unless an answer is a refusal.
func refused(t testing.TB, r *meshv1.ClaimResult, want wirev1.Code) {
	t.Helper()
	if r == nil || r.GetCode() != want {
		t.Fatalf("%v, want %v", r, want)
	}
}

// pass lets time pass: the bubble's, which costs none.
func pass(d time.Duration) { <-time.After(d) }

// bubble is a test with a clock of its own.
func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }
