package candidates

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

var everything = score.Needs{ID: true, Topic: true, Features: true, Vector: true, Headers: true, Payload: true, PublishedAt: true}

// drawn candidates: alike ones, and such that have little in common.
func drawn(t *rapid.T) []*pushmeshv1.Candidate {
	names := rapid.SampledFrom([]string{"", "a", "b", "c", "é"})
	candidate := rapid.Custom(func(t *rapid.T) *pushmeshv1.Candidate {
		c := &pushmeshv1.Candidate{
			Id: rapid.String().Draw(t, "id"), Topic: rapid.SampledFrom([]string{"", "t/1", "t/2"}).Draw(t, "topic"), Priority: rapid.Uint32Range(0, 9).Draw(t, "priority"),
			Features: rapid.MapOf(names, rapid.Float64Range(-1e9, 1e9)).Draw(t, "features"),
			Headers:  rapid.MapOf(names, rapid.SampledFrom([]string{"", "x", "ü"})).Draw(t, "headers"),
			Vector:   rapid.SliceOfN(rapid.Float32Range(-9, 9), 0, 3).Draw(t, "vector"),
			Payload:  rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "payload"),
		}
		if rapid.Bool().Draw(t, "published") {
			c.PublishedAt = timestamppb.New(time.Unix(rapid.Int64Range(-9e9, 9e9).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")))
		}
		return c
	})
	return rapid.SliceOfN(candidate, 0, 8).Draw(t, "candidates")
}

// sent is what a node unpacks of what a client packs.
func sent(t interface{ Fatal(...any) }, all []score.Candidate, needs *score.Needs) []score.Candidate {
	p, err := Pack(all, needs)
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	got := &meshv1.PackedCandidates{}
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	out, err := Unpack(got)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func same(a, b []*pushmeshv1.Candidate) bool {
	return slices.EqualFunc(a, b, func(a, b *pushmeshv1.Candidate) bool { return proto.Equal(a, b) })
}

// What is packed comes out again, whichever form its tables have.
func TestPackedAndUnpacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawn(t)
		once := sent(t, score.Candidates(want), &everything)
		if got := Messages(once); !same(got, want) {
			t.Fatalf("%v\nwant %v", got, want)
		}
		if got := Messages(sent(t, once, &everything)); !same(got, want) {
			t.Fatalf("a second time: %v\nwant %v", got, want)
		}
	})
}

// What is not needed is left out, and ids go with what names them alone.
func TestWhatIsNotNeededStays(t *testing.T) {
	all := []*pushmeshv1.Candidate{
		{Id: "1", Topic: "t", Features: map[string]float64{"a": 1, "b": 2}, Headers: map[string]string{"h": "x"}, Vector: []float32{1}, Payload: []byte("{}"), PublishedAt: &timestamppb.Timestamp{Seconds: 1}, Priority: 3},
		{Id: "2", Features: map[string]float64{"c": 3}},
	}
	for name, one := range map[string]struct {
		needs score.Needs
		want  *meshv1.PackedCandidates
	}{
		"nothing": {score.Needs{}, &meshv1.PackedCandidates{Count: 2, Priorities: []byte{3, 0}}},
		"a feature": {
			score.Needs{Features: true, FeatureNames: []string{"a", "z"}},
			&meshv1.PackedCandidates{Count: 2, Priorities: []byte{3, 0}, Sets: []*meshv1.NameSet{{Names: []string{"a"}}, {}}, FeatureSets: []uint32{0, 1}, Features: []float64{1}},
		},
		"no feature that there is": {score.Needs{Features: true, FeatureNames: []string{"z"}}, &meshv1.PackedCandidates{Count: 2, Priorities: []byte{3, 0}, Sets: []*meshv1.NameSet{{}}}},
		"age": {score.Needs{PublishedAt: true}, &meshv1.PackedCandidates{
			Count: 2, Priorities: []byte{3, 0}, PublishedSeconds: []int64{1, 0}, PublishedNanos: []uint32{0, noTime},
		}},
	} {
		got, err := Pack(score.Candidates(all), &one.needs)
		if err != nil || !proto.Equal(got, one.want) {
			t.Errorf("%s: %v\nwant %v (%v)", name, got, one.want, err)
		}
	}
}

