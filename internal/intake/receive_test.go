package intake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// bounded is how long a test waits for anything.
const bounded = time.Minute

// front is a service that holds its calls until they are let go.
type front struct {
	pushmeshv1.UnimplementedPublishServiceServer
	pushmeshv1.UnimplementedRankServiceServer
	came chan int      // bytes of what arrived, or candidates
	hold chan struct{} // closed: calls are answered
}

func (f *front) Publish(ctx context.Context, req *pushmeshv1.PublishRequest) (*pushmeshv1.PublishResponse, error) {
	return &pushmeshv1.PublishResponse{Seq: uint64(len(req.GetPayload()))}, f.wait(ctx, len(req.GetPayload()))
}

func (f *front) Rank(ctx context.Context, req *pushmeshv1.RankRequest) (*pushmeshv1.RankResponse, error) {
	defer runtime.KeepAlive(req)
	return &pushmeshv1.RankResponse{}, f.wait(ctx, len(req.GetCandidates()))
}

// PublishStream reads one request, and the next ones once they are let go.
func (f *front) PublishStream(s grpc.BidiStreamingServer[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]) error {
	for {
		frame := codec.Frame{}
		if err := s.RecvMsg(&frame); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		n := frame.Len()
		frame.Free()
		if err := f.wait(s.Context(), n); err != nil {
			return err
		}
	}
}

func (f *front) wait(ctx context.Context, n int) error {
	f.came <- n
	select {
	case <-f.hold:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve has a front served with a budget.
func serve(t *testing.T, all int) (*Budget, *front, string) {
	t.Helper()
	b, f := New(all), &front{came: make(chan int, 10_000), hold: make(chan struct{})}
	s, err := grpcserve.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(grpcserve.Config{
		MinPing: time.Second, Options: append(ServerOptions(), grpc.ForceServerCodecV2(codec.Codec{})), Around: b.Around,
		Register: func(r grpc.ServiceRegistrar) {
			pushmeshv1.RegisterPublishServiceServer(r, f)
			pushmeshv1.RegisterRankServiceServer(r, f)
		},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bounded)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		if b.used != 0 || len(b.origins) != 0 {
			t.Errorf("%d bytes are charged after the last call, to %d addresses", b.used, len(b.origins))
		}
	})
	return b, f, s.Addr()
}

// dial connects from an address of this machine.
func dial(t *testing.T, to, by string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(2*MaxRequest)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(by)}}).DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bounded)
	t.Cleanup(cancel)
	return ctx
}

func as(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+name)
}

