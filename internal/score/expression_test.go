package score

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// someone is a candidate and who it is for, as the formulas of these tests see them.
type someone struct {
	*pushmeshv1.Candidate
	profile map[string]float64
}

func (s someone) age() float64 {
	if s.PublishedAt == nil {
		return 0
	}
	return max(now.Sub(s.PublishedAt.AsTime()).Seconds(), 0)
}

// formulas are expressions and the same in Go.
var formulas = map[string]func(s someone) float64{
	`features.a * 2.0 + features.b`: func(s someone) float64 { return s.Features["a"]*2 + s.Features["b"] },
	`features.a * profile.a + double(priority)`: func(s someone) float64 {
		return s.Features["a"]*s.profile["a"] + float64(s.Priority)
	},
	`priority`:        func(s someone) float64 { return float64(s.Priority) },
	`profile.b - age`: func(s someone) float64 { return s.profile["b"] - s.age() },
	`has(features.c) ? features.c : (topic == "t" ? -1.0 : 7.0)`: func(s someone) float64 {
		if v, ok := s.Features["c"]; ok {
			return v
		}
		if s.Topic == "t" {
			return -1
		}
		return 7
	},
	// Interpreted.
	`size(id) + size(headers)`: func(s someone) float64 { return float64(len([]rune(s.Id)) + len(s.Headers)) },
	`double(features.filter(f, features[f] > 0.0).size()) + profile.a`: func(s someone) float64 {
		n := s.profile["a"]
		for _, v := range s.Features {
			if v > 0 {
				n++
			}
		}
		return n
	},
	// No value: 0.
	`1 / priority`: func(s someone) float64 {
		if s.Priority == 1 {
			return 1
		}
		return 0
	},
	`payload == null ? 3.0 : 4.0`: func(s someone) float64 {
		if json.Valid(s.Payload) && string(s.Payload) != "null" {
			return 4
		}
		return 3
	},
	// No value where payload has no such member.
	`payload.n * profile.a`: func(s someone) float64 { return s.member() * s.profile["a"] },
}

// member n of the payload, 0 where there is none.
func (s someone) member() float64 {
	var m struct{ N float64 }
	_ = json.Unmarshal(s.Payload, &m)
	return m.N
}

// payloads of candidates: JSON and not, and JSON that is too deep.
var payloads = [][]byte{nil, []byte(`null`), []byte(`{"n":1.5}`), []byte(`{"n":-2}`), []byte(`{"m":1}`), []byte("\xff"), []byte(`{"n":`)}

func TestPayloadsThatAreTooDeepAreNull(t *testing.T) {
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	r := &pushmeshv1.RankRequest{
		Expression: &pushmeshv1.ExpressionScorer{Expression: "payload == null ? 0 : 1"}, Candidates: []*pushmeshv1.Candidate{{Payload: deep(expr.MaxDepth + 1)}, {Payload: deep(expr.MaxDepth)}},
	}
	if got := rank(t, r); got[0].GetIndex() != 1 || got[0].GetScore() != 1 || got[1].GetScore() != 0 {
		t.Fatal(got)
	}
}

// What a payload's parsing takes is part of a ranking's cost where expressions look at it, once for
// all profiles.
func TestPayloadsCost(t *testing.T) {
	large := []*pushmeshv1.Candidate{{Payload: make([]byte, 80_000)}}
	for expression, more := range map[string]int{"priority": 0, "payload.n": 10_000} {
		spec, err := Compile(&pushmeshv1.RankRequest{Expression: &pushmeshv1.ExpressionScorer{Expression: expression}}, Parts{})
		if err != nil {
			t.Fatal(err)
		}
		if got := spec.Cost(Candidates(large), 10) - spec.Cost(Candidates([]*pushmeshv1.Candidate{{}}), 10); got != more {
			t.Errorf("%s: the payload costs %d, want %d", expression, got, more)
		}
	}
}

var filters = map[string]func(s someone) bool{
	`features.a > 0`:                          func(s someone) bool { return s.Features["a"] > 0 },
	`features.a >= profile.a`:                 func(s someone) bool { return s.Features["a"] >= s.profile["a"] },
	`headers.k == "x" || priority > 5`:        func(s someone) bool { return s.Headers["k"] == "x" || s.Priority > 5 },
	`id.matches("^[a-z]*$")`:                  func(s someone) bool { return strings.Trim(s.Id, "abcdefghijklmnopqrstuvwxyz") == "" },
	`payload.n > 0`:                           func(s someone) bool { return s.member() > 0 },
	`has(profile.b) && age < 3600.0`:          func(s someone) bool { _, ok := s.profile["b"]; return ok && s.age() < 3600 },
	`1 / priority > 0`:                        func(s someone) bool { return s.Priority == 1 },
	`false`:                                   func(someone) bool { return false },
	`features.exists(f, f == "d") && age > 0`: func(s someone) bool { _, ok := s.Features["d"]; return ok && s.age() > 0 },
}

