package score

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// begin makes the job of a request.
func begin(r *pushmeshv1.RankRequest) (*Job, error) {
	spec, err := Compile(r, Parts{})
	if err != nil {
		return nil, err
	}
	return spec.Job(Candidates(r.GetCandidates()), []Profile{{Features: r.GetProfile(), Vector: r.GetProfileVector(), Keep: int(r.GetTopK()), Explain: r.GetExplain()}}, now)
}

// finish runs a job to its end with slices of no time at all, so that every boundary between slices
// is crossed.
func finish(t interface{ Fatal(...any) }, j *Job, err error) *Job {
	for done := false; !done; {
		if err == nil {
			done, err = j.Step(0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return j
}

func rank(t interface{ Fatal(...any) }, r *pushmeshv1.RankRequest) []*pushmeshv1.RankResponse_Ranked {
	j, err := begin(r)
	var out []*pushmeshv1.RankResponse_Ranked
	for _, p := range finish(t, j, err).Places(0) {
		out = append(out, &pushmeshv1.RankResponse_Ranked{Id: r.GetCandidates()[p.Index].GetId(), Score: p.Score, Index: p.Index})
	}
	return out
}

// naive is rank.proto's formula, written down once more without any thought of speed.
func naive(r *pushmeshv1.RankRequest) []*pushmeshv1.RankResponse_Ranked {
	w := r.GetWeighted()
	at := now
	if w.GetNow() != nil {
		at = w.GetNow().AsTime()
	}
	var out []*pushmeshv1.RankResponse_Ranked
	for i, c := range r.GetCandidates() {
		s := w.GetBias() + w.GetPriorityWeight()*float64(c.GetPriority())
		for name, f := range c.GetFeatures() {
			s += w.GetWeights()[name]*f + w.GetAffinities()[name]*f*r.GetProfile()[name]
		}
		if h := w.GetHalfLife().AsDuration(); h > 0 && c.GetPublishedAt() != nil {
			age := max(at.Sub(c.GetPublishedAt().AsTime()), 0)
			s *= math.Pow(0.5, age.Seconds()/h.Seconds())
		}
		out = append(out, &pushmeshv1.RankResponse_Ranked{Id: c.GetId(), Score: s, Index: uint32(i)})
	}
	slices.SortStableFunc(out, func(a, b *pushmeshv1.RankResponse_Ranked) int { return cmp.Compare(b.GetScore(), a.GetScore()) })
	if k := int(r.GetTopK()); k > 0 && k < len(out) {
		out = out[:k]
	}
	return out
}

// request draws numbers that are sums of few powers of two, so that every order of adding them
// gives the same score and ties are common.
func request(t *rapid.T) *pushmeshv1.RankRequest {
	number := rapid.Map(rapid.IntRange(-64, 64), func(n int) float64 { return float64(n) / 4 })
	features := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), number, 0, 4)
	w := &pushmeshv1.WeightedScorer{
		Weights: features.Draw(t, "weights"), Affinities: features.Draw(t, "affinities"),
		Bias: number.Draw(t, "bias"), PriorityWeight: number.Draw(t, "priority weight"),
	}
	if rapid.Bool().Draw(t, "decay") {
		w.HalfLife = durationpb.New(time.Duration(rapid.IntRange(0, 100).Draw(t, "half life")) * time.Minute)
	}
	if rapid.Bool().Draw(t, "now given") {
		w.Now = timestamppb.New(now.Add(time.Hour))
	}
	r := &pushmeshv1.RankRequest{Weighted: w, Profile: features.Draw(t, "profile"), TopK: uint32(rapid.IntRange(0, 80).Draw(t, "k"))}
	for range rapid.IntRange(0, 150).Draw(t, "candidates") {
		c := &pushmeshv1.Candidate{Id: rapid.StringN(0, 3, 8).Draw(t, "id"), Features: features.Draw(t, "features"), Priority: rapid.Uint32Range(0, 9).Draw(t, "priority")}
		if rapid.Bool().Draw(t, "dated") {
			c.PublishedAt = timestamppb.New(now.Add(time.Duration(rapid.IntRange(-300, 30).Draw(t, "age")) * time.Minute))
		}
		r.Candidates = append(r.Candidates, c)
	}
	return r
}

func TestFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := request(t)
		got, want := rank(t, r), naive(r)
		if len(got) != len(want) {
			t.Fatalf("%d ranked, want %d", len(got), len(want))
		}
		for i := range got {
			g, w := got[i].GetScore(), want[i].GetScore()
			if math.Abs(g-w) > 1e-9*max(1, math.Abs(w)) {
				t.Fatalf("place %d: score %v, want %v", i, g, w)
			}
			if i > 0 && (got[i-1].GetScore() < g || got[i-1].GetScore() == g && got[i-1].GetIndex() >= got[i].GetIndex()) {
				t.Fatalf("places %d and %d are out of order: %v, %v", i-1, i, got[i-1], got[i])
			}
			if r.GetWeighted().GetHalfLife().AsDuration() == 0 && got[i].GetIndex() != want[i].GetIndex() {
				// exact scores
				t.Fatalf("place %d: candidate %d, want %d", i, got[i].GetIndex(), want[i].GetIndex())
			}
			if got[i].GetId() != r.GetCandidates()[got[i].GetIndex()].GetId() {
				t.Fatalf("place %d: id of another candidate", i)
			}
		}
	})
}