// What a node would refuse is refused before it is sent, even where it would be left out.
func TestFaultsAreFoundBeforeTheyAreLeftOut(t *testing.T) {
	for name, bad := range map[string]*pushmeshv1.Candidate{
		"priority": {Priority: 10}, "feature": {Features: map[string]float64{"a": math.NaN()}}, "vector": {Vector: []float32{float32(math.Inf(1))}},
		"time": {PublishedAt: &timestamppb.Timestamp{Nanos: -1}}, "nanoseconds": {PublishedAt: &timestamppb.Timestamp{Nanos: noTime}},
	} {
		if _, err := Pack(score.Candidates([]*pushmeshv1.Candidate{{}, bad}), &score.Needs{}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One that was packed ranks as it did before.
func TestPackedOnesRankTheSame(t *testing.T) {
	requests := []*pushmeshv1.RankRequest{
		{Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"a": 2, "c": 1}, PriorityWeight: 1, Affinities: map[string]float64{"b": 1}}, Filter: `headers.a != "x"`},
		{Expression: &pushmeshv1.ExpressionScorer{Expression: "features.a + double(size(id)) + age * profile.b"}, Diversify: &pushmeshv1.Diversify{Key: "topic", AtMost: 1}},
		{Weighted: &pushmeshv1.WeightedScorer{}, Filter: "payload == null", Diversify: &pushmeshv1.Diversify{Key: "feature:b", AtMost: 1}},
	}
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(requests).Draw(t, "request")
		needs, all := score.NeedsOf(r), score.Candidates(drawn(t))
		want, got := rank(t, r, all), rank(t, r, sent(t, all, &needs))
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func rank(t *rapid.T, r *pushmeshv1.RankRequest, all []score.Candidate) []score.Place {
	spec, err := score.Compile(r, score.Parts{})
	if err != nil {
		t.Fatal(err)
	}
	j, err := spec.Job(all, []score.Profile{{Features: map[string]float64{"b": 0.5}}}, time.Unix(1e9, 0))
	for done := false; err == nil && !done; {
		done, err = j.Step(time.Second)
	}
	if err != nil {
		t.Fatal(err)
	}
	return j.Places(0)
}

// What was not packed by Pack is refused, or is something that can be packed.
func FuzzUnpack(f *testing.F) {
	for _, all := range [][]*pushmeshv1.Candidate{
		{},
		{{Id: "1", Features: map[string]float64{"a": 1}, Headers: map[string]string{"h": "x"}}, {Topic: "t", Vector: []float32{1, 2}, Payload: []byte("{}")}},
		{{Priority: 9, PublishedAt: &timestamppb.Timestamp{Seconds: 7, Nanos: 5}}, {Features: map[string]float64{"a": 1, "b": 2}}},
	} {
		p, err := Pack(score.Candidates(all), &everything)
		if err != nil {
			f.Fatal(err)
		}
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &meshv1.PackedCandidates{}
		if proto.Unmarshal(b, p) != nil {
			return
		}
		all, err := Unpack(p)
		if err != nil {
			if code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
				t.Fatal(err)
			}
			return
		}
		for i := range all {
			if all[i].Check(i) != nil {
				return
			}
		}
		want, got := Messages(all), Messages(sent(t, all, &everything))
		if !same(got, want) {
			t.Fatalf("%v\nwant %v", got, want)
		}
	})
}

