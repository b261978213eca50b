// Package telemetry sets up a process's traces (OpenTelemetry, OTLP over gRPC), metrics
// (Prometheus) and log (slog).
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
)

// Config of one process, or of one tier of `pushmesh dev`.
type Config struct {
	// Service is the tier: "edge", "router", "compute", "store".
	Service string
	// Instance is the id of the node.
	Instance string
	Version  string
	// SampleRatio of traces that begin here, 0 to 1; a parent's decision always stands.
	SampleRatio float64
	// LogLevel is "debug", "info", "warn" or "error".
	LogLevel string
}

// Telemetry of a process. Nothing of it is global, so that one process can hold several tiers.
type Telemetry struct {
	Log *slog.Logger
	// Audit is the same log, for lines that must not be dropped where others are.
	Audit    *slog.Logger
	Registry *prometheus.Registry
	Tracers  trace.TracerProvider
	log      *logWriter
	level    *slog.LevelVar
	ratio    *ratio
	stop     func(context.Context) error
}

// Written waits until what was logged so far is written: nobody who logs waits for that otherwise,
// and a process that is killed loses it. It reports false where ctx ended first.
func (t *Telemetry) Written(ctx context.Context) bool { return t.log.await(ctx) }

// New sets everything up. Traces go where OTEL_EXPORTER_OTLP_ENDPOINT says; unset, none are made.
func New(ctx context.Context, cfg Config) (*Telemetry, error) {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); cfg.LogLevel != "" && err != nil {
		return nil, fmt.Errorf("log level %q must be debug, info, warn or error", cfg.LogLevel)
	}
	out := &logWriter{out: os.Stderr}
	logger := func(to io.Writer) *slog.Logger {
		return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level})).With("tier", cfg.Service, "id", cfg.Instance)
	}
	t := &Telemetry{
		log: out, level: level, ratio: newRatio(cfg.SampleRatio), Log: logger(out), Audit: logger(reserve{out}),
		Registry: prometheus.NewRegistry(),
		Tracers:  noop.NewTracerProvider(),
		stop:     func(context.Context) error { return nil },
	}
	t.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "pushmesh_log_dropped_total", Help: "Log lines that were dropped because stderr was not read fast enough.",
	}, func() float64 { return float64(out.Dropped()) }))
	t.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return t, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("otlp exporter: %w", err)
	}
	res, err := resource.Merge(resource.Default(), resource.NewSchemaless(
		semconv.ServiceName("pushmesh-"+cfg.Service), semconv.ServiceInstanceID(cfg.Instance), semconv.ServiceVersion(cfg.Version)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("otel resource: %w", err), exporter.Shutdown(ctx))
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(res),
		sdktrace.WithSampler(sdktrace.ParentBased(t.ratio)),
	)
	t.Tracers, t.stop = provider, provider.Shutdown
	return t, nil
}

// Change has the log begin at another level, and another ratio of traces sampled, from now on. A
// level that is none leaves it as it was.
func (t *Telemetry) Change(level string, ratio float64) {
	_ = t.level.UnmarshalText([]byte(level))
	t.ratio.set(ratio)
}

// Start does nothing: with Stop it makes Telemetry a lifecycle.Part.
func (t *Telemetry) Start(context.Context) error { return nil }

// lastLines is how long Stop waits for whoever reads the log.
const lastLines = time.Second

// Stop sends the spans that wait, writes the lines that wait, and ends.
func (t *Telemetry) Stop(ctx context.Context) error {
	err := t.stop(ctx)
	ctx, cancel := context.WithTimeout(ctx, lastLines)
	defer cancel()
	t.log.flush(ctx)
	return err
}

// Tracer for a package.
func (t *Telemetry) Tracer(name string) trace.Tracer {
	return t.Tracers.Tracer("github.com/pushmesh/pushmesh/" + name)
}

// ServerOption traces the calls that a gRPC server takes.
func (t *Telemetry) ServerOption() grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(t.Tracers), otelgrpc.WithPropagators(propagation.TraceContext{})))
}

// DialOption traces the calls that a gRPC client makes.
func (t *Telemetry) DialOption() grpc.DialOption {
	return grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(t.Tracers), otelgrpc.WithPropagators(propagation.TraceContext{})))
}

// Traceparent is the W3C traceparent of ctx's span; "" where it isn't sampled.
func Traceparent(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); !sc.IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// WithTraceparent puts the span that a W3C traceparent names into ctx as the remote parent; a bad
// one is ignored.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}
