package e2e

import (
	"context"
	"encoding/binary"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// What backends consume crosses from routers to edges with TLS, also where clients have none; a
// router that has no certificate brings nobody in.
func TestBackendsStreamsCrossWithTLS(t *testing.T) {
	t.Parallel()
	m := procmesh.Start(t, procmesh.Options{Edges: 2, TLS: true})
	consume := func() (*pushmesh.Subscriber, chan string, error) {
		t.Helper()
		sub, err := pushmesh.NewBackend(pushmesh.SubscriberConfig{Addrs: m.RouterAddrs})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = closing.Close(sub) })
		got := make(chan string, 10)
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		_, err = sub.Subscribe(ctx, "orders/#", func(_ context.Context, d *pushmesh.Delivery) error {
			got <- string(d.Payload)
			return nil
		})
		return sub, got, err
	}
	_, got, err := consume()
	if err != nil {
		t.Fatal(err)
	}
	shaken := func() (n float64) {
		for _, e := range m.Edges {
			metrics, err := e.Metrics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			n += metrics[`pushmesh_edge_tls_handshakes_total{result="full"}`]
		}
		return n
	}
	if n := shaken(); n != 1 {
		t.Errorf("%v handshakes", n)
	}
	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(producer) })
	if _, err := producer.Publish(t.Context(), pushmesh.Message{Topic: "orders/1", Payload: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "hello" {
		t.Errorf("it is %q", text)
	}
	// clients without TLS are let in still: tiers' TLS is not theirs
	c, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{Version: 1})
	c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "orders/1"})
}

