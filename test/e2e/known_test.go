package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// reader is a durable session of the SDK that writes down what comes.
type reader struct {
	sub *pushmesh.Subscriber

	mu   sync.Mutex
	seen map[uint64]bool
}

// read attaches; a session that is new begins at the end of its topic.
func read(t *testing.T, addrs []string, name, topic string) *reader {
	t.Helper()
	r := &reader{seen: map[uint64]bool{}}
	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: addrs, ClientID: name, Session: "known", MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, DialTimeout: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.sub = sub
	t.Cleanup(func() { _ = closing.Close(sub) })
	ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
	defer cancel()
	if _, err := sub.Subscribe(ctx, topic, r.note, pushmesh.WithAck(), pushmesh.FromSession()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *reader) note(_ context.Context, d *pushmesh.Delivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[binary.BigEndian.Uint64(d.Payload)] = true
	return nil
}

// missing are those of 1 to n that have not come.
func (r *reader) missing(n uint64) (missing int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := uint64(1); i <= n; i++ {
		if !r.seen[i] {
			missing++
		}
	}
	return missing
}

// has waits until 1 to n have come. What never comes is told by the number, which stands still.
func (r *reader) has(t *testing.T, n uint64) {
	t.Helper()
	last, since := -1, time.Now()
	for {
		missing := r.missing(n)
		switch {
		case missing == 0:
			return
		case missing != last:
			last, since = missing, time.Now()
		case time.Since(since) > 20*time.Second:
			t.Fatalf("%d of %d messages are missing", missing, n)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// producer of numbered messages. Each answer OK must name a seq: the topic is durable.
type producer struct {
	t    *testing.T
	sdk  *pushmesh.Producer
	last uint64
	wait sync.WaitGroup

	mu              sync.Mutex
	nowhere, failed int
}

func newProducer(t *testing.T, addrs []string) *producer {
	t.Helper()
	sdk, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: addrs, MaxBackoff: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Within(sdk, wireclient.Patience) })
	return &producer{t: t, sdk: sdk}
}

func (p *producer) publish(topic string, n int) {
	p.t.Helper()
	for range n {
		p.last++
		p.wait.Add(1)
		err := p.sdk.PublishAsync(p.t.Context(), pushmesh.Message{Topic: topic, Payload: binary.BigEndian.AppendUint64(nil, p.last)}, func(res pushmesh.Result, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			defer p.wait.Done()
			if err != nil {
				p.failed++
			} else if res.Seq == 0 {
				p.nowhere++
			}
		})
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// answered waits for all answers.
func (p *producer) answered() {
	p.t.Helper()
	p.wait.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nowhere > 0 || p.failed > 0 {
		p.t.Fatalf("of %d messages %d were answered OK and stored nowhere, %d failed", p.last, p.nowhere, p.failed)
	}
}

// own is a name that no mesh comes with.
func own(t *testing.T) string { return strings.ToLower(t.Name()) }

// A session in a namespace of one's own keeps its backlog, whole, whatever is there first after a
// restart: here edges and routers are, without the stores that know the namespace.
func TestABacklogOutlivesTheNamespacesThatNobodyKnowsYet(t *testing.T) {
	t.Parallel()
	const backlog = 1000
	m := procmesh.Start(t, procmesh.Options{DB: pgtest.URL(t)})
	ns := own(t)
	m.Namespace(t, ns, &pushmeshv1.Policy{Durable: true})
	topic := ns + "/1"
	if err := closing.Close(read(t, m.EdgeAddrs, "s", topic).sub); err != nil {
		t.Fatal(err)
	}
	p := newProducer(t, m.RouterAddrs)
	p.publish(topic, backlog)
	p.answered()

	fronts := slices.Concat(m.Routers, m.Edges)
	for _, p := range slices.Concat(m.Stores, fronts) {
		p.Kill()
	}
	for _, p := range fronts {
		restart(t, p)
	}
	// The edge takes connections, and lets nobody in.
	if got := hello(t, m.EdgeAddrs[0]); got != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("an edge that does not know the namespaces answers Hello with %v", got)
	}
	for _, p := range fronts {
		if status, body := p.Status(); status != 503 || !strings.Contains(body, "namespaces: missing") {
			t.Errorf("%s does not know the namespaces, and its health is %d: %s", p.Name, status, body)
		}
	}
	attached := make(chan *reader, 1)
	go func() { attached <- read(t, m.EdgeAddrs, "s", topic) }()
	for _, s := range m.Stores {
		restart(t, s)
	}
	r := <-attached
	r.has(t, backlog)

	// What came live and was ACKed does not take the backlog's place either.
	p.publish(topic, 10)
	p.answered()
	r.has(t, backlog+10)
	m.WaitReady(t)
}

// hello is the code with which an edge answers one; OK: it lets the client in.
func hello(t *testing.T, addr string) wirev1.Code {
	t.Helper()
	procmesh.Await(t, "the edge listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	c := wireclient.Dial(t, addr)
	defer c.Close()
	c.Send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version})
	ft, body, err := c.Next(wireclient.Patience)
	if err != nil {
		t.Fatal(err)
	}
	f, err := wireclient.Frame(ft, body)
	if err != nil {
		t.Fatal(err)
	}
	if e, is := f.(*wirev1.Error); is {
		return e.GetCode()
	}
	return wirev1.Code_CODE_OK
}

// plainly is a connection to a router that tries nothing again.
func plainly(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// readyz asks a process in the test's own.
func readyz(t *testing.T, addr string) (status int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/readyz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// A process that starts while the database is away learns the mesh of a store, and the namespaces
// of whoever knows them: what is ephemeral flows, what is durable is refused, and nothing is
// answered OK and stored nowhere.
func TestEdgesAndRoutersServeWhatNeedsNoDatabaseThoughTheyAreNew(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m := procmesh.Start(t, procmesh.Options{DB: db.URL()})
	ns := own(t)
	m.Namespace(t, ns, &pushmeshv1.Policy{Durable: true})
	if err := db.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*procmesh.Process{m.Routers[0], m.Edges[0]} {
		p.Kill()
		restart(t, p)
		awaitReady(t, p)
	}
	api := pushmeshv1.NewPublishServiceClient(plainly(t, m.RouterAddrs[0]))
	for i := range 20 {
		res, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: ns + "/1"})
		if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Fatalf("publish %d of a durable message without a database: %v, %v", i, res, err)
		}
	}
	c, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{})
	c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "brief/1"})
	procmesh.Await(t, "an ephemeral message is taken", func() bool {
		_, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "brief/1", Payload: []byte("now")})
		return err == nil
	})
	if got := c.Message(); string(got.GetPayload()) != "now" {
		t.Errorf("got %v", got)
	}
}

