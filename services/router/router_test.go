package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// mesh is a router with everything around it that it needs.
type mesh struct {
	nats   *natsserver.Server
	log    *fakeLog
	store  *fakeStore
	router *Router
	conn   *grpc.ClientConn
	creds  credentials.TransportCredentials // of connections that tests make
	pub    pushmeshv1.PublishServiceClient
}

func startMesh(tb testing.TB, change func(*Settings)) *mesh {
	tb.Helper()
	port, err := ports.Port()
	if err != nil {
		tb.Fatal(err)
	}
	m := &mesh{nats: startNATS(tb, port), log: newFakeLog(), creds: insecure.NewCredentials()}
	m.store = startStore(tb, m.log)
	s := Settings{
		Open: true, Flags: tierauth.Flags{PlainTiers: true}, ID: "r1", Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", NATS: m.nats.ClientURL(), Stores: []string{m.store.addr},
		ProducerRate: 1_000_000, ProducerInFlight: 100_000, AppendWait: 10 * time.Second, LogLevel: "error",
	}
	if change != nil {
		change(&s)
	}
	if m.router, err = New(tb.Context(), s); err != nil {
		tb.Fatal(err)
	}
	if err := m.router.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := m.router.Stop(ctx); err != nil {
			tb.Errorf("stop: %v", err)
		}
	})
	m.conn, err = grpc.NewClient(m.router.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	conn := m.conn // a test may take another one
	tb.Cleanup(func() { _ = conn.Close() })
	m.pub = pushmeshv1.NewPublishServiceClient(m.conn)
	m.ready(tb)
	return m
}

func (m *mesh) readyz(tb testing.TB) (bool, string) {
	tb.Helper()
	resp, err := http.Get("http://" + m.router.HTTPAddr() + "/readyz?verbose")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode == http.StatusOK, b.String()
}

// ready waits until everything is ok, the store included.
func (m *mesh) ready(tb testing.TB) {
	tb.Helper()
	eventually(tb, "ready", func() error {
		if ok, text := m.readyz(tb); !ok || strings.Contains(text, "store: degraded") {
			return errors.New(text)
		}
		return nil
	})
}

