package admin

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// RankPolicy says how messages are ranked. One scorer is set. Zero values are the mesh's defaults.
type RankPolicy struct {
	// Window is how long messages are gathered, from the first on: 100 ms by default, 10 s at most.
	Window time.Duration
	// Deadline after which messages are delivered unranked: 50 ms by default, 5 s at most.
	Deadline time.Duration
	Rest     Rest
	// The scorers.
	Weighted   *WeightedScorer
	Expression *ExpressionScorer
	Embedding  *EmbeddingScorer
	Model      *ModelScorer
	// Filter is a CEL expression that is true for what stays; empty: all does.
	Filter    string
	Diversify *Diversify
	// MaxCandidates of one ranking: 1,000 by default, 10,000 at most.
	MaxCandidates uint32

	rest rest
}

// Rest says what becomes of messages that are not among the best.
type Rest int32

// They follow without a score, or are not delivered.
const (
	RestDeliver = Rest(pushmeshv1.RankPolicy_REST_DELIVER)
	RestSkip    = Rest(pushmeshv1.RankPolicy_REST_SKIP)
)

// WeightedScorer has the score (Bias + Σ weight·feature + Σ affinity·feature·profile +
// PriorityWeight·priority) · 0.5^(age / HalfLife).
type WeightedScorer struct {
	Weights        map[string]float64
	Bias           float64
	PriorityWeight float64
	// HalfLife; 0: age does not count.
	HalfLife time.Duration
	// Now is what age is counted from; zero: the time of the ranking.
	Now time.Time
	// Affinities weigh the product of a feature of the message and that of the profile.
	Affinities map[string]float64

	rest rest
}

// ExpressionScorer is a CEL expression whose number is the score.
type ExpressionScorer struct {
	Expression string

	rest rest
}

// EmbeddingScorer scores by the profile's vector.
type EmbeddingScorer struct {
	Metric Metric

	rest rest
}

// Metric of vectors.
type Metric int32

// The product of two vectors, or that of their directions.
const (
	MetricDot    = Metric(pushmeshv1.EmbeddingScorer_METRIC_DOT)
	MetricCosine = Metric(pushmeshv1.EmbeddingScorer_METRIC_COSINE)
)

// ModelScorer scores by a stored model.
type ModelScorer struct {
	Name string
	// Version; 0: the newest.
	Version uint64
	// Output is which of a model's several is the score.
	Output uint32
	// NextVersion gets NextShare of the calls, 0 to 1.
	NextVersion uint64
	NextShare   float64
	// MaxErrorShare and MaxSlowdown of NextVersion, beyond which all calls go to Version: 0.05 and
	// 3 by default.
	MaxErrorShare, MaxSlowdown float64

	rest rest
}

// Diversify lets at most AtMost messages of one key among the best.
type Diversify struct {
	// Key: "topic", "feature:NAME" or "header:NAME".
	Key    string
	AtMost uint32

	rest rest
}

func rankOf(m *pushmeshv1.RankPolicy) *RankPolicy {
	if m == nil {
		return nil
	}
	r := &RankPolicy{
		Window: m.GetWindow().AsDuration(), Deadline: m.GetDeadline().AsDuration(), Rest: Rest(m.GetRest()), Filter: m.GetFilter(), MaxCandidates: m.GetMaxCandidates(),
		rest: m.ProtoReflect().GetUnknown(),
	}
	if w := m.GetWeighted(); w != nil {
		r.Weighted = &WeightedScorer{
			Weights: w.GetWeights(), Bias: w.GetBias(), PriorityWeight: w.GetPriorityWeight(), HalfLife: w.GetHalfLife().AsDuration(), Now: stampOf(w.GetNow()),
			Affinities: w.GetAffinities(), rest: w.ProtoReflect().GetUnknown(),
		}
	}
	if x := m.GetExpression(); x != nil {
		r.Expression = &ExpressionScorer{Expression: x.GetExpression(), rest: x.ProtoReflect().GetUnknown()}
	}
	if e := m.GetEmbedding(); e != nil {
		r.Embedding = &EmbeddingScorer{Metric: Metric(e.GetMetric()), rest: e.ProtoReflect().GetUnknown()}
	}
	if s := m.GetModel(); s != nil {
		r.Model = &ModelScorer{
			Name: s.GetName(), Version: s.GetVersion(), Output: s.GetOutput(), NextVersion: s.GetNextVersion(), NextShare: s.GetNextShare(),
			MaxErrorShare: s.GetMaxErrorShare(), MaxSlowdown: s.GetMaxSlowdown(), rest: s.ProtoReflect().GetUnknown(),
		}
	}
	if d := m.GetDiversify(); d != nil {
		r.Diversify = &Diversify{Key: d.GetKey(), AtMost: d.GetAtMost(), rest: d.ProtoReflect().GetUnknown()}
	}
	return r
}

func (r *RankPolicy) proto() *pushmeshv1.RankPolicy {
	if r == nil {
		return nil
	}
	m := &pushmeshv1.RankPolicy{
		Window: duration(r.Window), Deadline: duration(r.Deadline), Rest: pushmeshv1.RankPolicy_Rest(r.Rest), Filter: r.Filter, MaxCandidates: r.MaxCandidates,
	}
	m.ProtoReflect().SetUnknown(r.rest)
	if w := r.Weighted; w != nil {
		m.Weighted = &pushmeshv1.WeightedScorer{
			Weights: w.Weights, Bias: w.Bias, PriorityWeight: w.PriorityWeight, HalfLife: duration(w.HalfLife), Now: timestamp(w.Now), Affinities: w.Affinities,
		}
		m.Weighted.ProtoReflect().SetUnknown(w.rest)
	}
	if x := r.Expression; x != nil {
		m.Expression = &pushmeshv1.ExpressionScorer{Expression: x.Expression}
		m.Expression.ProtoReflect().SetUnknown(x.rest)
	}
	if e := r.Embedding; e != nil {
		m.Embedding = &pushmeshv1.EmbeddingScorer{Metric: pushmeshv1.EmbeddingScorer_Metric(e.Metric)}
		m.Embedding.ProtoReflect().SetUnknown(e.rest)
	}
	if s := r.Model; s != nil {
		m.Model = &pushmeshv1.ModelScorer{
			Name: s.Name, Version: s.Version, Output: s.Output, NextVersion: s.NextVersion, NextShare: s.NextShare, MaxErrorShare: s.MaxErrorShare, MaxSlowdown: s.MaxSlowdown,
		}
		m.Model.ProtoReflect().SetUnknown(s.rest)
	}
	if d := r.Diversify; d != nil {
		m.Diversify = &pushmeshv1.Diversify{Key: d.Key, AtMost: d.AtMost}
		m.Diversify.ProtoReflect().SetUnknown(d.rest)
	}
	return m
}
