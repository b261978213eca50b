package publish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
	"github.com/pushmesh/pushmesh/services/router/internal/edgequeue"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// routes records what is routed; nobody subscribes to topics under "void".
type routes struct {
	mu     sync.Mutex
	bodies [][]byte
}

func (r *routes) Reachable() error { return nil }

func (r *routes) Route(d *edgequeue.Delivery) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, d.Body)
	if strings.HasPrefix(d.Topic, "void") {
		return 0
	}
	return 1
}

func (r *routes) CheckTopic(string) {}
func (r *routes) Cork()             {}
func (r *routes) Uncork()           {}

func (r *routes) last(t *testing.T) *wirev1.Message {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &wirev1.Message{}
	if err := proto.Unmarshal(r.bodies[len(r.bodies)-1], m); err != nil {
		t.Fatal(err)
	}
	return m
}

type fixed struct{ table *policy.Table }

func (f fixed) Table() *policy.Table { return f.table }

func newPublisher(tracers trace.TracerProvider) (*Publisher, *routes) {
	r := &routes{}
	return New(Config{
		Policies: fixed{policy.NewTable(nil)}, Admission: admission.New(admission.Config{}), Routes: r,
		Telemetry: &telemetry.Telemetry{
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Registry: prometheus.NewRegistry(), Tracers: tracers,
		},
	}), r
}

func publishOne(t *testing.T, p *Publisher, m *Message) *Result {
	t.Helper()
	w := make(waiter, 1)
	m.To = w
	if m.Context == nil {
		m.Context = t.Context()
	}
	p.Publish(m)
	return <-w
}

func TestTheBodyCarriesTheTraceWhenSampled(t *testing.T) {
	p, r := newPublisher(noop.NewTracerProvider())
	publishOne(t, p, &Message{Request: &pushmeshv1.PublishRequest{Topic: "live", Traceparent: parent}})
	if got := r.last(t).GetTraceparent(); got != parent {
		t.Errorf("without a collector: %q, want the producer's", got)
	}
	publishOne(t, p, &Message{Request: &pushmeshv1.PublishRequest{Topic: "live", Traceparent: strings.TrimSuffix(parent, "1") + "0"}})
	if got := r.last(t).GetTraceparent(); got != "" {
		t.Errorf("not sampled: %q", got)
	}

	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	p, r = newPublisher(provider)
	publishOne(t, p, &Message{Request: &pushmeshv1.PublishRequest{Topic: "live", Traceparent: parent}})
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans ended", len(ended))
	}
	sc := ended[0].SpanContext()
	if want := "00-0af7651916cd43dd8448eb211c80319c-" + sc.SpanID().String() + "-01"; r.last(t).GetTraceparent() != want {
		t.Errorf("body has %q, want the router's span %q", r.last(t).GetTraceparent(), want)
	}
	publishOne(t, p, &Message{Request: &pushmeshv1.PublishRequest{Topic: "live"}})
	if got := r.last(t).GetTraceparent(); got != "" {
		t.Errorf("a trace nobody began: %q", got)
	}
}

func TestEphemeralWithoutSubscriberIsCountedAndOK(t *testing.T) {
	p, r := newPublisher(noop.NewTracerProvider())
	res := publishOne(t, p, &Message{From: "ann", Request: &pushmeshv1.PublishRequest{Topic: "void", Payload: []byte("x")}})
	if res.Err() != nil || res.Seq != 0 || len(res.MessageID) != 16 {
		t.Errorf("got %+v", res)
	}
	if n := testutil.ToFloat64(p.metrics.noSubscriber); n != 1 {
		t.Errorf("%v counted", n)
	}
	if m := r.last(t); m.GetFrom() != "ann" || time.Since(time.UnixMicro(int64(m.GetPublishedAt()))) > time.Minute {
		t.Errorf("message %v", m)
	}
}

