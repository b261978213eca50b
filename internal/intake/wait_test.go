package intake

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A call's request that turns out lighter than was expected lets those go on who wait.
func TestRoomGivenBackByACallWakesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64 * mib)
		call, err := b.begin(from(t.Context(), "10.0.0.1", "a"), nil, callBytes)
		if err != nil {
			t.Fatal(err)
		}
		if err := call.resize(40 * mib); err != nil { // what `only` charges before it is received
			t.Fatal(err)
		}
		stream := b.caller(t, "10.0.0.1", "a")
		done := waitFor(t, b, stream, 30*mib)
		if len(done) > 0 {
			t.Fatal("it does not wait")
		}
		if err := call.resize(100_000); err != nil { // what it really weighs
			t.Fatal(err)
		}
		synctest.Wait()
		if len(done) == 0 {
			t.Errorf("%d of %d bytes are used, and the stream waits", b.used, b.all)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// waitFor has a caller wait for n bytes.
func waitFor(t *testing.T, b *Budget, c *caller, n int64) chan error {
	done := make(chan error, 1)
	ctx := t.Context()
	go func() {
		_, _, err := b.wait(ctx, c, 0, n)
		done <- err
	}()
	synctest.Wait()
	return done
}

// However many of one address wait for what it can't have, somebody of another goes on at once when
// there is room; who is behind others of its own address, or behind very many addresses, within a
// second.
func TestAnHonestWaiterBehindHostileOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64 * mib)
		evil := b.caller(t, "10.0.0.6", "evil")
		if err := b.take(evil, 0, 20*mib); err != nil {
			t.Fatal(err)
		}
		for range 300 {
			waitFor(t, b, evil, 30*mib)
		}
		honest := b.caller(t, "10.0.0.1", "honest")
		if err := b.take(honest, 0, 15*mib); err != nil {
			t.Fatal(err)
		}
		done := waitFor(t, b, honest, 10*mib)
		neighbour := waitFor(t, b, b.caller(t, "10.0.0.6", "neighbour"), 3*mib)
		if len(done)+b.waiting != 301 && len(neighbour) == 0 {
			t.Fatalf("%d wait", b.waiting)
		}
		b.set(honest, 15*mib, 0) // its first request is done: half the budget is free
		synctest.Wait()
		if len(done) == 0 {
			t.Errorf("%d of %d MiB are used, and the honest stream waits", b.used/mib, b.all/mib)
		}
		<-time.After(2 * lookAgain) // of synctest's clock
		if len(neighbour) == 0 {
			t.Error("a neighbour waits behind others of its address")
		}
	})
}

// A compressed request of a stream ends it where there is no room; a plain one waits.
func TestCompressedStreamsWaitForRoom(t *testing.T) {
	for name, opts := range map[string][]grpc.CallOption{"plain": nil, "gzip": {grpc.UseCompressor(gzip.Name)}} {
		b, f, addr := serve(t, 16*mib)
		close(f.hold)
		s, err := pushmeshv1.NewPublishServiceClient(dial(t, addr, "127.0.0.1")).PublishStream(soon(t), opts...)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "entered", func() bool { return b.now() > 0 })
		room := func() int64 { return b.all - 2*b.now() } // of a further name at the address
		var neighbours []*caller
		for i := 0; room() > 80_000; i++ {
			n := b.caller(t, "127.0.0.1", string(rune('a'+i)))
			for room() > 80_000 && b.take(n, 0, 5_000) == nil {
			}
			neighbours = append(neighbours, n)
		}
		free := func() {
			for _, n := range neighbours {
				b.leave(n, n.used)
			}
		}
		t.Logf("%s: a further name has room for %d bytes", name, room())
		if err := s.Send(&pushmeshv1.PublishStreamRequest{Message: &pushmeshv1.PublishRequest{Payload: incompressible(20_000)}}); err != nil {
			t.Fatal(err)
		}
		_ = s.CloseSend()
		ended := make(chan error, 1)
		go func() { _, err := s.Recv(); ended <- err }()
		select {
		case err := <-ended:
			t.Errorf("%s: ended while there was no room: %v", name, err)
		case <-waits(b):
			free()
			if err := <-ended; !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		free()
	}
}

// Nine callers at an address, each with what it gets: health checks from there.
func TestHealthIsAnswered(t *testing.T) {
	b, _, addr := serve(t, 256*mib)
	for i := range 12 {
		n := b.caller(t, "127.0.0.1", string(rune('a'+i)))
		for b.take(n, 0, 8_000) == nil {
		}
		defer b.leave(n, n.used)
	}
	_, err := grpc_health_v1.NewHealthClient(dial(t, addr, "127.0.0.1")).Check(soon(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Errorf("%d of 256 MiB used: %v", b.now()/mib, err)
	}
	_, err = grpc_health_v1.NewHealthClient(dial(t, addr, "127.0.0.2")).Check(soon(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Errorf("another address: %v", err)
	}
}

// waits is closed when somebody waits for room.
func waits(b *Budget) chan struct{} {
	came := make(chan struct{})
	go func() {
		for range time.Tick(time.Millisecond) {
			b.mu.Lock()
			n := b.waiting
			b.mu.Unlock()
			if n > 0 {
				close(came)
				return
			}
		}
	}()
	return came
}

func incompressible(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.IntN(256))
	}
	return b
}

