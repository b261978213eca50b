package router

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// startFakeCompute serves until the test ends.
func startFakeCompute(t *testing.T) (*fakeCompute, string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	compute, srv := &fakeCompute{}, grpc.NewServer()
	meshv1.RegisterComputeServiceServer(srv, compute)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return compute, l.Addr().String()
}

// A request without a scorer has that of the namespace's rank policy; what it says itself goes
// before the policy.
func TestRankByANamespacesPolicy(t *testing.T) {
	t.Parallel()
	compute, addr := startFakeCompute(t)
	m := startMesh(t, func(s *Settings) { s.Computes = []string{addr} })
	policy := &pushmeshv1.RankPolicy{
		Expression: &pushmeshv1.ExpressionScorer{Expression: "features.a * 2.0"}, Filter: "priority > 1",
		Diversify: &pushmeshv1.Diversify{Key: "topic", AtMost: 1},
	}
	for prefix, p := range map[string]*pushmeshv1.Policy{"ranked": {Rank: policy}, "plain": {}} {
		if _, err := pushmeshv1.NewNamespaceServiceClient(m.conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: p},
		}); err != nil {
			t.Fatal(err)
		}
	}
	rank := func(req *pushmeshv1.RankRequest) (*pushmeshv1.RankRequest, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req.Candidates, req.Profile, req.TopK, req.Explain = []*pushmeshv1.Candidate{{Id: "x"}}, map[string]float64{"p": 1}, 7, true
		req.ProfileVector = []float32{1}
		_, err := pushmeshv1.NewRankServiceClient(m.conn).Rank(ctx, req)
		return compute.last.Load(), err
	}
	eventually(t, "the policies reach the router", func() error {
		for prefix, want := range map[string]wirev1.Code{"ranked": wirev1.Code_CODE_OK, "plain": wirev1.Code_CODE_INVALID_ARGUMENT} {
			if _, err := rank(&pushmeshv1.RankRequest{Namespace: prefix}); code.Of(err) != want {
				return errors.New(prefix + " is not there")
			}
		}
		return nil
	})
	got, err := rank(&pushmeshv1.RankRequest{Namespace: "ranked"})
	want := &pushmeshv1.RankRequest{
		Namespace: "ranked", Expression: policy.GetExpression(), Filter: policy.GetFilter(), Diversify: policy.GetDiversify(),
		Candidates: []*pushmeshv1.Candidate{{Id: "x"}}, Profile: map[string]float64{"p": 1}, ProfileVector: []float32{1}, TopK: 7, Explain: true,
	}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("compute got %v, %v; want %v", got, err, want)
	}
	own := &pushmeshv1.Diversify{Key: "header:h", AtMost: 3}
	if got, err := rank(&pushmeshv1.RankRequest{Namespace: "ranked", Filter: "true", Diversify: own}); err != nil || got.GetFilter() != "true" || got.GetDiversify().GetAtMost() != 3 {
		t.Errorf("with a filter of its own: compute got %v, %v", got, err)
	}
	if got, err := rank(&pushmeshv1.RankRequest{Namespace: "ranked", Weighted: &pushmeshv1.WeightedScorer{}}); err != nil || got.GetWeighted() == nil || got.GetExpression() != nil || got.GetFilter() != "" || got.GetNamespace() != "" {
		t.Errorf("with a scorer of its own: compute got %v, %v", got, err)
	}
	rolling := &pushmeshv1.ModelScorer{Name: "m", Version: 1, NextVersion: 2, NextShare: 0.5}
	if _, err := rank(&pushmeshv1.RankRequest{Model: rolling}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT || !strings.Contains(err.Error(), "next_version is for rank policies") {
		t.Errorf("a roll-out of a call's own: %v", err)
	}
	for prefix, want := range map[string]wirev1.Code{
		"nowhere": wirev1.Code_CODE_NOT_FOUND, "ranked/below": wirev1.Code_CODE_NOT_FOUND, "plain": wirev1.Code_CODE_INVALID_ARGUMENT,
	} {
		if _, err := rank(&pushmeshv1.RankRequest{Namespace: prefix}); code.Of(err) != want || !strings.Contains(err.Error(), prefix) {
			t.Errorf("%s: %v, want %v", prefix, err, want)
		}
	}
	for _, bad := range []*pushmeshv1.RankPolicy{
		{Weighted: &pushmeshv1.WeightedScorer{}, Filter: "1 +"},
		{Expression: &pushmeshv1.ExpressionScorer{Expression: "features.a *"}},
	} {
		ns := &pushmeshv1.Namespace{Prefix: "bad", Policy: &pushmeshv1.Policy{Rank: bad}}
		_, err := pushmeshv1.NewNamespaceServiceClient(m.conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: ns})
		if code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("put of a namespace with a wrong expression: %v", err)
		}
	}
}