// A mesh whose tiers and NATS know each other by certificates does what any mesh does, and loses
// nothing while all certificates and the CA itself are replaced under it.
func TestAMeshOfCertificatesLosesNothingWhileTheyChange(t *testing.T) {
	t.Parallel()
	const (
		topic = "stop/1"
		rate  = 1000
	)
	m := procmesh.Start(t, procmesh.Options{Edges: 2, Routers: 2, Stores: 2, DB: pgtest.URL(t), TLS: true})
	m.Namespace(t, "stop", &pushmeshv1.Policy{Durable: true})
	conn, err := grpc.NewClient(m.RouterAddrs[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })

	// claims, over edges
	seats(t, conn, m.EdgeAddrs, &pushmeshv1.ClaimPolicy{Grace: durationpb.New(patient), Ttl: durationpb.New(patient), MaxTtl: durationpb.New(patient)})
	newClaimant(t, m.EdgeAddrs[0], "a").ask(&wirev1.Claim{}, granted)
	newClaimant(t, m.EdgeAddrs[1], "b").ask(&wirev1.Claim{}, queued)

	watchers := []*watcher{watch(t, m.EdgeAddrs[:1], topic), watch(t, m.EdgeAddrs[1:], topic)}
	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing.Close(producer) })
	var published, failed atomic.Uint64
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for range rate / 100 {
				payload := binary.BigEndian.AppendUint64(nil, published.Add(1))
				if producer.PublishAsync(context.Background(), pushmesh.Message{Topic: topic, Payload: payload}, func(_ pushmesh.Result, err error) {
					if err != nil {
						failed.Add(1)
					}
				}) != nil {
					failed.Add(1)
				}
			}
		}
	}()
	flows := func(step string) {
		t.Helper()
		before := watchers[0].next.Load()
		procmesh.Await(t, "traffic flows: "+step, func() bool { return watchers[0].next.Load() > before+rate/4 })
	}
	flows("at first")

	nodes := slices.Concat(m.Stores, m.Routers, m.Edges, []*procmesh.Process{m.Compute})
	reloads := func() (all float64) {
		for _, p := range nodes {
			metrics, err := p.Metrics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tier, _, _ := strings.Cut(p.Name, "-")
			all += metrics["pushmesh_"+tier+`_mesh_certificate_reloads_total{result="taken"}`]
		}
		return all
	}
	// again has a store and an edge dial and be dialled with what there is now.
	again := func(step string) {
		t.Helper()
		for _, p := range []*procmesh.Process{m.Stores[1], m.Routers[1]} {
			if err := p.Stop(time.Minute); err != nil {
				t.Fatal(err)
			}
			restart(t, p)
		}
		m.WaitReady(t)
		flows(step)
	}
	leaves := func(step string) {
		t.Helper()
		before := reloads()
		for _, p := range slices.Concat(m.NATSs, nodes) {
			tier, _, _ := strings.Cut(p.Name, "-")
			if _, _, _, err := m.Certificate(tier, p.Name); err != nil {
				t.Fatal(err)
			}
		}
		m.ReloadNATS()
		procmesh.Await(t, "all have read their certificates: "+step, func() bool { return reloads() >= before+float64(len(nodes)) })
		again(step)
	}
	authorities := func(step string, others []byte) {
		t.Helper()
		before := reloads()
		m.TrustCAs(t, others...)
		procmesh.Await(t, "all have read the CAs: "+step, func() bool { return reloads() >= before+float64(len(nodes)) })
		again(step)
	}
	leaves("other certificates")
	old, _ := m.CAs(t)
	m.NewCA(t)
	authorities("both CAs", old)
	leaves("certificates of the new CA")
	authorities("the new CA alone", nil)

	rank, err := rankBy(t, conn, []*pushmeshv1.Candidate{{Id: "a"}}, &pushmeshv1.ModelScorer{Name: "none"})
	if err == nil {
		t.Errorf("a model that is not there ranks: %v", rank)
	} else if !strings.Contains(err.Error(), "none") {
		t.Error(err)
	}
	// An operator's certificate is taken by stores and compute nodes; without one they can't be
	// asked.
	cert, key, ca, err := m.Certificate("operator", "ann")
	if err != nil {
		t.Fatal(err)
	}
	examine := func(more ...string) (string, error) {
		args := append([]string{"doctor", "--no-probe", "--skew", "1h", "--router", m.RouterAddrs[0]}, more...)
		out, err := exec.CommandContext(t.Context(), m.Pushmesh, args...).CombinedOutput()
		return string(out), err
	}
	if out, err := examine("--mesh-cert", cert, "--mesh-key", key, "--mesh-ca", ca); err != nil || !strings.Contains(out, "postgres") {
		t.Errorf("doctor with a certificate: %v: %s", err, out)
	}
	if out, err := examine(); err == nil || !strings.Contains(out, "pushmesh ca issue --tier operator") {
		t.Errorf("doctor without a certificate: %v: %s", err, out)
	}
	close(stop)
	<-ended
	ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
	defer cancel()
	if err := producer.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for i, w := range watchers {
		procmesh.Await(t, "everything published is delivered", func() bool { return w.next.Load() >= published.Load() })
		if w.next.Load() != published.Load() || w.bad.Load() != 0 || failed.Load() != 0 {
			t.Errorf("subscriber %d: %d delivered of %d, a message out of order: %d, %d publishes failed", i, w.next.Load(), published.Load(), w.bad.Load(), failed.Load())
		}
	}
	t.Logf("%d messages", published.Load())
}