func TestByHand(t *testing.T) {
	r := &pushmeshv1.RankRequest{
		Profile: map[string]float64{"sport": 2, "idle": 9},
		Weighted: &pushmeshv1.WeightedScorer{
			Weights: map[string]float64{"quality": 3}, Affinities: map[string]float64{"sport": 5, "absent": 7},
			Bias: 1, PriorityWeight: 10, HalfLife: durationpb.New(time.Hour),
		},
		Candidates: []*pushmeshv1.Candidate{
			{Id: "old", Features: map[string]float64{"quality": 1, "sport": 1}, Priority: 1, PublishedAt: timestamppb.New(now.Add(-2 * time.Hour))},
			{Id: "future", Features: map[string]float64{"quality": 1}, PublishedAt: timestamppb.New(now.Add(time.Hour))},
			{Id: "undated", Features: map[string]float64{"quality": 1}},
		},
	}
	want := []struct {
		id    string
		score float64
	}{{"old", (1 + 3 + 10 + 10) / 4.0}, {"future", 4}, {"undated", 4}}
	for i, got := range rank(t, r) {
		if got.GetId() != want[i].id || math.Abs(got.GetScore()-want[i].score) > 1e-12 {
			t.Errorf("place %d: %v, want %v", i, got, want[i])
		}
	}
}

func TestSameRequestSameBits(t *testing.T) {
	weights, features := map[string]float64{}, map[string]float64{}
	for i := range 40 {
		name := string(rune('a' + i))
		weights[name], features[name] = 0.1*float64(i+1), 1/float64(i+3)
	}
	r := &pushmeshv1.RankRequest{
		Weighted:   &pushmeshv1.WeightedScorer{Weights: weights},
		Candidates: []*pushmeshv1.Candidate{{Features: features}},
	}
	first := rank(t, r)[0].GetScore()
	for range 200 {
		if s := rank(t, r)[0].GetScore(); math.Float64bits(s) != math.Float64bits(first) {
			t.Fatalf("%v, then %v: the sum depends on the order of a map", first, s)
		}
	}
}

func TestRefusesNonsense(t *testing.T) {
	weighted := func(w *pushmeshv1.WeightedScorer, c ...*pushmeshv1.Candidate) *pushmeshv1.RankRequest {
		return &pushmeshv1.RankRequest{Weighted: w, Candidates: c}
	}
	one := &pushmeshv1.Candidate{Features: map[string]float64{"a": 1e300}}
	for name, r := range map[string]*pushmeshv1.RankRequest{
		"no scorer":          {Candidates: []*pushmeshv1.Candidate{one}},
		"two scorers":        {Weighted: &pushmeshv1.WeightedScorer{}, Model: &pushmeshv1.ModelScorer{}},
		"diversify by what":  {Weighted: &pushmeshv1.WeightedScorer{}, Diversify: &pushmeshv1.Diversify{Key: "payload", AtMost: 1}},
		"none of a kind":     {Weighted: &pushmeshv1.WeightedScorer{}, Diversify: &pushmeshv1.Diversify{Key: "topic"}},
		"too many":           weighted(&pushmeshv1.WeightedScorer{}, make([]*pushmeshv1.Candidate, MaxCandidates+1)...),
		"infinite weight":    weighted(&pushmeshv1.WeightedScorer{Weights: map[string]float64{"a": math.Inf(1)}}),
		"NaN affinity":       weighted(&pushmeshv1.WeightedScorer{Affinities: map[string]float64{"a": math.NaN()}}),
		"NaN bias":           weighted(&pushmeshv1.WeightedScorer{Bias: math.NaN()}),
		"infinite priority":  weighted(&pushmeshv1.WeightedScorer{PriorityWeight: math.Inf(-1)}),
		"NaN profile":        {Weighted: &pushmeshv1.WeightedScorer{}, Profile: map[string]float64{"a": math.NaN()}},
		"negative half-life": weighted(&pushmeshv1.WeightedScorer{HalfLife: durationpb.New(-time.Second)}),
		"bad now":            weighted(&pushmeshv1.WeightedScorer{Now: &timestamppb.Timestamp{Nanos: -1}}),
		"NaN feature":        weighted(&pushmeshv1.WeightedScorer{}, &pushmeshv1.Candidate{Features: map[string]float64{"unused": math.NaN()}}),
		"priority":           weighted(&pushmeshv1.WeightedScorer{}, &pushmeshv1.Candidate{Priority: 10}),
		"score overflows":    weighted(&pushmeshv1.WeightedScorer{Weights: map[string]float64{"a": 1e300}}, one),
		"bad date":           weighted(&pushmeshv1.WeightedScorer{HalfLife: durationpb.New(time.Second)}, &pushmeshv1.Candidate{PublishedAt: &timestamppb.Timestamp{Nanos: -1}}),
	} {
		j, err := begin(r)
		for done := false; err == nil && !done; {
			done, err = j.Step(time.Second)
		}
		if code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEmptyRequestIsDoneAtOnce(t *testing.T) {
	if got := rank(t, &pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{}}); len(got) != 0 {
		t.Fatal(got)
	}
}

func TestSlicesAreShort(t *testing.T) {
	r := &pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"a": 1, "b": 2}}}
	for i := range MaxCandidates {
		r.Candidates = append(r.Candidates, &pushmeshv1.Candidate{Features: map[string]float64{"a": float64(i % 977), "b": 1}})
	}
	j, err := begin(r)
	if err != nil {
		t.Fatal(err)
	}
	slicesDone := 1
	for ; ; slicesDone++ {
		done, err := j.Step(100 * time.Microsecond)
		if err != nil {
			t.Fatal(err)
		}
		if done {
			break
		}
	}
	if slicesDone < 50 {
		t.Fatalf("100,000 candidates in %d slices of 0.1 ms: some slice was long", slicesDone)
	}
	if n := len(j.Places(0)); n != MaxCandidates {
		t.Fatal(n)
	}
}