func TestProducerIDs(t *testing.T) {
	p, _ := newPublisher(noop.NewTracerProvider())
	for name, m := range map[string]*Message{
		"short id":       {ProducerID: []byte("short"), ProducerSeq: 1},
		"seq without id": {ProducerSeq: 1},
	} {
		m.Request = &pushmeshv1.PublishRequest{Topic: "live"}
		if res := publishOne(t, p, m); res.Code != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

func TestWhoTheProducerIs(t *testing.T) {
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 4711}
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "billing"}}
	from := func(p *peer.Peer, md ...string) context.Context {
		return metadata.NewIncomingContext(peer.NewContext(t.Context(), p), metadata.Pairs(md...))
	}
	tlsPeer := &peer.Peer{Addr: addr, AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}}
	if got := producer(from(tlsPeer, "authorization", "Bearer t")); got != "cert:billing" {
		t.Errorf("certificate: %q", got)
	}
	cert.Subject.CommonName, cert.DNSNames = "", []string{"billing.example"}
	if got := producer(from(tlsPeer)); got != "cert:billing.example" {
		t.Errorf("certificate without a common name: %q", got)
	}
	token := producer(from(&peer.Peer{Addr: addr}, "authorization", "Bearer secret"))
	if !strings.HasPrefix(token, "token:") || strings.Contains(token, "secret") {
		t.Errorf("token: %q", token)
	}
	if got := producer(from(&peer.Peer{Addr: addr})); got != "host:10.0.0.7" {
		t.Errorf("host: %q", got)
	}
}

// No input of a client makes the router panic, or an answer be missing.
func FuzzClientPublish(f *testing.F) {
	f.Add([]byte("\x12\x05\x0a\x03a/b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, _ := newPublisher(noop.NewTracerProvider())
		c := NewClients(p, nil, "r")
		c.handle(data, nil)
		var in meshv1.ClientPublish
		want := 1
		if proto.Unmarshal(data, &in) != nil || len(in.GetItems()) == 0 {
			want = 0 // nobody can tell which client to answer
		}
		if got := len(c.replies); got != want {
			// the built-in namespaces take nothing from clients: all is answered at once
			t.Errorf("%d replies, want %d", got, want)
		}
	})
}

func BenchmarkPublishEphemeral(b *testing.B) {
	p, r := newPublisher(noop.NewTracerProvider())
	w := make(waiter, 1)
	m := &Message{Context: b.Context(), Producer: "p", To: w, Request: &pushmeshv1.PublishRequest{Topic: "live/1", Payload: make([]byte, 256)}}
	b.ReportAllocs()
	for b.Loop() {
		p.Publish(m)
		<-w
		r.bodies = r.bodies[:0]
	}
}

// Before the router knows which topics are durable no message is answered OK: neither one that it
// would route without storing it, nor any other.
func TestNothingIsPublishedBeforeTheNamespacesAreKnown(t *testing.T) {
	p, r := newPublisher(noop.NewTracerProvider())
	p.cfg.Policies = fixed{policy.Unknown("not yet")}
	refused := func(what string, code wirev1.Code, retry time.Duration) {
		t.Helper()
		if code != wirev1.Code_CODE_UNAVAILABLE || retry <= 0 {
			t.Errorf("%s: %v, again after %v", what, code, retry)
		}
	}
	for what, m := range map[string]*Message{
		"a backend's":      {Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}},
		"a client's":       {Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}, FromClient: true},
		"a scheduled one":  {Request: &pushmeshv1.PublishRequest{Topic: "orders/1", DeliverAt: timestamppb.New(time.Now().Add(time.Hour))}},
		"a transaction's":  {Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}, Written: &Written{MessageID: make([]byte, 16)}},
		"of any namespace": {Request: &pushmeshv1.PublishRequest{Topic: "room/1"}},
	} {
		res := publishOne(t, p, m)
		refused(what, res.Code, res.RetryAfter)
	}
	w := make(waiter, 1)
	p.Replay(&meshv1.DeadLetter{Topic: "orders/1"}, &wirev1.Message{}, 0, w)
	res := <-w
	refused("a dead letter", res.Code, res.RetryAfter)
	p.publishEvent("$events/connect", nil, "", 0, w)
	res = <-w
	refused("an event", res.Code, res.RetryAfter)
	res = publishOne(t, p, &Message{Request: &pushmeshv1.PublishRequest{Topics: []string{"orders/1", "room/1"}}})
	for _, r := range res.Topics {
		refused("to many topics", r.GetCode(), 1)
	}
	if len(r.bodies) != 0 {
		t.Errorf("%d messages were routed", len(r.bodies))
	}
}
