package ranking

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

func TestRanksHere(t *testing.T) {
	r, l := start(t, nil)
	profile := &exchange.Profile{Features: map[string]float64{"least": 2, "bad": math.NaN()}}
	r.Rank(&exchange.Ranking{
		Serial: 9, Policy: ranks(&pushmeshv1.RankPolicy{
			Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"price": 1}}, Filter: "features.price >= profile.least && payload != null",
		}, long),
		Messages: append(priced(t, 1, 3, 2, 5), message(t, &wirev1.Message{Payload: []byte(`{}`)}, nil),
			message(t, &wirev1.Message{Payload: []byte(`1`)}, &meshv1.MessageFeatures{Features: map[string]float64{"price": 4}}),
			message(t, &wirev1.Message{Payload: []byte(`[]`)}, &meshv1.MessageFeatures{Features: map[string]float64{"price": 6, "bad": math.Inf(1)}})),
		Members: []exchange.RankMember{{TopK: 2}, {TopK: 5, Profile: profile}, {TopK: 1, Profile: profile}, {TopK: 1, Places: []uint32{0, 4}}, {TopK: 1, Places: []uint32{}}},
	})
	got := l.ranked(t)
	best := func(p ...exchange.RankedPlace) []exchange.RankedPlace { return p }
	want := exchange.Ranked{Serial: 9, Members: []exchange.RankedMember{
		{Best: best(exchange.RankedPlace{Place: 6, Score: 6}, exchange.RankedPlace{Place: 5, Score: 4}), Filtered: []uint32{0, 1, 2, 3}},
		{Best: best(exchange.RankedPlace{Place: 6, Score: 6}, exchange.RankedPlace{Place: 5, Score: 4}), Filtered: []uint32{0, 1, 2, 3, 4}},
		{Best: best(exchange.RankedPlace{Place: 6, Score: 6}), Filtered: []uint32{0, 1, 2, 3, 4}},
		{Best: best(exchange.RankedPlace{Place: 4}), Filtered: []uint32{0}},
		{},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, want %+v", got, want)
	}
	if n := testutil.ToFloat64(r.stats.done.WithLabelValues(here)); n != 1 {
		t.Error(n)
	}
	if n := testutil.ToFloat64(r.stats.candidates); n != 7 {
		t.Error(n)
	}
}

// Nothing to rank is answered too.
func TestNothingToRank(t *testing.T) {
	r, l := start(t, nil)
	for _, one := range []*exchange.Ranking{{}, {Messages: priced(t, 1)}, {Members: everybody(2)}, {Messages: priced(t, 1), Members: []exchange.RankMember{{TopK: 1, Places: []uint32{}}}}} {
		one.Policy = ranks(byPrice(), long)
		r.Rank(one)
		if got := l.ranked(t); got.Err != nil || len(got.Members) != len(one.Members) {
			t.Errorf("%+v", got)
		}
	}
}