// What waits to be decoded keeps its bytes charged, and goes on one after the other, however many
// addresses wait with what the others would need. Nobody has more than all meanwhile.
func TestRequestsThatHaveComeAreDecodedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64 * mib)
		turns := make(chan *Call, 1000)
		var calls []*Call
		for _, addr := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8"} {
			for _, n := range []int64{100_000, 6 * mib} {
				c, err := b.begin(from(t.Context(), addr, ""), nil, streamBytes)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.await(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				calls = append(calls, c)
			}
		}
		if b.used > b.all {
			t.Fatalf("%d bytes are charged", b.used)
		}
		ctx := t.Context()
		for _, c := range calls {
			go func() {
				if err := c.await(ctx, 10*c.request); err != nil {
					t.Error(err)
				}
				turns <- c
			}()
		}
		for range calls {
			synctest.Wait()
			if b.used > b.all {
				t.Errorf("%d bytes are charged", b.used)
			}
			if _, err := b.enter(from(ctx, "10.0.1.1", ""), 0); err != nil {
				t.Error(err)
			}
			(<-turns).Done()
		}
		for _, c := range calls {
			c.end()
		}
		if b.used != 0 || b.larges != 0 || b.waiting != 0 || b.ring.Len() != 0 {
			t.Errorf("%d bytes are charged, %d are large, %d wait", b.used, b.larges, b.waiting)
		}
	})
}

// Streams of one address that turn out much heavier than they said leave others what is theirs.
func TestHeavyRequestsOfOneAddressLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64 * mib)
		ctx, cancel := context.WithCancel(t.Context())
		var calls []*Call
		for range 76 {
			c, err := b.begin(from(t.Context(), "10.0.0.6", "evil"), nil, streamBytes)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, c)
		}
		for _, c := range calls {
			go func() {
				if c.await(ctx, 100_000) == nil && c.await(ctx, 12*mib) == nil {
					c.Keep(8 * mib)
					c.Done()
				}
			}()
			synctest.Wait()
		}
		if b.used > b.all/2 {
			t.Errorf("%d of %d bytes are charged to one address", b.used, b.all)
		}
		other := b.caller(t, "10.0.0.1", "honest")
		if err := b.take(other, 0, 3*mib); err != nil {
			t.Errorf("a call of another address: %v", err)
		}
		b.leave(other, 3*mib)
		cancel()
		synctest.Wait()
		for _, c := range calls {
			c.end()
		}
		if b.used != 0 || b.larges != 0 || len(b.origins) != 0 {
			t.Errorf("%d bytes are charged, %d are large", b.used, b.larges)
		}
	})
}

// silent is a caller that begins a request, and sends no more of it.
type silent struct {
	grpc.ServerTransportStream
	n    uint32
	over chan struct{}
}

func (s silent) ReadMessageHeader(header []byte) error {
	header[0], header[1], header[2], header[3], header[4] = 0, byte(s.n>>24), byte(s.n>>16), byte(s.n>>8), byte(s.n)
	return nil
}

func (s silent) Read(int) (mem.BufferSlice, error) {
	<-s.over
	return nil, io.ErrUnexpectedEOF
}

func (silent) RecvCompress() string { return "" }

// A request that has begun and does not come ends its call.
func TestARequestThatDoesNotComeEndsItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, recv := range map[string]func(*Call, context.Context, any) error{
			"call":   func(c *Call, ctx context.Context, v any) error { return c.only(ctx, v, nil) },
			"stream": func(c *Call, ctx context.Context, v any) error { return c.next(ctx, v, nil) },
		} {
			b := New(64 * mib)
			s := silent{n: 10 * mib, over: make(chan struct{})}
			ctx := grpc.NewContextWithServerTransportStream(from(t.Context(), "10.0.0.1", ""), s)
			c, err := b.begin(ctx, nil, callBytes)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			err = recv(c, ctx, &codec.Frame{})
			if took := time.Since(began); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || took != frameTimeout+10*time.Second {
				t.Errorf("%s: after %v: %v", name, took, err)
			}
			c.end()
			close(s.over)
			if b.used != 0 {
				t.Errorf("%s: %d bytes are charged", name, b.used)
			}
		}
	})
}

// What the API allows (100,000 candidates in 64 MiB) is let in by the default budget, by a
// compute node two jobs of half that at a time.
func TestDocumentedRankingsFit(t *testing.T) {
	b := New(256 * mib)
	for _, features := range []int{12, 25} {
		req := rankRequest(100_000, features, 0)
		data, err := proto.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > MaxRequest {
			t.Fatalf("%d features have %d bytes", features, len(data))
		}
		weight := int64(len(data)) + weighed(req, data)
		c := b.caller(t, "10.0.0.1", "a")
		if err := b.take(c, 0, weight); err != nil {
			t.Errorf("%d features take %d MiB: %v", features, weight/mib, err)
		} else {
			b.set(c, b.charged(weight), 0)
		}
		b.leave(c, 0)
	}
	compute := New(512 * mib)
	job := &meshv1.RankJobRequest{Rank: rankRequest(50_000, 10, 0)}
	data, err := proto.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := compute.take(compute.caller(t, "10.0.0.1", ""), 0, int64(len(data))+weighed(job, data)); err != nil {
			t.Errorf("job %d: %v", i, err)
		}
	}
}
