package compute

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/intake"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// patience bounds every wait of these tests; nothing comes near it.
const patience = time.Minute

func startCompute(t *testing.T, s Settings) (*Compute, *grpc.ClientConn) {
	t.Helper()
	s.ID, s.Listen, s.HTTP, s.LogLevel, s.PlainTiers = "test", "127.0.0.1:0", "127.0.0.1:0", "error", true
	c, err := New(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
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
	conn, err := grpc.NewClient(c.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(intake.MaxRequest), grpc.MaxCallRecvMsgSize(intake.MaxRequest)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, conn
}

// big is a job of n candidates, whose best is the last.
func big(n int) *pushmeshv1.RankRequest {
	r := &pushmeshv1.RankRequest{TopK: 3, Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"f": 1}}}
	for i := range n {
		r.Candidates = append(r.Candidates, &pushmeshv1.Candidate{Id: fmt.Sprint(i), Features: map[string]float64{"f": float64(i)}})
	}
	return r
}

func TestRanksOverGRPC(t *testing.T) {
	_, conn := startCompute(t, Settings{})
	resp, err := meshv1.NewComputeServiceClient(conn).RankJob(t.Context(), &meshv1.RankJobRequest{Caller: "r1", Rank: big(100_000)})
	if err != nil {
		t.Fatal(err)
	}
	got := resp.GetRank().GetRanked()
	if len(got) != 3 || got[0].GetId() != "99999" || got[0].GetScore() != 99999 || got[2].GetIndex() != 99997 || resp.GetRanUs() == 0 {
		t.Fatal(resp)
	}
	_, err = meshv1.NewComputeServiceClient(conn).RankJob(t.Context(), &meshv1.RankJobRequest{Caller: "r1", Rank: &pushmeshv1.RankRequest{}})
	if status.Code(err) != codes.InvalidArgument || code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Fatal(err)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	c, conn := startCompute(t, Settings{})
	if _, err := meshv1.NewComputeServiceClient(conn).RankJob(t.Context(), &meshv1.RankJobRequest{Rank: big(10)}); err != nil {
		t.Fatal(err)
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal(resp, err)
	}
	for path, wants := range map[string][]string{
		"/readyz?verbose": {"serving: ok", "ready", "models: degraded: no store is configured (--stores)"},
		"/metrics": {
			`pushmesh_compute_jobs_total{code="OK"} 1`, `pushmesh_compute_queue_depth{lane="long"} 0`,
			"pushmesh_compute_run_seconds_bucket", "pushmesh_compute_wait_seconds_count 1",
		},
	} {
		body := get(t, "http://"+c.HTTPAddr()+path)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q:\n%s", path, want, body)
			}
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Many more jobs than fit: each is answered, well or OVERLOADED with a time to come back, and
// refusals are quick.
func TestOverloadIsRefused(t *testing.T) {
	_, conn := startCompute(t, Settings{Workers: 1, ShortQueue: 4, LongQueue: 4})
	client := meshv1.NewComputeServiceClient(conn)
	job := big(5_000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[wirev1.Code]int{}
	// Mostly once is enough; a busy machine may bring the jobs one after the other.
	for began := time.Now(); got[wirev1.Code_CODE_OVERLOADED] == 0 && time.Since(began) < patience; {
		for i := range 40 {
			wg.Go(func() {
				_, err := client.RankJob(t.Context(), &meshv1.RankJobRequest{Caller: fmt.Sprint(i % 8), Rank: job})
				mu.Lock()
				defer mu.Unlock()
				got[code.Of(err)]++
				if e := code.From(err); e != nil && (e.RetryAfter <= 0 || status.Code(err) != codes.ResourceExhausted) {
					t.Errorf("refused without a time: %v", err)
				}
			})
		}
		wg.Wait()
	}
	if got[wirev1.Code_CODE_OK] == 0 || got[wirev1.Code_CODE_OVERLOADED] == 0 || len(got) != 2 {
		t.Fatal(got)
	}
}

func TestDeadline(t *testing.T) {
	_, conn := startCompute(t, Settings{Workers: 1})
	client := meshv1.NewComputeServiceClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := client.RankJob(ctx, &meshv1.RankJobRequest{Rank: big(50_000)}); status.Code(err) != codes.DeadlineExceeded {
		t.Fatal(err)
	}
}

func TestPlannedStopAnswersEverything(t *testing.T) {
	c, err := New(t.Context(), Settings{Flags: tierauth.Flags{PlainTiers: true}, ID: "test", Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", LogLevel: "error", Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(c.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client := meshv1.NewComputeServiceClient(conn)
	job := big(10_000)
	results := make(chan error, 16)
	for range 16 {
		go func() {
			_, err := client.RankJob(context.Background(), &meshv1.RankJobRequest{Rank: job}, grpc.MaxCallSendMsgSize(intake.MaxRequest))
			results <- err
		}()
	}
	if err := <-results; err != nil { // at least one is through, so others are under way
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for range 15 {
		if err := <-results; err != nil && code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Fatalf("%v: neither ranked nor told to go elsewhere", err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSettingsNameEveryFault(t *testing.T) {
	s := Settings{ID: "no spaces please", Listen: "x", Workers: -1, TraceRatio: 2}
	err := s.Check()
	if err == nil {
		t.Fatal("no fault found")
	}
	for _, want := range []string{"id", "--listen", "--workers", "--trace-ratio"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in: %v", want, err)
		}
	}
	if _, err := New(t.Context(), s); err == nil {
		t.Error("New takes them")
	}
}

// The candidates of a real learning-to-rank set: a plain sum of features does better than chance,
// and the tier gives what the formula gives.
func TestRealCandidates(t *testing.T) {
	_, conn := startCompute(t, Settings{})
	var gain, chance float64
	for q, query := range readSample(t) {
		req := &pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{}}}
		total := 0.0
		for i, c := range query {
			req.Candidates = append(req.Candidates, &pushmeshv1.Candidate{Id: fmt.Sprint(i), Features: c.features})
			for name := range c.features {
				req.Weighted.Weights[name] = 1
			}
			total += c.relevance
		}
		resp, err := meshv1.NewComputeServiceClient(conn).RankJob(t.Context(), &meshv1.RankJobRequest{Rank: req})
		if err != nil {
			t.Fatal(err)
		}
		ranked := resp.GetRank().GetRanked()
		if len(ranked) != len(query) {
			t.Fatalf("query %d: %d of %d ranked", q, len(ranked), len(query))
		}
		for place, r := range ranked {
			want := 0.0
			for _, v := range query[r.GetIndex()].features {
				want += v
			}
			if math.Abs(r.GetScore()-want) > 1e-9 || place > 0 && ranked[place-1].GetScore() < r.GetScore() {
				t.Fatalf("query %d place %d: score %v, want %v", q, place, r.GetScore(), want)
			}
			if place < 5 {
				gain += query[r.GetIndex()].relevance
			}
		}
		chance += 5 * total / float64(len(query))
	}
	if gain <= chance {
		t.Errorf("relevance of the first five: %v, by chance %v", gain, chance)
	}
}
