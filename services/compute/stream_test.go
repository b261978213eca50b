package compute

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// collect reads n answers by ref; each comes once.
func collect(t *testing.T, recv func() (*meshv1.RankJobsResponse, error), n int) map[uint64]*meshv1.RankJobsResponse_Item {
	t.Helper()
	got := map[uint64]*meshv1.RankJobsResponse_Item{}
	for len(got) < n {
		resp, err := recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range resp.GetItems() {
			if got[it.GetRef()] != nil {
				t.Fatalf("job %d is answered twice", it.GetRef())
			}
			got[it.GetRef()] = it
		}
	}
	return got
}

func TestJobsOfAStream(t *testing.T) {
	_, conn := startCompute(t, Settings{})
	stream, err := meshv1.NewComputeServiceClient(conn).RankJobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 300
	var items []*meshv1.RankJobsRequest_Item
	for ref := uint64(1); ref <= jobs; ref++ {
		job := &meshv1.RankJobRequest{Caller: fmt.Sprint(ref % 5), Rank: big(int(ref))}
		switch ref % 10 {
		case 0:
			job.Rank.Weighted = nil
		case 1:
			job.Rank = big(1_000)
			job.TimeoutUs = 1
		case 2:
			job.Profiles = []*meshv1.RankProfile{{TopK: 1}, {Candidates: []uint32{0}}}
		}
		items = append(items, &meshv1.RankJobsRequest_Item{Ref: ref, Job: job})
	}
	go func() {
		for len(items) > 0 {
			if err := stream.Send(&meshv1.RankJobsRequest{Items: items[:7*len(items)/100+1]}); err != nil {
				t.Error(err)
				return
			}
			items = items[7*len(items)/100+1:]
		}
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
	}()
	for ref, it := range collect(t, stream.Recv, jobs) {
		best := it.GetJob().GetRank().GetRanked()
		switch {
		case ref%10 == 0:
			if it.GetCode() != wirev1.Code_CODE_INVALID_ARGUMENT {
				t.Errorf("%d: %v", ref, it)
			}
		case ref%10 == 1:
			if it.GetCode() != wirev1.Code_CODE_EXPIRED {
				t.Errorf("%d: %v", ref, it)
			}
		case ref%10 == 2:
			p := it.GetJob().GetProfiles()
			if len(p) != 2 || p[0].GetPlaces()[0] != uint32(ref-1) || p[0].GetScores()[0] != float64(ref-1) || p[1].GetPlaces()[0] != 0 {
				t.Errorf("%d: %v", ref, it)
			}
		case len(best) == 0 || best[0].GetIndex() != uint32(ref-1):
			t.Errorf("%d: %v", ref, it)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// held is a task that holds a worker.
type held struct{ entered, leave chan struct{} }

func (h *held) Step(time.Duration) (bool, error) {
	close(h.entered)
	<-h.leave
	return true, nil
}

// A job that is called back while it waits for a worker is answered at once; the others are done.
func TestJobNobodyWaitsFor(t *testing.T) {
	c, conn := startCompute(t, Settings{Workers: 1})
	stream, err := meshv1.NewComputeServiceClient(conn).RankJobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	item := func(ref uint64) *meshv1.RankJobsRequest_Item {
		return &meshv1.RankJobsRequest_Item{Ref: ref, Job: &meshv1.RankJobRequest{Rank: big(3)}}
	}
	req := &meshv1.RankJobsRequest{Cancel: []uint64{20, 77}}
	for ref := uint64(1); ref <= 20; ref++ {
		req.Items = append(req.Items, item(ref))
	}
	// A worker that is held for two seconds is replaced: connecting must not count for that.
	if err := stream.Send(&meshv1.RankJobsRequest{Items: []*meshv1.RankJobsRequest_Item{item(100)}}); err != nil {
		t.Fatal(err)
	}
	collect(t, stream.Recv, 1)
	h := &held{make(chan struct{}), make(chan struct{})}
	if err := c.front.pool.Go(t.Context(), "hold", 1, h, func(cpupool.Times, error) {}); err != nil {
		t.Fatal(err)
	}
	<-h.entered
	if err := errors.Join(stream.Send(req), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	back := collect(t, stream.Recv, 1)
	close(h.leave)
	if got := back[20].GetCode(); got != wirev1.Code_CODE_CANCELLED {
		t.Errorf("called back: %v", back)
	}
	for ref, it := range collect(t, stream.Recv, 19) {
		if it.GetCode() != wirev1.Code_CODE_OK || ref == 20 {
			t.Errorf("%d: %v", ref, it.GetCode())
		}
	}
}

func TestPlannedStopEndsStreams(t *testing.T) {
	c, conn := startCompute(t, Settings{})
	stream, err := meshv1.NewComputeServiceClient(conn).RankJobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(ref uint64, job *pushmeshv1.RankRequest) {
		if err := stream.Send(&meshv1.RankJobsRequest{Items: []*meshv1.RankJobsRequest_Item{{Ref: ref, Job: &meshv1.RankJobRequest{Rank: job}}}}); err != nil {
			t.Error(err)
		}
	}
	send(1, big(10))
	collect(t, stream.Recv, 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Stop(ctx); err != nil { // and not by its deadline
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
}

func TestExplanations(t *testing.T) {
	_, conn := startCompute(t, Settings{})
	r := big(4)
	r.Explain, r.Weighted.Bias = true, 0.5
	resp, err := meshv1.NewComputeServiceClient(conn).RankJob(t.Context(), &meshv1.RankJobRequest{Rank: r})
	if err != nil {
		t.Fatal(err)
	}
	parts := resp.GetRank().GetRanked()[0].GetContributions()
	if len(parts) != 2 || parts[0].GetName() != "f" || parts[0].GetValue() != 3 || parts[1].GetName() != "" || parts[1].GetValue() != 0.5 {
		t.Fatal(parts)
	}
}

// A node says that it takes packed candidates before anything else, ranks them, and leaves their
// ids to the client.
func TestPackedJobs(t *testing.T) {
	_, conn := startCompute(t, Settings{})
	client := meshv1.NewComputeServiceClient(conn)
	stream, err := client.RankJobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first, err := stream.Recv(); err != nil || !first.GetTakesPacked() || len(first.GetItems()) > 0 {
		t.Fatal(first, err)
	}
	r := big(20)
	packed, err := candidates.Pack(score.Candidates(r.GetCandidates()), &score.Needs{Features: true})
	if err != nil {
		t.Fatal(err)
	}
	both := &meshv1.RankJobRequest{Rank: r, Packed: packed}
	alone := &meshv1.RankJobRequest{Rank: &pushmeshv1.RankRequest{Weighted: r.GetWeighted(), TopK: 3}, Packed: packed}
	broken := &meshv1.RankJobRequest{Rank: alone.GetRank(), Packed: &meshv1.PackedCandidates{Count: 1, Priorities: []byte{1, 2}}}
	if err := stream.Send(&meshv1.RankJobsRequest{Items: []*meshv1.RankJobsRequest_Item{{Ref: 1, Job: alone}, {Ref: 2, Job: both}, {Ref: 3, Job: broken}}}); err != nil {
		t.Fatal(err)
	}
	got := collect(t, stream.Recv, 3)
	if got[2].GetCode() != wirev1.Code_CODE_INVALID_ARGUMENT || got[3].GetCode() != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Error(got[2], got[3])
	}
	resp, err := client.RankJob(t.Context(), alone)
	if err != nil {
		t.Fatal(err)
	}
	for _, resp := range []*meshv1.RankJobResponse{got[1].GetJob(), resp} {
		best := resp.GetRank().GetRanked()
		if resp.GetPacked() != 20 || len(best) != 3 || best[0].GetIndex() != 19 || best[0].GetScore() != 19 || best[0].GetId() != "" {
			t.Error(resp)
		}
	}
}
