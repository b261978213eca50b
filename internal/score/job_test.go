package score

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A job for many profiles gives each what a job of its own would have, from the candidates that it
// may get.
func TestProfilesDoNotMeddle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := request(t)
		var profiles []Profile
		for range rapid.IntRange(0, 5).Draw(t, "profiles") {
			p := Profile{Features: request(t).GetProfile(), Keep: rapid.IntRange(0, 40).Draw(t, "keep")}
			if rapid.Bool().Draw(t, "some") {
				p.Candidates = []uint32{}
				for i := range r.GetCandidates() {
					if rapid.Bool().Draw(t, "may") {
						p.Candidates = append(p.Candidates, uint32(i))
					}
				}
			}
			profiles = append(profiles, p)
		}
		spec, err := Compile(r, Parts{})
		if err != nil {
			t.Fatal(err)
		}
		j, err := spec.Job(Candidates(r.GetCandidates()), profiles, now)
		finish(t, j, err)
		for i, p := range profiles {
			alone := &pushmeshv1.RankRequest{Weighted: r.GetWeighted(), Profile: p.Features, TopK: uint32(p.Keep)}
			places := p.Candidates
			if places == nil {
				for k := range r.GetCandidates() {
					places = append(places, uint32(k))
				}
			}
			for _, k := range places {
				alone.Candidates = append(alone.Candidates, r.GetCandidates()[k])
			}
			var want []Place
			for _, w := range rank(t, alone) {
				want = append(want, Place{places[w.GetIndex()], w.GetScore()})
			}
			if !slices.Equal(j.Places(i), want) {
				t.Fatalf("profile %d: %v, alone %v", i, j.Places(i), want)
			}
		}
	})
}

func TestWhatMadeAScore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := request(t)
		r.Weighted.HalfLife, r.Explain = nil, true
		j, err := begin(r)
		finish(t, j, err)
		if len(j.Explained(0)) != len(j.Places(0)) {
			t.Fatalf("%d explanations of %d", len(j.Explained(0)), len(j.Places(0)))
		}
		for i, p := range j.Places(0) {
			sum, last := 0.0, math.Inf(1)
			for _, c := range j.Explained(0)[i] {
				if math.Abs(c.GetValue()) > last {
					t.Fatalf("not by size: %v", j.Explained(0)[i])
				}
				last = math.Abs(c.GetValue())
				sum += c.GetValue()
			}
			if sum != p.Score {
				t.Fatalf("the parts make %v, the score is %v", sum, p.Score)
			}
		}
	})
}

// Diversify: in the order of scores, of each key so many first, and then the rest, of which nothing
// is lost.
func TestDiversify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := request(t)
		for _, c := range r.GetCandidates() {
			c.Topic = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "topic")
			c.Headers = rapid.SampledFrom([]map[string]string{nil, {"k": ""}, {"k": "x"}}).Draw(t, "headers")
		}
		r.TopK = 0
		plain := rank(t, r)
		key := rapid.SampledFrom([]string{"topic", "header:k", "feature:a"}).Draw(t, "key")
		most := rapid.Uint32Range(1, 3).Draw(t, "most")
		var first, behind []uint32
		seen := map[string]uint32{}
		for _, p := range plain {
			c := r.GetCandidates()[p.GetIndex()]
			var name string
			var has bool
			switch key {
			case "topic":
				name, has = c.GetTopic(), c.GetTopic() != ""
			case "header:k":
				name, has = c.GetHeaders()["k"]
			default:
				var v float64
				v, has = c.GetFeatures()["a"]
				name = strconv.FormatFloat(v, 'f', 3, 64)
			}
			if seen[name]++; has && seen[name] > most {
				behind = append(behind, p.GetIndex())
			} else {
				first = append(first, p.GetIndex())
			}
			if !has {
				seen[name]--
			}
		}
		want := slices.Concat(first, behind)
		r.Diversify = &pushmeshv1.Diversify{Key: key, AtMost: most}
		r.TopK = rapid.Uint32Range(0, 20).Draw(t, "k")
		if r.GetTopK() > 0 {
			want = want[:min(len(want), int(r.GetTopK()))]
		}
		var got []uint32
		for _, p := range rank(t, r) {
			got = append(got, p.GetIndex())
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestRefusesProfiles(t *testing.T) {
	spec, err := Compile(&pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{}}, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	candidates := make([]*pushmeshv1.Candidate, 2000)
	for name, profiles := range map[string][]Profile{
		"too many pairs":  make([]Profile, MaxPairs/2000+1),
		"infinite vector": {{Vector: []float32{float32(math.Inf(1))}}},
		"out of range":    {{Candidates: []uint32{2000}}},
		"twice":           {{Candidates: []uint32{1, 1}}},
	} {
		if _, err := spec.Job(Candidates(candidates), profiles, now); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v", name, err)
		}
	}
	j, err := spec.Job(Candidates(candidates), nil, now)
	if done, err2 := j.Step(time.Second); err != nil || err2 != nil || !done {
		t.Fatal(err, err2)
	}
}