// Vectors of other lengths than most, or of what is no number, count as none, and nobody's ranking
// fails of them.
func TestVectorsOfOtherLengths(t *testing.T) {
	vector := func(v ...float32) *exchange.Message {
		return message(t, &wirev1.Message{}, &meshv1.MessageFeatures{Vector: v})
	}
	n := newNode(t)
	for name, c := range map[string]Compute{"here": nil, "shipped": always{client(t, n)}} {
		r, l := start(t, c)
		p := &pushmeshv1.RankPolicy{Embedding: &pushmeshv1.EmbeddingScorer{}}
		r.Rank(&exchange.Ranking{
			Policy: ranks(p, long), Messages: []*exchange.Message{vector(1, 0), vector(1), vector(2, 0), vector(), vector(float32(math.NaN()), 0), vector(9, 9, 9)},
			Members: []exchange.RankMember{
				{TopK: 1, Profile: &exchange.Profile{Vector: []float32{1, 1}}},
				{TopK: 1, Profile: &exchange.Profile{Vector: []float32{1, 1, 1}}},
				{TopK: 1, Profile: &exchange.Profile{Vector: []float32{float32(math.Inf(1)), 1}}},
				{TopK: 1},
			},
		})
		got := l.ranked(t)
		if got.Err != nil {
			t.Fatal(name, got.Err)
		}
		for i, want := range []exchange.RankedPlace{{Place: 2, Score: 2}, {}, {}, {}} {
			if b := got.Members[i].Best; len(b) != 1 || b[0] != want {
				t.Errorf("%s: member %d: %v", name, i, b)
			}
		}
		for _, messages := range [][]*exchange.Message{priced(t, 1, 2), {vector(1, 2)}} {
			// nobody has a vector that counts
			r.Rank(&exchange.Ranking{Policy: ranks(p, long), Messages: messages, Members: everybody(2)})
			if got := l.ranked(t); got.Err != nil || len(got.Members[1].Best) != len(messages) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

// decide says what it was asked, and ships or not.
type decide struct {
	always
	ship  bool
	works []time.Duration
	bytes []int
}

func (d *decide) Worthwhile(work time.Duration, bytes int) bool {
	d.works, d.bytes = append(d.works, work), append(d.bytes, bytes)
	return d.ship
}

func TestWhereARankingIsScored(t *testing.T) {
	n := newNode(t)
	d := &decide{always: always{client(t, n)}}
	r, l := start(t, d)
	model := &pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "m"}}
	for i, one := range []struct {
		policy  *pushmeshv1.RankPolicy
		ship    bool
		members int
		shipped int64
		code    wirev1.Code
	}{
		{byPrice(), false, 2, 0, wirev1.Code_CODE_OK},
		{byPrice(), true, 2, 1, wirev1.Code_CODE_OK},
		{model, false, 2, 1, wirev1.Code_CODE_UNSUPPORTED}, // the node has no models
	} {
		d.ship = one.ship
		before := n.jobs.Load()
		r.Rank(&exchange.Ranking{Policy: ranks(one.policy, long), Topic: "shop/offers", Messages: priced(t, 1, 3, 2), Members: everybody(one.members)})
		got := l.ranked(t)
		if code.Of(got.Err) != one.code || n.jobs.Load()-before != one.shipped {
			t.Errorf("%d: %+v, %d jobs", i, got, n.jobs.Load()-before)
		}
		if job := n.last.Load(); one.shipped > 0 && (job.GetRank().GetNamespace() != "shop" || job.GetCaller() != "edge" || job.GetTimeoutUs() == 0 || len(job.GetProfiles()) != 1) {
			t.Errorf("%d: %v", i, job)
		}
	}
	if w := d.works; len(w) != 3 || w[1] < 50*time.Nanosecond || w[1] > 10*time.Microsecond || d.bytes[1] < 100 || d.bytes[1] > 500 {
		t.Errorf("asked whether %v of %v bytes are worthwhile", w, d.bytes) // once at the start
	}
	alone, l := start(t, nil)
	alone.Rank(&exchange.Ranking{Policy: ranks(model, long), Messages: priced(t, 1), Members: everybody(1)})
	if got := l.ranked(t); code.Of(got.Err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Error(got)
	}
}

// random rankings are ranked alike here and by a node, in one part or several, and as each member's
// would be alone.
func TestTheSameHereAndShipped(t *testing.T) {
	n := newNode(t)
	local, atEdge := start(t, nil)
	remote, atNode := start(t, always{client(t, n)})
	random := rand.New(rand.NewPCG(1, 2))
	features := func() map[string]float64 {
		return map[string]float64{"a": float64(random.IntN(8)), "b": float64(random.IntN(8)) / 4}
	}
	for range 12 {
		p := []*pushmeshv1.RankPolicy{
			{Weighted: &pushmeshv1.WeightedScorer{Weights: features(), Affinities: features(), PriorityWeight: 1}},
			{Weighted: &pushmeshv1.WeightedScorer{Weights: features()}, Filter: "payload.n > profile.a"},
			{Expression: &pushmeshv1.ExpressionScorer{Expression: `payload.n + profile.b * features.a + double(size(headers.k) + size(id))`}, Filter: "features.a > 1", Diversify: &pushmeshv1.Diversify{Key: "feature:b", AtMost: 1}},
			{Embedding: &pushmeshv1.EmbeddingScorer{Metric: pushmeshv1.EmbeddingScorer_METRIC_COSINE}},
		}[random.IntN(4)]
		asked := &exchange.Ranking{Policy: ranks(p, long)}
		for range 1 + random.IntN(60) {
			asked.Messages = append(asked.Messages, message(t, &wirev1.Message{
				Payload: fmt.Appendf(nil, `{"n":%d}`, random.IntN(9)), Id: make([]byte, 16), Headers: map[string]string{"k": "abc"[:random.IntN(3)]}, Priority: uint32(random.IntN(10)),
			}, &meshv1.MessageFeatures{Features: features(), Vector: []float32{random.Float32(), random.Float32()}}))
		}
		profiles := []*exchange.Profile{nil}
		for range 4 {
			profiles = append(profiles, &exchange.Profile{Features: features(), Vector: []float32{random.Float32(), random.Float32()}})
		}
		for range 1 + random.IntN(3000) {
			m := exchange.RankMember{TopK: 1 + uint32(random.IntN(9)), Profile: profiles[random.IntN(5)]}
			if random.IntN(2) == 0 {
				for i := range asked.Messages {
					if random.IntN(2) == 0 {
						m.Places = append(m.Places, uint32(i))
					}
				}
			}
			asked.Members = append(asked.Members, m)
		}
		local.Rank(asked)
		remote.Rank(asked)
		a, b := atEdge.ranked(t), atNode.ranked(t)
		if a.Err != nil || b.Err != nil {
			t.Fatal(a.Err, b.Err)
		}
		for i := range asked.Members {
			if fmt.Sprint(a.Members[i]) != fmt.Sprint(b.Members[i]) {
				t.Fatalf("%v: member %d %+v: %v here, %v shipped", p, i, asked.Members[i], a.Members[i], b.Members[i])
			}
		}
		alone := &exchange.Ranking{Policy: asked.Policy, Messages: asked.Messages, Members: asked.Members[:1]}
		local.Rank(alone)
		if one := atEdge.ranked(t); fmt.Sprint(one.Members[0]) != fmt.Sprint(a.Members[0]) {
			t.Fatalf("%v alone, %v with others", one.Members[0], a.Members[0])
		}
	}
	if n.jobs.Load() < 13 {
		t.Errorf("%d jobs", n.jobs.Load())
	}
}

// A deadline holds with a node that is silent, and one that is full or gone fails rankings at once.
func TestFailures(t *testing.T) {
	n := newNode(t)
	r, l := start(t, always{client(t, n)})
	rank := func(deadline time.Duration) wirev1.Code {
		r.Rank(&exchange.Ranking{Policy: ranks(byPrice(), deadline), Messages: priced(t, 1, 3), Members: everybody(2)})
		return code.Of(l.ranked(t).Err)
	}
	n.full.Store(true)
	if c := rank(long); c != wirev1.Code_CODE_OVERLOADED {
		t.Error(c)
	}
	n.full.Store(false)
	n.mute.Store(true)
	if c := rank(20 * time.Millisecond); c != wirev1.Code_CODE_EXPIRED {
		t.Error(c)
	}
	nobody, l2 := start(t, always{clientOfNobody(t)})
	nobody.Rank(&exchange.Ranking{Policy: ranks(byPrice(), long), Messages: priced(t, 1, 3), Members: everybody(2)})
	if c := code.Of(l2.ranked(t).Err); c != wirev1.Code_CODE_UNAVAILABLE {
		t.Error(c)
	}
	infinite := &pushmeshv1.RankPolicy{Expression: &pushmeshv1.ExpressionScorer{Expression: "1.0 / features.none"}}
	here, l3 := start(t, nil)
	here.Rank(&exchange.Ranking{Policy: ranks(infinite, long), Messages: priced(t, 1), Members: everybody(1)})
	if e := l3.ranked(t); e.Err != nil || len(e.Members) != 1 || len(e.Members[0].Best) != 0 {
		// what has no score is among nobody's best
		t.Error(e)
	}
	// panics
	here.Rank(&exchange.Ranking{Policy: ranks(byPrice(), long), Messages: []*exchange.Message{nil}, Members: everybody(1)})
	if c := code.Of(l3.ranked(t).Err); c != wirev1.Code_CODE_INTERNAL {
		t.Error(c)
	}
	for _, one := range []struct {
		r    *Ranker
		want string
	}{{r, "OVERLOADED 1, EXPIRED 1"}, {nobody, "UNAVAILABLE 1"}, {here, "INTERNAL 1"}} {
		if got := failures(one.r); got != one.want {
			t.Errorf("counted %s, want %s", got, one.want)
		}
	}
}

// A ranking that is too much is refused, here where there is no node, and so is one beyond what may
// be under way.
func TestTooMuch(t *testing.T) {
	r, l := start(t, nil)
	members := everybody(1000)
	for i := range members {
		members[i].Places = []uint32{uint32(i)} // all different
	}
	r.Rank(&exchange.Ranking{Policy: ranks(byPrice(), long), Messages: priced(t, make([]float64, 10_000)...), Members: members})
	if c := code.Of(l.ranked(t).Err); c != wirev1.Code_CODE_OVERLOADED {
		t.Error(c)
	}
	n := newNode(t)
	n.mute.Store(true)
	r, l = start(t, always{client(t, n)})
	one := &exchange.Ranking{Policy: ranks(byPrice(), long), Messages: priced(t, 1), Members: everybody(1)}
	for range maxRankings {
		r.Rank(one)
	}
	r.Rank(&exchange.Ranking{Serial: 77, Policy: ranks(byPrice(), long), Messages: priced(t, 1), Members: everybody(1)})
	for range maxRankings {
		if got := l.ranked(t); got.Serial == 77 {
			if code.Of(got.Err) != wirev1.Code_CODE_OVERLOADED {
				t.Error(got.Err)
			}
			return
		}
	}
	t.Error("the one too many was not refused")
}

// Each is answered once, also where the ranker stops meanwhile, and after that.
func TestOneAnswerEach(t *testing.T) {
	n := newNode(t)
	c := client(t, n)
	for round := range 8 {
		l := &loops{events: make(chan exchange.Event, 10_000)}
		var compute Compute
		if round%2 == 1 {
			compute = always{c}
		}
		r, l := startAlone(t, compute, l)
		n.mute.Store(round%4 == 3)
		const each = 100
		var wg sync.WaitGroup
		stopped := make(chan struct{})
		for g := range 4 {
			wg.Go(func() {
				for i := range each {
					serial := uint64(g*each + i)
					if i == each/2 && g == 0 {
						close(stopped)
					}
					r.Gather(exchange.Gathering{Serial: serial, Window: time.Duration(i%3) * time.Minute})
					deadline := time.Duration(1+i%3) * time.Millisecond
					r.Rank(&exchange.Ranking{Serial: serial, Policy: ranks(byPrice(), deadline), Messages: priced(t, 1, 3, 2), Members: everybody(30)})
				}
			})
		}
		<-stopped
		stop(t, r)
		wg.Wait()
		ranked, gathered := map[uint64]int{}, map[uint64]int{}
		for range 2 * 4 * each {
			switch e := l.next(t).(type) {
			case exchange.Ranked:
				ranked[e.Serial]++
				if e.Err == nil && (len(e.Members) != 30 || e.Members[29].Best[0].Place != 1) {
					t.Errorf("%+v", e)
				}
			case exchange.Gathered:
				gathered[e.Serial]++
			}
		}
		if len(ranked) != 4*each || len(gathered) != 4*each || len(l.events) != 0 {
			t.Fatalf("%d ranked, %d gathered, %d besides", len(ranked), len(gathered), len(l.events))
		}
		nothingLeft(t, r)
	}
}

func TestWindowsEndInOrder(t *testing.T) {
	r, l := start(t, nil)
	began := time.Now()
	for serial, window := range []time.Duration{time.Hour, 60 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
		r.Gather(exchange.Gathering{Serial: uint64(serial), Window: window})
	}
	for _, want := range []uint64{2, 3, 1} {
		if g := l.next(t); g != (exchange.Gathered{Serial: want}) {
			t.Fatalf("%+v, want %d", g, want)
		}
	}
	if took := time.Since(began); took < 60*time.Millisecond {
		t.Error(took)
	}
}