// Expressions score, and filters leave out, what the same in Go does, for each of many profiles.
func TestExpressions(t *testing.T) {
	cache := expr.NewCache(8, expr.Limits{})
	texts, tests := keys(formulas), keys(filters)
	rapid.Check(t, func(t *rapid.T) {
		r := request(t)
		for _, c := range r.GetCandidates() {
			c.Topic = rapid.SampledFrom([]string{"", "t"}).Draw(t, "topic")
			c.Headers = rapid.SampledFrom([]map[string]string{nil, {"k": ""}, {"k": "x"}}).Draw(t, "headers")
			c.Payload = rapid.SampledFrom(payloads).Draw(t, "payload")
		}
		text := rapid.SampledFrom(texts).Draw(t, "expression")
		r.Weighted, r.Expression = nil, &pushmeshv1.ExpressionScorer{Expression: text}
		pass := func(someone) bool { return true }
		if rapid.Bool().Draw(t, "filtered") {
			r.Filter = rapid.SampledFrom(tests).Draw(t, "filter")
			pass = filters[r.GetFilter()]
		}
		profiles := []Profile{{Features: r.GetProfile(), Keep: int(r.GetTopK())}, {}, {Features: map[string]float64{"a": 1.5, "b": -2}, Candidates: everyOther(r)}}
		spec, err := Compile(r, Parts{Expressions: cache})
		if err != nil {
			t.Fatal(err)
		}
		j, err := spec.Job(Candidates(r.GetCandidates()), profiles, now)
		finish(t, j, err)
		for i := range profiles {
			p := &profiles[i]
			checkPlaces(t, j, i, r.GetCandidates(), p, func(c *pushmeshv1.Candidate) (float64, bool) {
				s := someone{c, p.Features}
				return formulas[text](s), pass(s)
			})
		}
	})
}

func keys[V any](m map[string]V) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// everyOther place of a request.
func everyOther(r *pushmeshv1.RankRequest) []uint32 {
	out := []uint32{}
	for i := 0; i < len(r.GetCandidates()); i += 2 {
		out = append(out, uint32(i))
	}
	return out
}

// checkPlaces holds what a profile got to a formula: the best of what passes, in order.
func checkPlaces(t *rapid.T, j *Job, profile int, candidates []*pushmeshv1.Candidate, p *Profile, formula func(*pushmeshv1.Candidate) (score float64, passes bool)) {
	var want heap
	var filtered []uint32
	for i, c := range candidates {
		if p.Candidates != nil && i%2 != 0 {
			continue
		}
		if s, passes := formula(c); passes {
			want.offer(Place{uint32(i), s}, len(candidates))
		} else {
			filtered = append(filtered, uint32(i))
		}
	}
	best := make([]Place, len(want))
	for i := len(want) - 1; i >= 0; i-- {
		best[i] = want.pop()
	}
	if p.Keep > 0 {
		best = best[:min(p.Keep, len(best))]
	}
	got := j.Places(profile)
	if len(got) != len(best) || !slices.Equal(j.Filtered(profile), filtered) {
		t.Fatalf("profile %d: %d ranked and %v filtered, want %d and %v", profile, len(got), j.Filtered(profile), len(best), filtered)
	}
	for i := range got {
		if got[i].Index != best[i].Index || math.Float64bits(got[i].Score+0) != math.Float64bits(best[i].Score+0) {
			t.Fatalf("profile %d, place %d: %v, want %v", profile, i, got[i], best[i])
		}
	}
}

// What an expression may not is refused before the ranking, or ends it.
func TestExpressionsAreBounded(t *testing.T) {
	many := &pushmeshv1.Candidate{Features: map[string]float64{}}
	for i := range 2000 {
		many.Features[strings.Repeat("x", i%50)+string(rune('a'+i%26))+strings.Repeat("y", i/26)] = 1
	}
	for name, r := range map[string]*pushmeshv1.RankRequest{
		"not an expression": {Expression: &pushmeshv1.ExpressionScorer{Expression: "1 +"}},
		"empty":             {Expression: &pushmeshv1.ExpressionScorer{}},
		"a text":            {Expression: &pushmeshv1.ExpressionScorer{Expression: "id"}},
		"too long":          {Expression: &pushmeshv1.ExpressionScorer{Expression: "1" + strings.Repeat("+1", 2<<10)}},
		"filter of numbers": {Weighted: &pushmeshv1.WeightedScorer{}, Filter: "priority"},
		"unknown name":      {Weighted: &pushmeshv1.WeightedScorer{}, Filter: "features.a > nope"},
		"infinite score":    {Expression: &pushmeshv1.ExpressionScorer{Expression: "1.0 / features.absent"}},
		"score beyond its cost": {Expression: &pushmeshv1.ExpressionScorer{
			Expression: "features.map(f, features[f] * 2.0).size() + features.map(f, features[f] * 3.0).size()",
		}},
		"filter beyond its cost": {
			Weighted: &pushmeshv1.WeightedScorer{}, Filter: "features.all(f, f != id) && features.all(f, f + f != id) && features.all(f, f + f + f != id)",
		},
	} {
		r.Candidates = []*pushmeshv1.Candidate{many}
		j, err := begin(r)
		for done := false; err == nil && !done; {
			done, err = j.Step(time.Second)
		}
		if code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Beyond its bounds only what the filter lets through matters.
func TestFilteredOutIsNotScored(t *testing.T) {
	r := &pushmeshv1.RankRequest{
		Filter: "features.a > 0", Expression: &pushmeshv1.ExpressionScorer{Expression: "1.0 / features.a"}, Explain: true,
		Candidates: []*pushmeshv1.Candidate{{}, {Features: map[string]float64{"a": 4}}, {}},
	}
	for _, filter := range []string{r.GetFilter(), "features.a > profile.none"} {
		r.Filter = filter
		j, err := begin(r)
		finish(t, j, err)
		if p := j.Places(0); len(p) != 1 || p[0] != (Place{1, 0.25}) || len(j.Filtered(0)) != 2 || len(j.Explained(0)) != 1 {
			t.Errorf("%s: %v, %v left out", filter, p, j.Filtered(0))
		}
	}
}
