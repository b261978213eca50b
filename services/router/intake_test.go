package router

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// from is a connection to the router from another address of this machine.
func (m *mesh) from(tb testing.TB, ip string) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient(m.router.Addr(), grpc.WithTransportCredentials(m.creds),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

func named(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+name)
}

// heap is what lives, without what pools keep until the next collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Streams that publish and never read an answer take little each, with what their clients have in
// this process; they are not read then. Others publish meanwhile.
func TestStreamsThatReadNoAnswersTakeLittle(t *testing.T) {
	m := startMesh(t, func(s *Settings) { s.ProducerRate, s.ProducerInFlight = 1000, 50 })
	m.publish(t, &pushmeshv1.PublishRequest{Topic: "live/1"})
	const streams = 20
	ctx, cancel := context.WithCancel(t.Context())
	var sent atomic.Int64
	var senders sync.WaitGroup
	defer senders.Wait()
	defer cancel()
	before := heap()
	for i := range streams {
		conn, err := grpc.NewClient(m.router.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		s, err := pushmeshv1.NewPublishServiceClient(conn).PublishStream(named(ctx, fmt.Sprint("unread-", i)))
		if err != nil {
			t.Fatal(err)
		}
		senders.Go(func() {
			req := &pushmeshv1.PublishStreamRequest{Message: &pushmeshv1.PublishRequest{Topic: "live/unread", Payload: make([]byte, 1024)}}
			for ; s.Send(req) == nil; req.Ref++ {
				sent.Add(1)
			}
		})
	}
	quiet := time.Now()
	for last := int64(-1); time.Since(quiet) < 2*time.Second; <-time.After(50 * time.Millisecond) {
		if now := sent.Load(); now != last {
			last, quiet = now, time.Now()
		}
	}
	took := (heap() - before) / streams
	t.Logf("after %d messages a stream takes %d KiB", sent.Load()/streams, took>>10)
	if took > 5<<20 { // 1 MiB lies in the window, in buffers of up to twice that
		t.Errorf("a stream that is not read takes %d KiB", took>>10)
	}
	m.publish(t, &pushmeshv1.PublishRequest{Topic: "live/1"})
}

// slowCompute answers rankings when it is told to.
type slowCompute struct {
	meshv1.UnimplementedComputeServiceServer
	came chan uint64
	gate chan struct{}
}

func (c *slowCompute) RankJobs(stream grpc.BidiStreamingServer[meshv1.RankJobsRequest, meshv1.RankJobsResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		for range req.GetItems() {
			c.came <- 1
		}
		select {
		case <-c.gate:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		resp := &meshv1.RankJobsResponse{}
		for _, it := range req.GetItems() {
			resp.Items = append(resp.Items, &meshv1.RankJobsResponse_Item{Ref: it.GetRef(), Job: &meshv1.RankJobResponse{Rank: &pushmeshv1.RankResponse{}}})
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// Rankings that compute does not answer fill their caller's share of the router and no more: others
// are refused at once. Another address publishes meanwhile. With TLS it is the same.
func TestRankingsHaveAShareOfTheRouter(t *testing.T) {
	for name, start := range ways {
		t.Run(name, func(t *testing.T) { rankingsHaveAShare(t, start) })
	}
}

func rankingsHaveAShare(t *testing.T, start func(testing.TB, func(*Settings)) *mesh) {
	t.Helper()
	compute, addr := &slowCompute{came: make(chan uint64, 1000), gate: make(chan struct{})}, ""
	{
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv, served := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20)), make(chan error, 1)
		meshv1.RegisterComputeServiceServer(srv, compute)
		go func() { served <- srv.Serve(l) }()
		t.Cleanup(func() {
			srv.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
		addr = l.Addr().String()
	}
	const all = 32 << 20
	m := start(t, func(s *Settings) { s.Computes, s.RequestBytes = []string{addr}, all })
	req := &pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{Bias: 1}}
	for i := range 2000 {
		req.Candidates = append(req.Candidates, &pushmeshv1.Candidate{Id: fmt.Sprint(i), Features: map[string]float64{"a": 0.5, "b": 0.25, "c": 1}})
	}
	rank := pushmeshv1.NewRankServiceClient(m.from(t, "127.0.0.1"))
	if err := m.sample(t, "pushmesh_router_request_bytes", "0"); err != nil {
		t.Fatal(err)
	}
	before, calls := heap(), 60
	ended := make(chan error, calls)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range calls {
		go func() {
			_, err := rank.Rank(named(ctx, fmt.Sprint("ranker-", i)), req)
			ended <- err
		}()
	}
	refused := 0
	for quiet := time.After(patience); refused < calls/2; {
		select {
		case err := <-ended:
			if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter <= 0 {
				t.Fatal(err)
			}
			refused++
		case <-quiet:
			t.Fatalf("%d of %d rankings are refused", refused, calls)
		}
	}
	took := heap() - before
	t.Logf("%d of %d rankings are refused, the heap grows by %d KiB", refused, calls, took>>10)
	if took > 2*all {
		t.Errorf("the heap grows by %d KiB", took>>10)
	}
	for ip, who := range map[string]string{"127.0.0.2": "ranker-1", "127.0.0.1": "honest"} {
		if _, err := pushmeshv1.NewPublishServiceClient(m.from(t, ip)).Publish(named(ctx, who), &pushmeshv1.PublishRequest{Topic: "live/1", Payload: make([]byte, 10_000)}); err != nil {
			t.Errorf("%s from %s: %v", who, ip, err)
		}
	}
	if err := m.sample(t, `pushmesh_router_requests_refused_total{code="OVERLOADED"}`, "0"); err == nil {
		t.Error("no refusal is counted")
	}
	close(compute.gate)
	for ; refused < calls; refused++ {
		if err := <-ended; err != nil && code.Of(err) != wirev1.Code_CODE_OVERLOADED {
			t.Error(err)
		}
	}
	eventually(t, "nothing is charged", func() error { return m.sample(t, "pushmesh_router_request_bytes", "0") })
}