// A planned restart of one process after the other, each once the one before is ready, as an
// orchestrator does it: nothing is missing, and nothing answered OK is stored nowhere.
func TestARollingRestartLosesNothingInANamespaceOfOnesOwn(t *testing.T) {
	t.Parallel()
	m := procmesh.Start(t, procmesh.Options{Edges: 2, Routers: 2, Stores: 2, DB: pgtest.URL(t)})
	ns := own(t)
	m.Namespace(t, ns, &pushmeshv1.Policy{Durable: true})
	topic := ns + "/1"
	var readers []*reader
	for i := range 4 {
		readers = append(readers, read(t, []string{m.EdgeAddrs[i%2], m.EdgeAddrs[1-i%2]}, fmt.Sprint("s", i), topic))
	}
	p := newProducer(t, m.RouterAddrs)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.publish(topic, 2)
			}
		}
	}()
	for _, ps := range [][]*procmesh.Process{m.Stores, m.Routers, m.Edges} {
		for _, p := range ps {
			p.Signal(syscall.SIGTERM)
			if code, err := p.Wait(t.Context()); code != 0 || err != nil {
				t.Errorf("%s ended with %d, %v", p.Name, code, err)
			}
			restart(t, p)
			awaitReady(t, p)
		}
	}
	close(done)
	<-ended
	p.answered()
	for _, r := range readers {
		r.has(t, p.last)
	}
}

