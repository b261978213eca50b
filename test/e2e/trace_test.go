package e2e

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// traceCollector is an OTLP collector that keeps the names of spans by service, for one trace.
type traceCollector struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	trace string
	spans map[string][]string // service → names
	heard chan struct{}
}

func (c *traceCollector) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.GetResourceSpans() {
		service := ""
		for _, a := range r.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				if hex.EncodeToString(span.GetTraceId()) == c.trace {
					c.spans[service] = append(c.spans[service], span.GetName())
				}
			}
		}
	}
	select {
	case c.heard <- struct{}{}:
	default:
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (c *traceCollector) services() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for s := range c.spans {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// One trace leads from the producer through router, store and edge to the subscriber's frame.
func TestOneTraceFromProducerToSubscriber(t *testing.T) {
	const (
		traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
		parent  = "00-" + traceID + "-00f067aa0ba902b7-01"
	)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &traceCollector{trace: traceID, spans: map[string][]string{}, heard: make(chan struct{}, 1)}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, c)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")

	m := harness.Start(t, harness.Options{})
	sub, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	sub.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/traced", Ack: true})
	ctx := metadata.AppendToOutgoingContext(context.Background(), "traceparent", parent)
	if _, err := pushmeshv1.NewPublishServiceClient(m.Router(t)).Publish(ctx, &pushmeshv1.PublishRequest{Topic: "room/traced", Payload: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if msg := sub.Message(); !strings.Contains(msg.GetTraceparent(), traceID) {
		t.Fatalf("the subscriber's frame has traceparent %q", msg.GetTraceparent())
	}
	want := []string{"pushmesh-edge", "pushmesh-router", "pushmesh-store"}
	deadline := time.After(wireclient.Patience)
	for !slices.Equal(c.services(), want) {
		select {
		case <-c.heard:
		case <-deadline:
			t.Fatalf("the trace has spans of %v, want %v", c.services(), want)
		}
	}
}