// On NATS, too, a tier may do what it does and nothing else, and who has no certificate hears
// nothing.
func TestNATSGivesTiersTheirSubjectsAlone(t *testing.T) {
	t.Parallel()
	m := procmesh.Start(t, procmesh.Options{TLS: true, Violations: true})
	connect := func(tier tierauth.Tier) (*nats.Conn, chan error) {
		cert, key, ca, err := m.Certificate(string(tier), "x-"+string(tier))
		if err != nil {
			t.Fatal(err)
		}
		i, err := tierauth.Open(tierauth.Config{Flags: tierauth.Flags{MeshCert: cert, MeshKey: key, MeshCA: ca}, Tier: tier})
		if err != nil {
			t.Fatal(err)
		}
		refused := make(chan error, 100)
		conn, err := nats.Connect(m.NATSURL(), append(i.NATS("", tierauth.NATSFlags{}), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))...)
		if err != nil {
			t.Fatalf("%s: %v", tier, err)
		}
		t.Cleanup(conn.Close)
		return conn, refused
	}
	const at = "pushmesh.main.ID."
	for _, c := range []struct {
		tier      tierauth.Tier
		publish   string
		subscribe string
		refused   bool
	}{
		{tierauth.Router, at + "edges.frames", "", false},
		{tierauth.Router, at + "edge.e1.frames", "", false},
		// who forges them delays the messages of others
		{tierauth.Edge, at + "edges.frames", "", true},
		{tierauth.Edge, at + "edge.e1.frames", "", true},
		{tierauth.Edge, at + "stored", "", true},
		{tierauth.Edge, at + "store.beat", "", true},
		{tierauth.Edge, at + "namespaces.changed", "", true},
		{tierauth.Edge, at + "router.outbox", "", true},
		{tierauth.Edge, "_INBOX.router.x", "", true},
		{tierauth.Store, at + "edges.frames", "", true},
		{tierauth.Router, at + "store.beat", "", true},
		{tierauth.Edge, "", at + ">", true},
		{tierauth.Edge, "", at + "router.r1.publish", true},
		{tierauth.Edge, "", "_INBOX.router.>", true},
		{tierauth.Edge, "", at + "edge.e1.frames", false},
		{tierauth.Store, "", at + "edges.frames", true},
	} {
		conn, refused := connect(c.tier)
		if c.publish != "" {
			if err := conn.Publish(c.publish, []byte("x")); err != nil {
				t.Fatal(err)
			}
		} else if _, err := conn.SubscribeSync(c.subscribe); err != nil {
			t.Fatal(err)
		}
		if err := conn.Flush(); err != nil { // what the server says of it comes before
			t.Fatal(err)
		}
		var err error
		if c.refused {
			select {
			case err = <-refused:
			case <-time.After(wireclient.Patience):
			}
		} else {
			select {
			case err = <-refused:
			default:
			}
		}
		if c.refused != (err != nil) {
			t.Errorf("%s, %s%s: %v", c.tier, c.publish, c.subscribe, err)
		}
	}
	if _, err := nats.Connect(m.NATSURL()); err == nil {
		t.Error("NATS lets in who has no certificate")
	}
	for _, tier := range []tierauth.Tier{tierauth.Compute, tierauth.Operator, tierauth.NATS} {
		cert, key, ca, err := m.Certificate(string(tier), "x")
		if err != nil {
			t.Fatal(err)
		}
		i, err := tierauth.Open(tierauth.Config{Flags: tierauth.Flags{MeshCert: cert, MeshKey: key, MeshCA: ca}, Tier: tier})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nats.Connect(m.NATSURL(), i.NATS("", tierauth.NATSFlags{})...); err == nil {
			t.Errorf("NATS lets %s in", tier)
		}
	}
}

// A request names where its answer goes. A tier that answered anywhere would send, in its own name,
// what the one that asks may not.
func TestAnswersGoToInboxesAlone(t *testing.T) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server is not ready")
	}
	b := bus.New(bus.Config{URL: srv.ClientURL(), Name: "test", Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler)})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(context.Background()) })
	tried := make(chan error, 4)
	answer := func(_ []byte, respond func([]byte) error) { tried <- respond([]byte("answer")) }
	if _, err := b.Subscribe("one", 8, answer); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Serve("shared", "group", 8, answer); err != nil {
		t.Fatal(err)
	}
	flushing, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
	defer cancel()
	if err := b.Flush(flushing); err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	prefix := "pushmesh." + meshidtest.Mesh.Name + "." + meshidtest.Mesh.ID + "."
	forged, err := conn.SubscribeSync(prefix + "edges.frames")
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"one", "shared"} {
		if err := conn.PublishRequest(prefix+subject, prefix+"edges.frames", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := <-tried; err == nil {
			t.Errorf("%s: it is answered on a subject of frames", subject)
		}
		if m, err := conn.Request(prefix+subject, []byte("x"), wireclient.Patience); err != nil || string(m.Data) != "answer" {
			t.Errorf("%s: %v", subject, err)
		}
		if err := <-tried; err != nil {
			t.Error(err)
		}
	}
	if n, _, err := forged.Pending(); err != nil || n != 0 {
		t.Errorf("%d forged frames, %v", n, err)
	}
}
