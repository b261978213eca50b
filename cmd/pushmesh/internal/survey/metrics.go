package survey

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Metrics of one node at one time. The nil Metrics has none.
type Metrics struct {
	At       time.Time
	families map[string]*dto.MetricFamily
}

// Parse reads what /metrics answers.
func Parse(text []byte, at time.Time) (*Metrics, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return &Metrics{At: at, families: families}, nil
}

// Metrics asks a node.
func (s *Survey) Metrics(ctx context.Context, n *pushmeshv1.Node) (*Metrics, error) {
	status, body, err := s.Get(ctx, n.GetHttpAddress(), "/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("/metrics answers %d", status)
	}
	return Parse(body, time.Now())
}

// Match picks the metrics of a family whose labels it names; nil: all.
type Match map[string]string

func (m Match) fits(metric *dto.Metric) bool {
	for name, want := range m {
		if !slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == name && l.GetValue() == want }) {
			return false
		}
	}
	return true
}

func (m *Metrics) each(name string, match Match, f func(*dto.Metric)) {
	if m == nil {
		return
	}
	for _, metric := range m.families[name].GetMetric() {
		if match.fits(metric) {
			f(metric)
		}
	}
}

// Sum of counters and gauges; false where there are none.
func (m *Metrics) Sum(name string, match Match) (sum float64, ok bool) {
	m.each(name, match, func(metric *dto.Metric) {
		sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue()
		ok = true
	})
	return sum, ok
}

// Rate is by how much a sum of counters grew each second since an earlier time. A counter that is
// smaller than it was began anew with its process.
func (m *Metrics) Rate(before *Metrics, name string, match Match) (perSecond float64, ok bool) {
	now, ok := m.Sum(name, match)
	if !ok || before == nil {
		return 0, false
	}
	then, _ := before.Sum(name, match)
	if now < then {
		then = 0
	}
	seconds := m.At.Sub(before.At).Seconds()
	if seconds <= 0 {
		return 0, false
	}
	return (now - then) / seconds, true
}

// Quantile of what histograms of this name saw since an earlier time (nil: since their processes
// began), in their unit: within its bucket it is taken for evenly spread, and what is above the
// last bound counts as that bound. False where they saw nothing.
func (m *Metrics) Quantile(before *Metrics, name string, match Match, q float64) (v float64, ok bool) {
	now, then := m.buckets(name, match), before.buckets(name, match)
	var bounds []float64
	for b, n := range now {
		if n < then[b] { // the process began anew
			then = nil
		}
		bounds = append(bounds, b)
	}
	slices.Sort(bounds)
	if len(bounds) == 0 {
		return 0, false
	}
	total := now[math.Inf(1)] - then[math.Inf(1)]
	if total <= 0 {
		return 0, false
	}
	rank, low, below := q*total, 0.0, 0.0
	for _, high := range bounds {
		upTo := now[high] - then[high]
		if upTo < rank {
			low, below = high, upTo
			continue
		}
		if math.IsInf(high, 1) {
			return low, true
		}
		if upTo == below {
			return high, true
		}
		return low + (high-low)*(rank-below)/(upTo-below), true
	}
	return low, true
}

// buckets are cumulated counts by their upper bounds, summed over the metrics that match.
func (m *Metrics) buckets(name string, match Match) map[float64]float64 {
	out := map[float64]float64{}
	m.each(name, match, func(metric *dto.Metric) {
		h := metric.GetHistogram()
		if h == nil {
			return
		}
		for _, b := range h.GetBucket() {
			if !math.IsInf(b.GetUpperBound(), 1) {
				out[b.GetUpperBound()] += float64(b.GetCumulativeCount())
			}
		}
		out[math.Inf(1)] += float64(h.GetSampleCount())
	})
	return out
}
