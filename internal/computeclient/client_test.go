package computeclient

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// patience bounds every wait of these tests; nothing comes near it.
const patience = time.Minute

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// fake is a compute node. A job whose first candidate is "hold" is not answered.
type fake struct {
	meshv1.UnimplementedComputeServiceServer
	addr   string
	server *grpc.Server
	jobs   atomic.Int64
	alone  atomic.Int64
	mute   atomic.Bool // answers nothing
	full   atomic.Bool
	packs  atomic.Bool // says that it takes packed candidates
	packed atomic.Int64
	before bool // but knows nothing of them
	held   chan uint64
	told   chan uint64 // cancelled
}

func newFake(t *testing.T) *fake {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: l.Addr().String(), server: grpc.NewServer(grpc.MaxRecvMsgSize(MaxMessage)), held: make(chan uint64, 100), told: make(chan uint64, 100)}
	meshv1.RegisterComputeServiceServer(f.server, f)
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(l) }()
	t.Cleanup(func() {
		f.server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fake) RankJob(_ context.Context, req *meshv1.RankJobRequest) (*meshv1.RankJobResponse, error) {
	f.alone.Add(1)
	return f.answer(req), nil
}

func (f *fake) answer(req *meshv1.RankJobRequest) *meshv1.RankJobResponse {
	out := &meshv1.RankJobResponse{Rank: &pushmeshv1.RankResponse{}, RanUs: 1}
	for i, c := range req.GetRank().GetCandidates() {
		out.Rank.Ranked = append(out.Rank.Ranked, &pushmeshv1.RankResponse_Ranked{Id: c.GetId(), Index: uint32(i)})
	}
	if n := req.GetPacked().GetCount(); !f.before {
		out.Packed = n
		for i := range n {
			f.packed.Add(1)
			out.Rank.Ranked = append(out.Rank.Ranked, &pushmeshv1.RankResponse_Ranked{Index: n - 1 - i})
		}
	}
	return out
}

func holds(all []*pushmeshv1.Candidate) bool { return len(all) > 0 && all[0].GetId() == "hold" }

func (f *fake) RankJobs(stream grpc.BidiStreamingServer[meshv1.RankJobsRequest, meshv1.RankJobsResponse]) error {
	if f.packs.Load() {
		if err := stream.Send(&meshv1.RankJobsResponse{TakesPacked: true}); err != nil {
			return err
		}
	}
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, ref := range req.GetCancel() {
			f.told <- ref
		}
		resp := &meshv1.RankJobsResponse{}
		for _, it := range req.GetItems() {
			f.jobs.Add(1)
			switch {
			case f.mute.Load() || holds(it.GetJob().GetRank().GetCandidates()):
				f.held <- it.GetRef()
			case f.full.Load():
				resp.Items = append(resp.Items, &meshv1.RankJobsResponse_Item{Ref: it.GetRef(), Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: 70})
			default:
				resp.Items = append(resp.Items, &meshv1.RankJobsResponse_Item{Ref: it.GetRef(), Job: f.answer(it.GetJob())})
			}
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

func start(t *testing.T, nodes ...*fake) *Client {
	t.Helper()
	cfg := Config{Caller: "test"}
	for _, n := range nodes {
		cfg.Addrs = append(cfg.Addrs, n.addr)
	}
	c := New(cfg)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	for _, n := range c.nodes {
		until(t, n.connected)
	}
	return c
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

func job(id string) *meshv1.RankJobRequest {
	return &meshv1.RankJobRequest{Rank: &pushmeshv1.RankRequest{Candidates: []*pushmeshv1.Candidate{{Id: id}}}}
}

func (f *fake) must(t *testing.T, c *Client, id string) {
	t.Helper()
	resp, err := c.Do(t.Context(), job(id))
	if err != nil || resp.GetRank().GetRanked()[0].GetId() != id {
		t.Fatal(resp, err)
	}
}

func TestJobsAreSpreadAndAnswered(t *testing.T) {
	a, b := newFake(t), newFake(t)
	c := start(t, a, b)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for i := range 20 {
				id := string(rune('a' + i))
				if resp, err := c.Do(t.Context(), job(id)); err != nil || resp.GetRank().GetRanked()[0].GetId() != id {
					t.Error(resp, err)
				}
			}
		})
	}
	wg.Wait()
	if x, y := a.jobs.Load(), b.jobs.Load(); x+y != 1000 || x < 100 || y < 100 {
		t.Fatalf("%d and %d jobs", x, y)
	}
	if c.Check() != nil {
		t.Fatal(c.Check())
	}
	if s := c.Shipping(1000); s <= 0 || c.Worthwhile(s, 1000) || !c.Worthwhile(11*s, 1000) {
		t.Fatal(s)
	}
}

func TestWhatANodeHadIsAskedOfAnother(t *testing.T) {
	a, b := newFake(t), newFake(t)
	c := start(t, a, b)
	a.mute.Store(true)
	b.mute.Store(true)
	done := make(chan error, 10)
	for range 10 {
		go func() {
			_, err := c.Do(t.Context(), job("x"))
			done <- err
		}()
	}
	until(t, func() bool { return len(a.held)+len(b.held) == 10 })
	dead, alive := a, b
	if len(a.held) == 0 {
		dead, alive = b, a
	}
	before := len(alive.held)
	alive.mute.Store(false)
	gone := len(dead.held)
	dead.server.Stop()
	for range gone {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	alive.server.Stop()
	for range before {
		if err := <-done; code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Fatal(err)
		}
	}
	until(t, func() bool { return c.Check() != nil })
}

// A node that answers nothing loses its share after a few jobs, is asked now and then, and gets its
// share back once it answers.
func TestSilentNodeIsLeft(t *testing.T) {
	a, b := newFake(t), newFake(t)
	c := start(t, a, b)
	a.mute.Store(true)
	for timeouts := 0; timeouts < silentJobs; {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if _, err := c.Do(ctx, job("x")); errors.Is(err, context.DeadlineExceeded) && len(a.held) > timeouts {
			timeouts++
		}
		cancel()
	}
	began, probes := time.Now(), a.jobs.Load()
	for range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _ = c.Do(ctx, job("x"))
		cancel()
	}
	if n, most := a.jobs.Load()-probes, int64(time.Since(began)/probeEvery)+3; n > most {
		t.Fatalf("%d of 300 jobs went to the silent node, at most %d should", n, most)
	}
	a.mute.Store(false)
	before := a.jobs.Load()
	until(t, func() bool {
		b.must(t, c, "x")
		return a.jobs.Load() > before+20
	})
}