// ignoreEOF is for sends that the answer overtakes.
func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// until polls a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(bounded); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// heap is what lives, without what pools keep until the next collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (b *Budget) now() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Everything that gRPC's own receiving does is done by this one as well: messages of any size,
// compressed ones, ends, calls without a request, callers that leave.
func TestRequestsAreReceived(t *testing.T) {
	_, f, addr := serve(t, 512*mib)
	close(f.hold)
	conn := dial(t, addr, "127.0.0.1")
	api := pushmeshv1.NewPublishServiceClient(conn)
	for _, n := range []int{0, 1, 1000, 16 << 10, 100_000, 3 * mib} {
		for name, opts := range map[string][]grpc.CallOption{"plain": nil, "gzip": {grpc.UseCompressor(gzip.Name)}} {
			payload := bytes.Repeat([]byte("payload "), n/8+1)[:n]
			res, err := api.Publish(soon(t), &pushmeshv1.PublishRequest{Topic: "a", Payload: payload}, opts...)
			if err != nil || res.GetSeq() != uint64(n) {
				t.Errorf("%d bytes, %s: %v, %v", n, name, res, err)
			}
		}
	}
	s, err := api.PublishStream(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for range len(f.came) {
		<-f.came
	}
	for _, n := range []int{0, 1000, 70_000, 5 * mib} {
		if err := s.Send(&pushmeshv1.PublishStreamRequest{Message: &pushmeshv1.PublishRequest{Payload: make([]byte, n)}}); err != nil {
			t.Fatal(err)
		}
		if got := <-f.came; got < n || got > n+20 {
			t.Errorf("%d bytes came as %d", n, got)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(soon(t), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		method string
		send   func(grpc.ClientStream) error
		want   codes.Code
	}{
		"no request": {"Publish", func(s grpc.ClientStream) error { return s.CloseSend() }, codes.Internal},
		"two requests": {"Publish", func(s grpc.ClientStream) error {
			_ = s.SendMsg(&pushmeshv1.PublishRequest{})
			return ignoreEOF(s.SendMsg(&pushmeshv1.PublishRequest{}))
		}, codes.Internal},
		"too large": {"Publish", func(s grpc.ClientStream) error {
			_ = s.SendMsg(&pushmeshv1.PublishRequest{Payload: make([]byte, MaxRequest)})
			return nil
		}, codes.InvalidArgument},
		"a large bubble": {"PublishStream", func(s grpc.ClientStream) error {
			_ = s.SendMsg(&pushmeshv1.PublishRequest{Payload: make([]byte, MaxRequest)})
			return nil
		}, codes.InvalidArgument},
	} {
		s, err := conn.NewStream(soon(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/pushmesh.v1.PublishService/"+c.method)
		if err == nil {
			err = c.send(s)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&pushmeshv1.PublishResponse{}); status.Code(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	// 64 KiB that become 65 MiB
	if _, err := api.Publish(soon(t), &pushmeshv1.PublishRequest{Payload: make([]byte, 65*mib)}, grpc.UseCompressor(gzip.Name)); code.Of(err) != wirev1.Code_CODE_PAYLOAD_TOO_LARGE && code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("a bomb: %v", err)
	}
}

// Rankings that wait for their answer take no more than the budget, however many somebody asks for:
// the others are refused at once, with a time to come back. Another name, and another address, are
// served beside them.
func TestRankingsAreBounded(t *testing.T) {
	const all = 64 * mib
	b, f, addr := serve(t, all)
	req := rankRequest(5000, 3, 0)
	before := heap()
	hostile := pushmeshv1.NewRankServiceClient(dial(t, addr, "127.0.0.1"))
	const calls = 60
	ended := make(chan error, calls)
	for range calls {
		go func() {
			_, err := hostile.Rank(as(soon(t), "hostile"), req)
			ended <- err
		}()
	}
	var taken, refused int
	for taken+refused < calls {
		select {
		case <-f.came:
			taken++
		case err := <-ended:
			if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter < comeBack/2 {
				t.Fatal(err)
			}
			refused++
		case <-time.After(bounded):
			t.Fatal("waited in vain")
		}
	}
	took := heap() - before
	t.Logf("%d rankings are taken, %d refused; the heap grows by %d, charged are %d", taken, refused, took, b.now())
	if taken < 1 || b.now() > all/2 || took > all {
		t.Errorf("%d rankings are taken, the heap grows by %d, charged are %d", taken, took, b.now())
	}
	for by, name := range map[string]string{"127.0.0.1": "other", "127.0.0.2": "hostile"} {
		go func() {
			_, err := pushmeshv1.NewPublishServiceClient(dial(t, addr, by)).Publish(as(soon(t), name), &pushmeshv1.PublishRequest{Payload: make([]byte, 10_000)})
			ended <- err
		}()
		select {
		case <-f.came:
		case err := <-ended:
			t.Errorf("%s from %s: %v", name, by, err)
		}
	}
	close(f.hold)
	for range taken + 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A request that is larger than there is room for is refused before it is sent: whoever has begun
// to send has got no further than a window.
func TestARequestIsRefusedBeforeItIsReceived(t *testing.T) {
	b, f, addr := serve(t, 16*mib)
	conn := dial(t, addr, "127.0.0.1")
	go func() {
		_, _ = pushmeshv1.NewPublishServiceClient(conn).Publish(soon(t), &pushmeshv1.PublishRequest{Payload: make([]byte, 4*mib)})
	}()
	<-f.came
	s, err := conn.NewStream(soon(t), &grpc.StreamDesc{ClientStreams: true}, "/pushmesh.v1.PublishService/Publish")
	if err != nil {
		t.Fatal(err)
	}
	if err := ignoreEOF(s.SendMsg(&pushmeshv1.PublishRequest{Payload: make([]byte, 3*mib)})); err != nil {
		t.Fatal(err)
	} // and no end: the answer comes before
	if err := s.RecvMsg(&pushmeshv1.PublishResponse{}); code.Of(err) != wirev1.Code_CODE_OVERLOADED {
		t.Error(err)
	}
	if b.now() > 9*mib {
		t.Errorf("%d bytes are charged", b.now())
	}
	close(f.hold)
}

// A stream for whose request there is no room is not read until there is, and loses nothing;
// another address' streams go on meanwhile.
func TestStreamsWaitForRoom(t *testing.T) {
	b, f, addr := serve(t, 16*mib)
	send := func(by string, n int) grpc.BidiStreamingClient[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse] {
		s, err := pushmeshv1.NewPublishServiceClient(dial(t, addr, by)).PublishStream(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = s.Send(&pushmeshv1.PublishStreamRequest{Message: &pushmeshv1.PublishRequest{Payload: make([]byte, n)}})
			_ = s.CloseSend()
		}()
		return s
	}
	const streams = 20
	var all []grpc.BidiStreamingClient[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]
	for range streams {
		all = append(all, send("127.0.0.1", mib))
	}
	until(t, "somebody waits", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(f.came)+b.waiting == streams
	})
	if n := len(f.came); n == 0 || n > 8 {
		t.Errorf("%d of %d streams are read", n, streams)
	}
	for range len(f.came) {
		<-f.came
	}
	all = append(all, send("127.0.0.2", 100_000))
	select {
	case <-f.came:
	case <-time.After(bounded):
		t.Error("another address waits as well")
	}
	close(f.hold)
	for _, s := range all {
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}

// What a stream keeps for a caller that reads no answers is charged to its address, which then
// can't have more read.
func TestUnreadAnswersAreCharged(t *testing.T) {
	b := New(16 * mib)
	ctx := context.WithValue(from(t.Context(), "10.0.0.1", ""), key{}, nil)
	c, err := b.begin(ctx, nil, streamBytes)
	if err != nil {
		t.Fatal(err)
	}
	c.Keep(10 * mib)
	if err := b.take(c.caller, 0, 100_000); code.Of(err) != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("with 10 MiB unread: %v", err)
	}
	c.Keep(100)
	if err := c.resize(100_000); err != nil {
		t.Errorf("with nothing unread: %v", err)
	}
	c.end()
	c.Keep(mib)
	if err := c.resize(1); err == nil || b.used != 0 {
		t.Errorf("after the end: %v, %d bytes", err, b.used)
	}
	Of(ctx).Keep(5) // nobody is charged
}

// A buffer has at most twice the size of what it is for.
func TestBuffersFit(t *testing.T) {
	pool := buffers()
	for n := 1; n <= mib; n += 1 + n/50 {
		b := pool.Get(n)
		if most := max(2*n, 256); len(*b) != n || cap(*b) > most {
			t.Errorf("%d bytes get a buffer of %d", n, cap(*b))
		}
		pool.Put(b)
	}
}
