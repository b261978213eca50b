package telemetry

import (
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// ratio samples a part of all traces that may change.
type ratio struct {
	now atomic.Pointer[sdktrace.Sampler]
}

func newRatio(of float64) *ratio {
	r := &ratio{}
	r.set(of)
	return r
}

func (r *ratio) set(of float64) {
	s := sdktrace.TraceIDRatioBased(of)
	r.now.Store(&s)
}

// ShouldSample implements sdktrace.Sampler.
func (r *ratio) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return (*r.now.Load()).ShouldSample(p)
}

// Description implements sdktrace.Sampler.
func (r *ratio) Description() string { return (*r.now.Load()).Description() }