func TestWhoLeavesIsTold(t *testing.T) {
	a := newFake(t)
	c := start(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Do(ctx, job("hold"))
		done <- err
	}()
	ref := <-a.held
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if told := <-a.told; told != ref {
		t.Fatalf("told %d, want %d", told, ref)
	}
}

func TestRefusalsAndSizes(t *testing.T) {
	a := newFake(t)
	c := start(t, a)
	a.full.Store(true)
	_, err := c.Do(t.Context(), job("x"))
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter != 70*time.Millisecond {
		t.Fatal(err)
	}
	big := job(string(make([]byte, maxBatch+1)))
	if _, err := c.Do(t.Context(), big); err != nil || a.alone.Load() != 1 {
		t.Fatal(err, a.alone.Load())
	}
	if _, err := c.Do(t.Context(), job(string(make([]byte, MaxMessage)))); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Fatal(err)
	}
}

// takesPacked waits until a client knows that its nodes do.
func takesPacked(t *testing.T, c *Client) {
	t.Helper()
	for _, n := range c.nodes {
		until(t, func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.packed })
	}
}

func packing(t *testing.T) *fake {
	t.Helper()
	f := newFake(t)
	f.packs.Store(true)
	return f
}

// Nodes of the version before get candidates as they know them, others packed ones, and both
// answer the same.
func TestNodesOfTwoVersions(t *testing.T) {
	before, now := newFake(t), packing(t)
	old, fresh := start(t, before), start(t, now)
	takesPacked(t, fresh)
	large := string(make([]byte, maxBatch))
	asked := &meshv1.RankJobRequest{Rank: &pushmeshv1.RankRequest{
		Candidates: []*pushmeshv1.Candidate{{Id: "a"}, {Id: large, Payload: []byte(large)}}, Filter: "payload != null",
	}}
	for _, j := range []*meshv1.RankJobRequest{
		{Rank: &pushmeshv1.RankRequest{Candidates: []*pushmeshv1.Candidate{{Id: "a"}, {Id: "b"}}}},
		asked,
		{Rank: &pushmeshv1.RankRequest{}},
	} {
		n := len(j.GetRank().GetCandidates())
		for name, c := range map[string]*Client{"before": old, "now": fresh} {
			resp, err := c.Do(t.Context(), j)
			if err != nil || len(resp.GetRank().GetRanked()) != n {
				t.Fatalf("%s: %d of %d, %v", name, len(resp.GetRank().GetRanked()), n, err)
			}
			for _, r := range resp.GetRank().GetRanked() {
				if r.GetId() != j.GetRank().GetCandidates()[r.GetIndex()].GetId() {
					t.Errorf("%s: place %d is called %.9q", name, r.GetIndex(), r.GetId())
				}
			}
		}
	}
	if n := now.packed.Load(); n != 4 || before.packed.Load() != 0 {
		t.Errorf("%d packed candidates came, and %d to the node of the version before", n, before.packed.Load())
	}
	if before.alone.Load() != 1 || now.alone.Load() != 1 {
		t.Errorf("%d and %d large jobs went alone", before.alone.Load(), now.alone.Load())
	}
	// What an edge packed is unpacked for a node of the version before.
	resp, err := old.Do(t.Context(), &meshv1.RankJobRequest{Rank: &pushmeshv1.RankRequest{}, Packed: &meshv1.PackedCandidates{
		Count: 2, Ids: &meshv1.PackedTexts{Texts: []byte("xy"), Lengths: []uint32{1, 1}},
	}})
	if err != nil || len(resp.GetRank().GetRanked()) != 2 || resp.GetRank().GetRanked()[1].GetId() != "y" {
		t.Error(resp, err)
	}
}

