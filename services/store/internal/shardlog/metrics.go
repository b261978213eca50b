package shardlog

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Metrics of all lanes of a store.
type Metrics struct {
	appends    *prometheus.CounterVec
	duplicates prometheus.Counter
	batch      prometheus.Histogram
	seconds    prometheus.Histogram
	wait       prometheus.Histogram
	failures   *prometheus.CounterVec
	depth      *prometheus.GaugeVec
	stalls     prometheus.Counter
	positions  *prometheus.GaugeVec
	kept       *prometheus.GaugeVec
	forgotten  *prometheus.CounterVec
	topics     *prometheus.GaugeVec
	// topicsForgotten are those of this store's shards.
	topicsForgotten prometheus.Counter
	refusals        *prometheus.CounterVec
	refused         prometheus.Counter
	taken           *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	auto := promauto.With(r)
	return &Metrics{
		appends: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_store_appends_total", Help: "Append requests answered, one for each message, by code.",
		}, []string{"code"}),
		duplicates: auto.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_store_append_duplicates_total", Help: "Messages that were duplicates and were answered with the first result.",
		}),
		batch: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_store_commit_messages", Help: "Messages in one group commit.", Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}),
		seconds: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_store_commit_seconds", Help: "Time that a group commit took.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		wait: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_store_commit_wait_seconds", Help: "Time that the first message of a group commit waited for it to begin.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		failures: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_store_commit_failures_total", Help: "Group commits that failed, by outcome.",
		}, []string{"outcome"}),
		depth: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pushmesh_store_queue_messages", Help: "Messages that wait for the next group commit.",
		}, []string{"lane"}),
		stalls: auto.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_store_database_stalls_total", Help: "Times that a commit exceeded --db-stall, and appends were refused until it ended.",
		}),
		kept: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pushmesh_store_kept_topics", Help: "Topics of this store's shards that keep their last message.",
		}, []string{"lane"}),
		topics: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pushmesh_store_topics", Help: "Topics of this store's shards that were published to and are not forgotten.",
		}, []string{"lane"}),
		topicsForgotten: auto.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_store_topics_forgotten_total", Help: "Topics that were forgotten because nothing of them was retained for --topic-ttl.",
		}),
		positions: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pushmesh_store_producer_positions", Help: "Positions of ordered producers, one for each producer and topic, that are kept in memory.",
		}, []string{"lane"}),
		forgotten: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_store_producer_positions_forgotten_total", Help: "Positions of ordered producers that were removed, by reason: unused (for 8 days), room (for newer ones).",
		}, []string{"reason"}),
		refusals: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_store_producer_refusals_total",
			Help: "Messages of ordered producers that were refused, by reason: share (the producer uses too many topics), full (no room for positions), forgotten (its position was removed).",
		}, []string{"code", "reason"}),
		refused: auto.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_store_shards_inconsistent_total", Help: "Times that a shard was released because its loaded state contradicts its log.",
		}),
		taken: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_store_shards_taken_total", Help: "Shards taken, by state: loaded from the database, or known still from before the connection was lost.",
		}, []string{"state"}),
	}
}

func (m *Metrics) answered(results []*meshv1.AppendResult) {
	var counts [64]int
	duplicates := 0
	for _, r := range results {
		counts[r.GetCode()&63]++
		if r.GetDuplicate() {
			duplicates++
		}
	}
	for c, n := range counts {
		if n > 0 {
			m.appends.WithLabelValues(code.Name(wirev1.Code(c))).Add(float64(n))
		}
	}
	m.duplicates.Add(float64(duplicates))
}

// committed takes how long a group waited, counted from its first message, and how long its commit
// took.
func (m *Metrics) committed(waited, took time.Duration, messages int, err error) {
	m.wait.Observe(max(0, waited).Seconds())
	m.seconds.Observe(took.Seconds())
	m.batch.Observe(float64(messages))
	switch {
	case err == nil:
	case errors.Is(err, backend.ErrNotCommitted):
		m.failures.WithLabelValues("not_committed").Inc()
	case errors.Is(err, backend.ErrLost):
		m.failures.WithLabelValues("lost").Inc()
	default:
		m.failures.WithLabelValues("unknown").Inc()
	}
}

func (m *Metrics) keeps(lane string, topics int) { m.kept.WithLabelValues(lane).Set(float64(topics)) }

func (m *Metrics) knows(lane string, topics int) { m.topics.WithLabelValues(lane).Set(float64(topics)) }

func (m *Metrics) positioned(lane string, n int) { m.positions.WithLabelValues(lane).Set(float64(n)) }

func (m *Metrics) forgot(unused, crowded int) {
	if unused > 0 {
		m.forgotten.WithLabelValues("unused").Add(float64(unused))
	}
	if crowded > 0 {
		m.forgotten.WithLabelValues("room").Add(float64(crowded))
	}
}

// unplaced counts refusals of numbers without a position.
func (m *Metrics) unplaced(u *unplaced) {
	for _, c := range [...]struct {
		n      int
		code   wirev1.Code
		reason string
	}{
		{u.share, wirev1.Code_CODE_RATE_LIMITED, "share"},
		{u.full, wirev1.Code_CODE_OVERLOADED, "full"},
		{u.forgotten, wirev1.Code_CODE_OUT_OF_ORDER, "forgotten"},
	} {
		if c.n > 0 {
			m.refusals.WithLabelValues(code.Name(c.code), c.reason).Add(float64(c.n))
		}
	}
}

func (m *Metrics) queued(lane string, depth int) { m.depth.WithLabelValues(lane).Set(float64(depth)) }

func (m *Metrics) shardRefused() { m.refused.Inc() }

// took counts shards that were taken: loaded from the database, or known still.
func (m *Metrics) took(loaded, known int) {
	m.taken.WithLabelValues("loaded").Add(float64(loaded))
	m.taken.WithLabelValues("known").Add(float64(known))
}

// traces adds a span to the traces of messages that are sampled: from the queue to the answer.
type traces struct{ tracer trace.Tracer }

func (t traces) appended(entries []*entry, results []*meshv1.AppendResult, now time.Time) {
	for i, e := range entries {
		if e.item.GetTraceparent() == "" {
			continue
		}
		ctx := telemetry.WithTraceparent(context.Background(), e.item.GetTraceparent())
		_, span := t.tracer.Start(ctx, "store.append", trace.WithTimestamp(e.at), trace.WithAttributes(
			attribute.String("pushmesh.code", code.Name(results[i].GetCode())), attribute.Int64("pushmesh.seq", int64(results[i].GetSeq()))))
		if results[i].GetCode() != wirev1.Code_CODE_OK {
			span.SetStatus(codes.Error, results[i].GetError())
		}
		span.End(trace.WithTimestamp(now))
	}
}