// Each of these is a message that contradicts itself.
func TestContradictionsAreRefused(t *testing.T) {
	two := []*meshv1.NameSet{{Names: []string{"a", "b"}}}
	for name, bad := range map[string]*meshv1.PackedCandidates{
		"too many":               {Count: score.MaxCandidates + 1},
		"order":                  {Sets: []*meshv1.NameSet{{Names: []string{"b", "a"}}}},
		"twice":                  {Sets: []*meshv1.NameSet{{Names: []string{"a", "a"}}}},
		"sets of others":         {Count: 2, Sets: two, FeatureSets: []uint32{0}, Features: []float64{1, 2}},
		"no such set":            {Count: 1, Sets: two, FeatureSets: []uint32{1}},
		"too few features":       {Count: 1, Sets: two, FeatureSets: []uint32{0}, Features: []float64{1}},
		"too many features":      {Count: 1, Sets: two, FeatureSets: []uint32{0}, Features: []float64{1, 2, 3}},
		"features of nobody":     {Count: 1, Sets: two, Features: []float64{1, 2}},
		"too few headers":        {Count: 1, Sets: two, HeaderSets: []uint32{0}},
		"priorities":             {Count: 2, Priorities: []byte{1}},
		"times":                  {Count: 2, PublishedSeconds: []int64{1}, PublishedNanos: []uint32{1}},
		"half a time":            {Count: 1, PublishedSeconds: []int64{1}},
		"dimensions":             {Count: 2, Dimensions: []uint32{1}, Vectors: []float32{1}},
		"a vector cut off":       {Count: 1, Dimensions: []uint32{2}, Vectors: []float32{1}},
		"vectors of nobody":      {Count: 1, Dimensions: []uint32{1}, Vectors: []float32{1, 2}},
		"ids":                    {Count: 2, Ids: &meshv1.PackedTexts{Texts: []byte("a"), Lengths: []uint32{1}}},
		"an id cut off":          {Count: 1, Ids: &meshv1.PackedTexts{Texts: []byte("a"), Lengths: []uint32{2}}},
		"half a letter":          {Count: 2, Topics: &meshv1.PackedTexts{Texts: []byte("é"), Lengths: []uint32{1, 1}}},
		"payloads of nobody":     {Count: 1, Payloads: &meshv1.PackedTexts{Texts: []byte("{}")}},
		"a length that is large": {Count: 1, Payloads: &meshv1.PackedTexts{Texts: []byte("{}"), Lengths: []uint32{math.MaxUint32}}},
	} {
		if all, err := Unpack(bad); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
	if all, err := Unpack(nil); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
}

// sample is a job's candidates as edges and routers have them: 8 features, of which a scorer looks
// at four.
func sample(n int) []*pushmeshv1.Candidate {
	all := make([]*pushmeshv1.Candidate, n)
	for i := range all {
		all[i] = &pushmeshv1.Candidate{Id: "item-" + string(rune('a'+i%26)), Topic: "feed/1", Headers: map[string]string{"lang": "en"}, PublishedAt: &timestamppb.Timestamp{Seconds: int64(i)}}
		features := map[string]float64{}
		for k, name := range []string{"quality", "likes", "length", "reports", "views", "shares", "author_rank", "saves"} {
			features[name] = float64(i * k)
		}
		all[i].Features = features
	}
	return all
}

// BenchmarkShipping encodes and decodes 1,000 candidates: as messages, and packed.
func BenchmarkShipping(b *testing.B) {
	const n = 1000
	all := sample(n)
	perCandidate := func(b *testing.B) { b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/candidate") }
	b.Run("messages", func(b *testing.B) {
		r := &pushmeshv1.RankRequest{Candidates: all}
		for b.Loop() {
			data, err := proto.Marshal(r)
			if err != nil {
				b.Fatal(err)
			}
			if err := proto.Unmarshal(data, &pushmeshv1.RankRequest{}); err != nil {
				b.Fatal(err)
			}
		}
		perCandidate(b)
	})
	weighted := score.NeedsOf(&pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{
		Weights: map[string]float64{"quality": 2, "shares": 0.5, "reports": -1}, Affinities: map[string]float64{"likes": 1},
	}})
	rows := sent(b, score.Candidates(all), &everything)
	for name, one := range map[string]struct {
		needs *score.Needs
		of    func() []score.Candidate
	}{
		"packed, all of maps":    {&everything, func() []score.Candidate { return score.Candidates(all) }},
		"packed, what is needed": {&weighted, func() []score.Candidate { return score.Candidates(all) }},
		"packed, all of pairs":   {&everything, func() []score.Candidate { return rows }},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				sent(b, one.of(), one.needs)
			}
			perCandidate(b)
		})
	}
}

// BenchmarkScoring ranks 1,000 candidates by weights: those of a request, and as a node unpacks
// them.
func BenchmarkScoring(b *testing.B) {
	const n = 1000
	spec, err := score.Compile(&pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{
		Weights: map[string]float64{"quality": 2, "shares": 0.5, "reports": -1}, Affinities: map[string]float64{"likes": 1},
	}}, score.Parts{})
	if err != nil {
		b.Fatal(err)
	}
	maps := score.Candidates(sample(n))
	for name, all := range map[string][]score.Candidate{"maps": maps, "pairs": sent(b, maps, &everything)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				j, err := spec.Job(all, []score.Profile{{Features: map[string]float64{"likes": 2}, Keep: 100}}, time.Unix(1e9, 0))
				for done := false; err == nil && !done; {
					done, err = j.Step(time.Second)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/candidate")
		})
	}
}

// The messages' own fields are all packed: who adds one adds it here.
func TestEveryFieldOfACandidateIsKnown(t *testing.T) {
	var names []string
	fields := (&pushmeshv1.Candidate{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	slices.Sort(names)
	if want := []string{"features", "headers", "id", "payload", "priority", "published_at", "topic", "vector"}; !slices.Equal(names, want) {
		t.Errorf("%v, packed are %v", names, want)
	}
}
