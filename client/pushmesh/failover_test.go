package pushmesh

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
)

// routers are n servers before one store.
func routers(t *testing.T, n int) (r *fakeRouter, doors []*door, addrs []string) {
	t.Helper()
	r = newFakeRouter(t)
	for range n {
		d := newDoor(t, r, "127.0.0.1:0")
		doors, addrs = append(doors, d), append(addrs, d.addr)
	}
	return r, doors, addrs
}

// keepPublishing publishes 0, 1, 2, … one after the other until the function it returns is called,
// which says how many were.
func keepPublishing(t *testing.T, p *Producer, topic string) (end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	n := make(chan int)
	go func() {
		i := 0
		for ; ctx.Err() == nil; i++ {
			if r, err := p.Publish(t.Context(), Message{Topic: topic, Payload: fmt.Append(nil, i)}); err != nil || r.Seq != uint64(i+1) {
				t.Errorf("%d: %+v, %v", i, r, err)
				i++
				break
			}
		}
		n <- i
	}()
	return sync.OnceValue(func() int {
		cancel()
		return <-n
	})
}

// used waits until a router has had n streams.
func used(t *testing.T, d *door, n int32) {
	t.Helper()
	waitUntil(t, func() bool { return d.streams.Load() >= n })
}

// where is the router that has the producer's only stream.
func where(t *testing.T, doors []*door) (at *door, others []*door) {
	t.Helper()
	waitUntil(t, func() bool {
		at, others = nil, nil
		for _, d := range doors {
			if d.streams.Load() > 0 {
				at = d
			} else {
				others = append(others, d)
			}
		}
		return at != nil
	})
	return at, others
}

// A router ends amid a pipeline: numbers go on at the next one, nothing comes twice, and no caller
// hears of it.
func TestNumbersContinueAtTheNextRouter(t *testing.T) {
	r, doors, addrs := routers(t, 3)
	p := newTestProducer(t, ProducerConfig{Addrs: addrs})
	end := keepPublishing(t, p, "room/one")
	var failed atomic.Int32
	const n = 2000
	for i := range n {
		if err := p.PublishAsync(t.Context(), Message{Topic: "room/many", Payload: fmt.Append(nil, i)}, func(_ Result, err error) {
			if err != nil {
				failed.Add(1)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if i == n/3 {
			at, _ := where(t, doors)
			at.stop()
		}
	}
	flush(t, p)
	checkLog(t, r, "room/one", end())
	checkLog(t, r, "room/many", n)
	if failed.Load() > 0 {
		t.Errorf("%d callers heard of it", failed.Load())
	}
}

// A router that is not ready is left for one that is, with nothing under way.
func TestARouterThatIsNotReadyIsLeft(t *testing.T) {
	r, doors, addrs := routers(t, 2)
	p := newTestProducer(t, ProducerConfig{Addrs: addrs, AnswerTimeout: time.Hour})
	end := keepPublishing(t, p, "room/a")
	at, others := where(t, doors)
	at.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	used(t, others[0], 1)
	others[0].health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	at.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_SERVING)
	used(t, at, 2)
	checkLog(t, r, "room/a", end())
}

// A router that refuses what another one takes, for it may be cut off from the store, is left too.
func TestARouterThatRefusesIsLeft(t *testing.T) {
	r, doors, addrs := routers(t, 2)
	p := newTestProducer(t, ProducerConfig{Addrs: addrs})
	end := keepPublishing(t, p, "room/a")
	at, others := where(t, doors)
	at.refuse.Store(refusal(CodeUnavailable, time.Millisecond))
	used(t, others[0], 1)
	waitUntil(t, func() bool { return len(r.log("room/a")) > 10 })
	checkLog(t, r, "room/a", end())
}

// Routers that come back get their share.
func TestProducersMoveNowAndThen(t *testing.T) {
	r, doors, addrs := routers(t, 2)
	p := newTestProducer(t, ProducerConfig{Addrs: addrs, MoveAfter: 10 * time.Millisecond})
	end := keepPublishing(t, p, "room/a")
	for _, d := range doors {
		used(t, d, 3)
	}
	checkLog(t, r, "room/a", end())
}

// A router that hangs answers neither messages nor the question how it is.
func TestARouterThatHangsIsLeft(t *testing.T) {
	r, doors, _ := routers(t, 2)
	f := newFreezer(t, doors[0].addr)
	p := newTestProducer(t, ProducerConfig{Addrs: []string{f.addr()}, SilentTimeout: 100 * time.Millisecond, AnswerTimeout: time.Hour})
	end := keepPublishing(t, p, "room/a")
	used(t, doors[0], 1)
	f.freeze()
	f.to(doors[1].addr)
	used(t, doors[1], 1)
	checkLog(t, r, "room/a", end())
}

// A router that hangs takes connections, and says nothing on them.
func TestAConnectionThatIsNotMadeIsGivenUp(t *testing.T) {
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hung.Close() }()
	r := newFakeRouter(t)
	for range 4 { // whichever it begins with
		p := newTestProducer(t, ProducerConfig{Addrs: []string{hung.Addr().String(), r.addr}, DialTimeout: 100 * time.Millisecond})
		if _, err := p.Publish(t.Context(), Message{Topic: "room/a"}); err != nil {
			t.Fatal(err)
		}
	}
}

// freezer is a proxy that can stop passing anything on.
type freezer struct {
	ln   net.Listener
	wg   sync.WaitGroup
	mu   sync.Mutex
	dest string
	hung chan struct{} // of connections from now on: closed, they pass nothing on
	all  []net.Conn
}

func newFreezer(t *testing.T, dest string) *freezer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &freezer{ln: ln, dest: dest, hung: make(chan struct{})}
	f.wg.Go(f.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		f.mu.Lock()
		for _, c := range f.all {
			_ = c.Close()
		}
		f.mu.Unlock()
		f.wg.Wait()
	})
	return f
}

func (f *freezer) addr() string { return f.ln.Addr().String() }

// freeze has every connection that there is hang.
func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.hung)
	f.hung = make(chan struct{})
}

// to sends new connections elsewhere.
func (f *freezer) to(dest string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dest = dest
}

func (f *freezer) accept() {
	for {
		client, err := f.ln.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		server, err := net.Dial("tcp", f.dest)
		if err != nil {
			_ = client.Close()
			f.mu.Unlock()
			continue
		}
		f.all = append(f.all, client, server)
		hung := f.hung
		f.mu.Unlock()
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			f.wg.Go(func() {
				_, _ = io.Copy(way[1], frozen{way[0], hung})
				_ = way[1].Close()
			})
		}
	}
}

// frozen reads until hung is closed, and then drops what comes.
type frozen struct {
	net.Conn
	hung <-chan struct{}
}

func (f frozen) Read(b []byte) (int, error) {
	for {
		n, err := f.Conn.Read(b)
		select {
		case <-f.hung:
			if err != nil {
				return 0, err
			}
		default:
			return n, err
		}
	}
}