// A namespace that a newer program has written is refused by this one, at every tier and with its
// reason; others are served.
func TestANamespaceOfANewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	m := harness.Start(t, harness.Options{DB: db})
	putNamespace(t, m, "orders", &pushmeshv1.Policy{Durable: true, ClientPublish: true, Claims: &pushmeshv1.ClaimPolicy{Clients: true}})
	putNamespace(t, m, "bills", &pushmeshv1.Policy{Durable: true, ClientPublish: true})
	old, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	old.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "orders/1"})

	conn, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `UPDATE pushmesh.namespace SET policy = policy || '{"tomorrow": {"keepTwice": true}}' WHERE prefix = 'orders';
		UPDATE pushmesh.namespace_version SET version = version + 1`); err != nil {
		t.Fatal(err)
	}
	api := pushmeshv1.NewPublishServiceClient(plainly(t, m.RouterAddr()))
	foreign := func(who string, err error) {
		t.Helper()
		if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || !strings.Contains(err.Error(), `does not understand namespace "orders"`) {
			t.Errorf("%s: %v", who, err)
		}
	}
	procmesh.Await(t, "the router refuses", func() bool {
		_, err = api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "orders/meanwhile"})
		return err != nil
	})
	foreign("publish", err)
	res, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topics: []string{"orders/1", "bills/1"}})
	if err != nil || res.GetResults()[0].GetCode() != wirev1.Code_CODE_UNAVAILABLE || res.GetResults()[1].GetSeq() == 0 {
		t.Errorf("publish to several topics: %v, %v", res, err)
	}

	c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	id := uint32(0)
	ask := func(what string, ft wirev1.FrameType, send func(id uint32)) {
		t.Helper()
		procmesh.Await(t, what+" is refused", func() bool {
			id++
			send(id)
			got, body, err := c.Next(wireclient.Patience)
			if err != nil {
				t.Fatal(err)
			}
			if got == ft {
				return false // the edge has not heard of the change
			}
			f, err := wireclient.Frame(got, body)
			e, is := f.(*wirev1.Error)
			if err != nil || !is || e.GetCode() != wirev1.Code_CODE_UNAVAILABLE || e.GetRetryAfterMs() == 0 || !strings.Contains(e.GetMessage(), `"orders"`) {
				t.Fatalf("%s: %v, %v", what, f, err)
			}
			return true
		})
	}
	for _, filter := range []string{"orders/2", "orders/#", "+/2"} {
		ask("Subscribe to "+filter, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, func(id uint32) {
			c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: id, Filter: filter})
		})
	}
	ask("Publish", wirev1.FrameType_FRAME_TYPE_PUBLISHED, func(id uint32) {
		c.Send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: "orders/1"})
	})
	ask("Claim", wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, func(id uint32) {
		c.Send(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: id, Resource: "orders/seat"})
	})
	if c.Subscribe(&wirev1.Subscribe{Id: 1000, Filter: "bills/1"}).GetEpoch() == 0 {
		t.Error("another namespace is not durable any more")
	}
	procmesh.Await(t, "the router says what it does not understand, and is ready", func() bool {
		// what was refused so far may be the store's word
		status, body := readyz(t, m.RouterHTTP)
		return status == 200 && strings.Contains(body, "namespaces understood: degraded") && strings.Contains(body, "orders")
	})

	// Who could write it can take it back.
	if _, err := conn.Exec(t.Context(), `UPDATE pushmesh.namespace SET policy = policy - 'tomorrow' WHERE prefix = 'orders';
		UPDATE pushmesh.namespace_version SET version = version + 1`); err != nil {
		t.Fatal(err)
	}
	procmesh.Await(t, "the namespace is taken again", func() bool {
		res, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "orders/1", Payload: []byte("again")})
		return err == nil && res.GetSeq() > 0
	})
	if got := old.Message(); string(got.GetPayload()) != "again" || got.GetSeq() == 0 {
		t.Errorf("who was subscribed before got %v", got)
	}
}

// awaitReady waits until a process is ready, whatever it misses.
func awaitReady(t *testing.T, p *procmesh.Process) {
	t.Helper()
	procmesh.Await(t, p.Name+" is ready", func() bool {
		status, _ := p.Status()
		return status == http.StatusOK
	})
}