func (m *mesh) publish(tb testing.TB, req *pushmeshv1.PublishRequest) *pushmeshv1.PublishResponse {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for {
		resp, err := m.pub.Publish(ctx, req)
		if err == nil {
			return resp
		}
		if !refusedForNow(err) || ctx.Err() != nil {
			tb.Fatalf("publish: %v", err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// refusedForNow reports whether nothing was done and trying again helps: a machine that stood still
// for seconds makes others seem to be gone.
func refusedForNow(err error) bool {
	e := code.From(err)
	return e != nil && e.Code == wirev1.Code_CODE_UNAVAILABLE && e.RetryAfter > 0 && !strings.Contains(e.Error(), "may have been stored")
}

func TestPublishReachesTheEdgesThatWantIt(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	a := startEdge(t, m.nats.ClientURL(), "a", "r1")
	b := startEdge(t, m.nats.ClientURL(), "b", "r1")
	a.want("room/1/chat", "room/#")
	b.want("room/2/chat")

	durable := m.publish(t, &pushmeshv1.PublishRequest{
		Topic: "room/1/chat", Payload: []byte("hi"), Headers: map[string]string{"k": "v"}, Priority: 3, Ttl: durationpb.New(time.Minute),
	})
	if durable.GetSeq() != 1 || durable.GetEpoch() != fakeEpoch || len(durable.GetMessageId()) != 16 {
		t.Errorf("durable: %v", durable)
	}
	d := a.got("room/1/chat", 1)[0]
	msg := decode(t, d)
	if d.GetSeq() != 1 || d.GetEpoch() != fakeEpoch || d.GetExpiresAt() == 0 || string(msg.GetPayload()) != "hi" || msg.GetHeaders()["k"] != "v" ||
		msg.GetPriority() != 3 || !bytes.Equal(msg.GetId(), durable.GetMessageId()) || msg.GetPublishedAt() == 0 {
		t.Errorf("delivery %v, message %v", d, msg)
	}

	a.want("live/x")
	ephemeral := m.publish(t, &pushmeshv1.PublishRequest{Topic: "live/x", Payload: []byte("now")})
	if ephemeral.GetSeq() != 0 || ephemeral.GetEpoch() != 0 {
		t.Errorf("ephemeral: %v", ephemeral)
	}
	if d := a.got("live/x", 1)[0]; d.GetSeq() != 0 || string(decode(t, d).GetPayload()) != "now" {
		t.Errorf("delivery %v", d)
	}
	m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/2/chat"})
	b.got("room/2/chat", 1)
	a.got("room/2/chat", 1)
	b.read(func(e *fakeEdge) {
		if len(e.deliveries) != 1 || e.holes != 0 {
			t.Errorf("b got %v, %d holes", e.deliveries, e.holes)
		}
	})
	a.read(func(e *fakeEdge) {
		if len(e.deliveries) != 3 || e.holes != 0 {
			t.Errorf("a got %v, %d holes", e.deliveries, e.holes)
		}
	})
}

func TestNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	long := strings.Repeat("x", 300)
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprint(i)] = ""
	}
	for name, c := range map[string]struct {
		req  *pushmeshv1.PublishRequest
		want wirev1.Code
	}{
		"no topic":      {&pushmeshv1.PublishRequest{}, wirev1.Code_CODE_BAD_TOPIC},
		"wildcard":      {&pushmeshv1.PublishRequest{Topic: "a/+"}, wirev1.Code_CODE_BAD_TOPIC},
		"long topic":    {&pushmeshv1.PublishRequest{Topic: long}, wirev1.Code_CODE_BAD_TOPIC},
		"own topic":     {&pushmeshv1.PublishRequest{Topic: "$dead/room"}, wirev1.Code_CODE_FORBIDDEN},
		"payload":       {&pushmeshv1.PublishRequest{Topic: "a", Payload: make([]byte, 256<<10+1)}, wirev1.Code_CODE_PAYLOAD_TOO_LARGE},
		"priority":      {&pushmeshv1.PublishRequest{Topic: "a", Priority: 10}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"headers":       {&pushmeshv1.PublishRequest{Topic: "a", Headers: many}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"header size":   {&pushmeshv1.PublishRequest{Topic: "a", Headers: map[string]string{"k": strings.Repeat("v", 8<<10)}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"ttl":           {&pushmeshv1.PublishRequest{Topic: "a", Ttl: durationpb.New(0)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"dedupe key":    {&pushmeshv1.PublishRequest{Topic: "a", DedupeKey: long}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"key, no log":   {&pushmeshv1.PublishRequest{Topic: "a", DedupeKey: "k"}, wirev1.Code_CODE_UNSUPPORTED},
		"scheduled":     {&pushmeshv1.PublishRequest{Topic: "a", DeliverAt: timestamppb.Now()}, wirev1.Code_CODE_UNSUPPORTED},
		"far ahead":     {&pushmeshv1.PublishRequest{Topic: "room/a", DeliverAt: timestamppb.New(time.Now().Add(367 * 24 * time.Hour))}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"no time":       {&pushmeshv1.PublishRequest{Topic: "room/a", DeliverAt: &timestamppb.Timestamp{Nanos: -1}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"later, topics": {&pushmeshv1.PublishRequest{Topics: []string{"room/a"}, DeliverAt: timestamppb.Now()}, wirev1.Code_CODE_UNSUPPORTED},
		"feature":       {&pushmeshv1.PublishRequest{Topic: "a", Features: map[string]float64{"f": math.NaN()}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"no name":       {&pushmeshv1.PublishRequest{Topic: "a", Features: map[string]float64{"": 1}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"features":      {&pushmeshv1.PublishRequest{Topic: "a", Features: features(65)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"vector":        {&pushmeshv1.PublishRequest{Topic: "a", Vector: []float32{float32(math.Inf(1))}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"long vector":   {&pushmeshv1.PublishRequest{Topic: "a", Vector: make([]float32, 4097)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"topic, topics": {&pushmeshv1.PublishRequest{Topic: "a", Topics: []string{"b"}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"many topics":   {&pushmeshv1.PublishRequest{Topics: make([]string, 10_001)}, wirev1.Code_CODE_INVALID_ARGUMENT},
	} {
		if _, err := m.pub.Publish(t.Context(), c.req); code.Of(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := m.pub.CancelScheduled(t.Context(), &pushmeshv1.CancelScheduledRequest{}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("cancel: %v", err)
	}
}

func TestManyTopicsHaveAResultEach(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "a", "r1")
	e.want("user/+/inbox")
	topics := []string{"$x"}
	for i := range 300 {
		topics = append(topics, fmt.Sprintf("user/%d/inbox", i))
	}
	resp := m.publish(t, &pushmeshv1.PublishRequest{Topics: topics, Payload: []byte("all")})
	if n := len(resp.GetResults()); n != len(topics) {
		t.Fatalf("%d results", n)
	}
	for i, res := range resp.GetResults() {
		want := &pushmeshv1.TopicResult{Seq: 1, Code: wirev1.Code_CODE_OK}
		if i == 0 {
			want = &pushmeshv1.TopicResult{Code: wirev1.Code_CODE_FORBIDDEN}
		}
		if res.GetSeq() != want.GetSeq() || res.GetCode() != want.GetCode() {
			t.Fatalf("result %d: %v", i, res)
		}
	}
	for _, topic := range topics[1:] {
		if d := e.got(topic, 1)[0]; !bytes.Equal(decode(t, d).GetId(), resp.GetMessageId()) {
			t.Fatalf("%s has another id", topic)
		}
	}
}

func TestClientsOfEdgesPublish(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	ns := pushmeshv1.NewNamespaceServiceClient(m.conn)
	if _, err := ns.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
		Namespace: &pushmeshv1.Namespace{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true}},
	}); err != nil {
		t.Fatal(err)
	}
	e := startEdge(t, m.nats.ClientURL(), "a", "r1")
	e.want("open/1")
	req := &meshv1.ClientPublish{EdgeId: "a", Items: []*meshv1.ClientPublish_Item{
		{Topic: "open/1", Payload: []byte("from a client"), User: "ann", ClientId: "c1"},
		{Topic: "room/1", User: "ann", ClientId: "c1"},
		{Topic: "open/+", User: "ann", ClientId: "c1"},
	}}
	var reply meshv1.ClientPublishReply
	eventually(t, "the policy arrives", func() error {
		e.ask(t, "r1", req, &reply)
		if c := reply.GetResults()[0].GetCode(); c != wirev1.Code_CODE_OK {
			return errors.New(c.String())
		}
		return nil
	})
	for i, want := range []wirev1.Code{wirev1.Code_CODE_OK, wirev1.Code_CODE_FORBIDDEN, wirev1.Code_CODE_BAD_TOPIC} {
		if got := reply.GetResults()[i].GetCode(); got != want {
			t.Errorf("item %d: %v, want %v", i, got, want)
		}
	}
	if msg := decode(t, e.got("open/1", 1)[0]); msg.GetFrom() != "ann" || string(msg.GetPayload()) != "from a client" {
		t.Errorf("got %v", msg)
	}
}

func features(n int) map[string]float64 {
	all := make(map[string]float64, n)
	for i := range n {
		all[fmt.Sprintf("f%d", i)] = float64(i)
	}
	return all
}