// A node that was replaced by one of the version before, while a job was on its way to it, ranks
// nothing: that is no answer.
func TestPackedCandidatesAreNotLostSilently(t *testing.T) {
	wrong := packing(t)
	wrong.before = true
	c := start(t, wrong)
	takesPacked(t, c)
	for _, id := range []string{"x", string(make([]byte, 2*maxBatch))} {
		j := job(id)
		j.Rank.Filter = `id != ""`
		if resp, err := c.Do(t.Context(), j); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("%v, %v", resp, err)
		}
	}
	right := packing(t)
	c = start(t, wrong, right)
	takesPacked(t, c)
	for range 4 { // each of them is asked first in turn
		right.must(t, c, "x")
	}
	if right.packed.Load() != 4 {
		t.Error(right.packed.Load())
	}
}

// What a request has besides its candidates goes with them.
func TestEveryFieldOfARequestIsShipped(t *testing.T) {
	r := &pushmeshv1.RankRequest{}
	m := r.ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		switch f := m.Descriptor().Fields().Get(i); {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("a").MapKey(), protoreflect.ValueOfFloat64(1))
		case f.IsList() && f.Message() != nil:
			m.Mutable(f).List().AppendMutable()
		case f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOfFloat32(1))
		case f.Message() != nil:
			m.Mutable(f)
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("a"))
		case f.Kind() == protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(1))
		case f.Kind() == protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(true))
		default:
			t.Fatalf("%s is of a kind that this test does not know", f.Name())
		}
	}
	if got := withCandidates(r, r.GetCandidates()); !proto.Equal(got, r) {
		t.Errorf("%v\nwant %v", got, r)
	}
}

func TestNodeThatComesLater(t *testing.T) {
	c := start(t)
	if _, err := c.Do(t.Context(), job("x")); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Begun(ctx) // at once: there is nobody to wait for
	ended, end := context.WithCancel(t.Context())
	end()
	late := New(Config{Addrs: []string{"127.0.0.1:1"}})
	if err := late.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	late.Begun(ended)
	if late.Check() == nil {
		t.Fatal("nobody is there")
	}
	if err := late.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := late.Do(t.Context(), job("x")); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Fatal(err)
	}
}
