package ranking

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/computeclient"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// patience bounds every wait of these tests; nothing comes near it.
const patience = time.Minute

// long is a deadline that no ranking comes near.
const long = time.Hour

// loops take what is posted.
type loops struct {
	events chan exchange.Event
}

func (l *loops) post(_ uint16, e exchange.Event) { l.events <- e }

func (l *loops) next(t testing.TB) exchange.Event {
	t.Helper()
	select {
	case e := <-l.events:
		return e
	case <-time.After(patience):
		t.Fatal("nothing was posted")
		return nil
	}
}

func (l *loops) ranked(t testing.TB) exchange.Ranked {
	t.Helper()
	r, ok := l.next(t).(exchange.Ranked)
	if !ok {
		t.Fatal("another event")
	}
	return r
}

// start a ranker; compute may be nil.
func start(t testing.TB, c Compute) (*Ranker, *loops) {
	t.Helper()
	r, l := startAlone(t, c, &loops{events: make(chan exchange.Event, 10_000)})
	t.Cleanup(func() {
		stop(t, r)
		nothingLeft(t, r)
	})
	return r, l
}

func nothingLeft(t testing.TB, r *Ranker) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.count > 0 {
		r.empty.Wait()
	}
	if r.bytes != 0 || len(r.windows.due) != 0 {
		t.Errorf("%d bytes and %d windows are left", r.bytes, len(r.windows.due))
	}
}

func stop(t testing.TB, r *Ranker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func ranks(p *pushmeshv1.RankPolicy, deadline time.Duration) *policy.Policy {
	p.Deadline = durationpb.New(deadline)
	return &policy.Policy{Prefix: "shop", Rank: p}
}

// message as routers send it.
func message(t testing.TB, m *wirev1.Message, f *meshv1.MessageFeatures) *exchange.Message {
	t.Helper()
	body, err := wire.Body(m)
	if err != nil {
		t.Fatal(err)
	}
	out := &exchange.Message{Topic: "shop/offers", Seq: 7, Frame: wire.AppendMessage(nil, "shop/offers", 7, body), Priority: uint8(m.GetPriority())}
	if f != nil {
		if out.Mesh, err = proto.Marshal(f); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// priced messages, each of feature "price".
func priced(t testing.TB, prices ...float64) (out []*exchange.Message) {
	t.Helper()
	for _, price := range prices {
		out = append(out, message(t, &wirev1.Message{Payload: []byte("x")}, &meshv1.MessageFeatures{Features: map[string]float64{"price": price}}))
	}
	return out
}

// byPrice is a policy.
func byPrice() *pushmeshv1.RankPolicy {
	return &pushmeshv1.RankPolicy{Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"price": 1}}}
}

func everybody(n int) []exchange.RankMember {
	out := make([]exchange.RankMember, n)
	for i := range out {
		out[i].TopK = 2
	}
	return out
}

// node is a compute node of its own, behind gRPC.
type node struct {
	meshv1.UnimplementedComputeServiceServer
	addr string
	mute atomic.Bool // answers nothing
	full atomic.Bool
	jobs atomic.Int64
	last atomic.Pointer[meshv1.RankJobRequest]
}

func newNode(t testing.TB) *node {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{addr: l.Addr().String()}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(computeclient.MaxMessage))
	meshv1.RegisterComputeServiceServer(server, n)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) RankJob(ctx context.Context, req *meshv1.RankJobRequest) (*meshv1.RankJobResponse, error) {
	n.jobs.Add(1)
	if n.mute.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return n.answer(req)
}

func (n *node) RankJobs(stream grpc.BidiStreamingServer[meshv1.RankJobsRequest, meshv1.RankJobsResponse]) error {
	if err := stream.Send(&meshv1.RankJobsResponse{TakesPacked: true}); err != nil {
		return err
	}
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		resp := &meshv1.RankJobsResponse{}
		for _, it := range req.GetItems() {
			n.jobs.Add(1)
			n.last.Store(it.GetJob())
			if n.mute.Load() {
				continue
			}
			item := &meshv1.RankJobsResponse_Item{Ref: it.GetRef()}
			if item.Job, err = n.answer(it.GetJob()); err != nil {
				item.Code, item.Error = code.Of(err), err.Error()
			}
			resp.Items = append(resp.Items, item)
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// answer as compute nodes do.
func (n *node) answer(req *meshv1.RankJobRequest) (*meshv1.RankJobResponse, error) {
	if n.full.Load() {
		return nil, code.New(wirev1.Code_CODE_OVERLOADED, "full")
	}
	spec, err := score.Compile(req.GetRank(), score.Parts{})
	if err != nil {
		return nil, err
	}
	var profiles []score.Profile
	for _, p := range req.GetProfiles() {
		profiles = append(profiles, score.Profile{Features: p.GetFeatures(), Vector: p.GetVector(), Keep: int(p.GetTopK()), Candidates: p.GetCandidates()})
	}
	all := score.Candidates(req.GetRank().GetCandidates())
	if req.GetPacked() != nil {
		if all, err = candidates.Unpack(req.GetPacked()); err != nil {
			return nil, err
		}
	}
	job, err := spec.Job(all, profiles, time.Now())
	for done := false; err == nil && !done; {
		done, err = job.Step(time.Second)
	}
	if err != nil {
		return nil, err
	}
	resp := &meshv1.RankJobResponse{Packed: req.GetPacked().GetCount()}
	for i := range profiles {
		p := &meshv1.RankedPlaces{Filtered: job.Filtered(i)}
		for _, place := range job.Places(i) {
			p.Places, p.Scores = append(p.Places, place.Index), append(p.Scores, place.Score)
		}
		resp.Profiles = append(resp.Profiles, p)
	}
	return resp, nil
}

// always ships, whatever the work.
type always struct{ *computeclient.Client }

func (always) Worthwhile(time.Duration, int) bool { return true }

// client of nodes, connected.
func client(t testing.TB, nodes ...*node) *computeclient.Client {
	t.Helper()
	cfg := computeclient.Config{Caller: "edge"}
	for _, n := range nodes {
		cfg.Addrs = append(cfg.Addrs, n.addr)
	}
	c := computeclient.New(cfg)
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.Begun(ctx)
	if c.Check() != nil {
		t.Fatal(c.Check())
	}
	return c
}
