package compute

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func varied(n, features int) *pushmeshv1.RankRequest {
	r := &pushmeshv1.RankRequest{TopK: 3, Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"f": 1}}}
	for i := range n {
		c := &pushmeshv1.Candidate{Id: fmt.Sprint(i), Features: map[string]float64{"f": float64(i)}}
		for f := range features {
			c.Features[fmt.Sprint("feature-", f)] = 1
		}
		r.Candidates = append(r.Candidates, c)
	}
	return r
}

// Heavy jobs of several streams at once, as routers and edges at one address have, packed or not,
// wait for each other: no stream ends, for that would end the jobs of all its users.
func TestHeavyJobsEndNoStream(t *testing.T) {
	// as 50,000 are to 256 MiB; the race detector makes each of them slow
	const n, room = 10_000, 50 << 20
	for name, jobs := range map[string][2]*meshv1.RankJobRequest{
		"plain":  {plain(varied(n, 10)), plain(varied(10, 1))},
		"packed": {packed(2*n, 10), packed(10, 1)},
	} {
		t.Run(name, func(t *testing.T) { heavyJobs(t, room, jobs[0], jobs[1]) })
	}
}

func heavyJobs(t *testing.T, room int, heavy, small *meshv1.RankJobRequest) {
	_, first := startCompute(t, Settings{RequestBytes: room})
	const streams, jobs = 5, 2
	ended := make(chan error, streams)
	for range streams {
		conn, err := grpc.NewClient(first.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		go func() { ended <- rankAll(t.Context(), conn, jobs, small, heavy) }()
	}
	for range streams {
		if err := <-ended; err != nil {
			t.Errorf("a stream ends: %v", err)
		}
	}
}

// rankAll has a stream send jobs, so many of each, and waits for all answers.
func rankAll(ctx context.Context, conn *grpc.ClientConn, times int, jobs ...*meshv1.RankJobRequest) error {
	s, err := meshv1.NewComputeServiceClient(conn).RankJobs(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Recv(); err != nil {
		return err
	}
	go func() {
		for i := range times * len(jobs) {
			item := &meshv1.RankJobsRequest_Item{Ref: uint64(i + 1), Job: jobs[i%len(jobs)]}
			if s.Send(&meshv1.RankJobsRequest{Items: []*meshv1.RankJobsRequest_Item{item}}) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
	for got := 0; got < times*len(jobs); {
		resp, err := s.Recv()
		if err != nil {
			return fmt.Errorf("after %d of %d answers: %w", got, times*len(jobs), err)
		}
		got += len(resp.GetItems())
	}
	return nil
}

func plain(r *pushmeshv1.RankRequest) *meshv1.RankJobRequest {
	return &meshv1.RankJobRequest{Caller: "honest", Rank: r}
}

func packed(n, features int) *meshv1.RankJobRequest {
	p := &meshv1.PackedCandidates{Count: uint32(n), Sets: []*meshv1.NameSet{{}}, FeatureSets: make([]uint32, n), Features: make([]float64, n*features)}
	for f := range features {
		p.Sets[0].Names = append(p.Sets[0].Names, fmt.Sprint("f", f))
	}
	return &meshv1.RankJobRequest{Caller: "honest", Rank: &pushmeshv1.RankRequest{TopK: 3, Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"f0": 1}}}, Packed: p}
}
