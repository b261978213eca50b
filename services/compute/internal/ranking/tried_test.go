package ranking

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// steady is a roll-out of half of the calls that no standstill of this machine freezes.
func steady() *pushmeshv1.ModelScorer {
	m := halved()
	m.MaxSlowdown = 1000
	return m
}

// Each version has its share of the calls, and the answer says which one it is of.
func TestAShareOfTheCalls(t *testing.T) {
	models := newLibrary()
	models.set(t, 1, lightGBM("regression", 1, 1))
	models.set(t, 2, lightGBM("regression", 1, 2))
	n := startNode(t, models)
	m := steady()
	m.NextShare = 0.3
	by := map[uint64]int{}
	for range 100 {
		resp, err := n.rank(t, "news", m, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := float64(resp.GetModelVersion()); resp.GetRanked()[0].GetScore() != want {
			t.Errorf("version %v scores %v", want, resp.GetRanked()[0].GetScore())
		}
		by[resp.GetModelVersion()]++
	}
	if by[1] != 70 || by[2] != 30 || n.answered("pinned") != 70 || n.answered("next") != 30 || n.frozen(t) != 0 {
		t.Errorf("%v; counted %d and %d", by, n.answered("pinned"), n.answered("next"))
	}
	// A call without a namespace names a version, and no roll-out says otherwise.
	m.NextShare = 1
	if resp, err := n.rank(t, "", m, nil); err != nil || resp.GetModelVersion() != 1 {
		t.Error(resp, err)
	}
	if resp, err := n.rank(t, "news", m, nil); err != nil || resp.GetModelVersion() != 2 {
		t.Error(resp, err)
	}
}

// Whatever fails in the new version, its caller gets the pinned version's answer, and the roll-out
// freezes.
func TestANextVersionThatFails(t *testing.T) {
	for _, c := range []struct {
		what string
		make func(t *testing.T, l *library)
		job  func(*meshv1.RankJobRequest)
		says string
	}{
		{"removed", func(*testing.T, *library) {}, nil, "there is no version 2"},
		{"not to be parsed", func(_ *testing.T, l *library) { l.wrong[2] = code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "a bad file") }, nil, "a bad file"},
		{"too large", func(_ *testing.T, l *library) { l.wrong[2] = code.New(wirev1.Code_CODE_MEMORY_BUDGET, "too large") }, nil, "too large"},
		{"a score that is not finite", func(t *testing.T, l *library) { l.set(t, 2, lightGBM("poisson", 1, 1000)) }, nil, "its score is not finite"},
		{"too much work", func(t *testing.T, l *library) { l.set(t, 2, lightGBM("regression", 20_000, 1)) }, func(job *meshv1.RankJobRequest) {
			for len(job.GetRank().GetCandidates()) < 3_000 {
				job.Rank.Candidates = append(job.Rank.Candidates, job.GetRank().GetCandidates()...)
			}
		}, "too much work"},
	} {
		t.Run(c.what, func(t *testing.T) {
			models := newLibrary()
			models.set(t, 1, lightGBM("regression", 1, 1))
			c.make(t, models)
			n := startNode(t, models)
			m := steady()
			for i := range 3 * leastCalls {
				if resp, err := n.rank(t, "news", m, c.job); err != nil || resp.GetModelVersion() != 1 || resp.GetRanked()[0].GetScore() != 1 {
					t.Fatal(i, resp, err)
				}
			}
			if log := n.log.String(); n.frozen(t) != 1 || strings.Count(log, "roll-out frozen") != 1 || !strings.Contains(log, c.says) {
				t.Errorf("%d frozen; the log says %q", n.frozen(t), log)
			}
			if got := testutil.ToFloat64(n.rollouts.errs); got != leastCalls || n.answered("next") != 0 || n.answered("pinned") != 3*leastCalls {
				t.Errorf("%v errors, %d calls answered by the pinned version, %d by the next", got, n.answered("pinned"), n.answered("next"))
			}
			// Mended, and put anew.
			models.set(t, 3, lightGBM("regression", 1, 3))
			m.NextVersion, m.NextShare = 3, 1
			if resp, err := n.rank(t, "news", m, nil); err != nil || resp.GetModelVersion() != 3 {
				t.Errorf("another policy: %v, %v", resp, err)
			}
		})
	}
}

func TestANextVersionThatPanics(t *testing.T) {
	models := newLibrary()
	for v := range uint64(2) {
		models.set(t, v+1, lightGBM("regression", 1, 1))
	}
	n := startNode(t, models)
	m := steady()
	m.NextShare = 1
	req := &meshv1.RankJobRequest{Rank: &pushmeshv1.RankRequest{Model: m, Candidates: []*pushmeshv1.Candidate{{}}}}
	w, err := newWork(req, n.rollouts.choose("news", m), score.Parts{Models: models})
	if err != nil || w.model != 2 {
		t.Fatal(w, err)
	}
	w.job = nil // a step panics
	times, err := n.pool.Do(t.Context(), "", w.cost, w)
	if err != nil || w.model != 1 || len(w.job.Places(0)) != 1 {
		t.Fatal(w, times, err)
	}
	if got := testutil.ToFloat64(n.rollouts.errs); got != 1 || !strings.Contains(n.log.String(), "a job panicked") {
		t.Errorf("%v errors; the log says %q", got, n.log.String())
	}
	w.lost(errors.New("once more"))
	if got := testutil.ToFloat64(n.rollouts.errs); got != 1 {
		t.Errorf("a call failed %v times", got)
	}
}

// While the new version is being loaded the pinned one answers, and that is no error.
func TestANextVersionThatIsBeingLoaded(t *testing.T) {
	models := newLibrary()
	models.set(t, 1, lightGBM("regression", 1, 1))
	models.wrong[2] = loading
	n := startNode(t, models)
	for range 10 * leastCalls {
		if resp, err := n.rank(t, "news", steady(), nil); err != nil || resp.GetModelVersion() != 1 {
			t.Fatal(resp, err)
		}
	}
	models.set(t, 2, lightGBM("regression", 1, 2))
	by := map[uint64]int{}
	for range 10 {
		resp, err := n.rank(t, "news", steady(), nil)
		if err != nil {
			t.Fatal(err)
		}
		by[resp.GetModelVersion()]++
	}
	if by[1] != 5 || by[2] != 5 || n.frozen(t) != 0 {
		t.Errorf("%v once it is loaded, %d frozen", by, n.frozen(t))
	}
}

// What a caller does wrong, and how little time it gives, says nothing of a version.
func TestCallersDoNotFreeze(t *testing.T) {
	models := newLibrary()
	models.set(t, 1, lightGBM("regression", 1, 1))
	models.set(t, 2, lightGBM("regression", 1, 2))
	n := startNode(t, models)
	for _, c := range []struct {
		change func(*meshv1.RankJobRequest)
		want   wirev1.Code
	}{
		{func(job *meshv1.RankJobRequest) { job.Rank.Candidates[3].Features["a"] = math.Inf(1) }, wirev1.Code_CODE_INVALID_ARGUMENT},
		{func(job *meshv1.RankJobRequest) { job.Rank.Filter = "features." }, wirev1.Code_CODE_INVALID_ARGUMENT},
		{func(job *meshv1.RankJobRequest) { job.Rank.Model.Output = 7 }, wirev1.Code_CODE_INVALID_ARGUMENT},
		{func(job *meshv1.RankJobRequest) { job.Rank.Profile = map[string]float64{"x": math.NaN()} }, wirev1.Code_CODE_INVALID_ARGUMENT},
		{func(job *meshv1.RankJobRequest) { job.TimeoutUs = 1 }, wirev1.Code_CODE_EXPIRED},
	} {
		for range 4 * leastCalls {
			// A quick worker may be done within a microsecond that has not begun to be over.
			if _, err := n.rank(t, "news", steady(), c.change); code.Of(err) != c.want && (err != nil || c.want != wirev1.Code_CODE_EXPIRED) {
				t.Fatal(err, c.want)
			}
		}
	}
	if n.frozen(t) != 0 || testutil.ToFloat64(n.rollouts.errs) != 0 {
		t.Error("frozen", n.log.String())
	}
}

// A pinned version that is gone leaves the new one to stand alone.
func TestAPinnedVersionThatIsGone(t *testing.T) {
	models := newLibrary()
	models.set(t, 2, lightGBM("regression", 1, 2))
	n := startNode(t, models)
	answers := map[wirev1.Code]int{}
	for range 10 {
		_, err := n.rank(t, "news", steady(), nil)
		answers[code.Of(err)]++
	}
	if answers[wirev1.Code_CODE_OK] != 5 || answers[wirev1.Code_CODE_NOT_FOUND] != 5 {
		t.Error(answers)
	}
}

func TestANextVersionThatIsSlow(t *testing.T) {
	models := newLibrary()
	models.set(t, 1, lightGBM("regression", 1, 1))
	models.set(t, 2, lightGBM("regression", 20_000, 1))
	n := startNode(t, models)
	deadline := time.Now().Add(patience)
	for calls := 0; n.frozen(t) == 0; calls++ {
		if time.Now().After(deadline) {
			t.Fatalf("not frozen after %d calls", calls)
		}
		// Also where the new version never comes to an end within a caller's time.
		_, err := n.rank(t, "news", halved(), func(job *meshv1.RankJobRequest) {
			for len(job.GetRank().GetCandidates()) < 400 {
				job.Rank.Candidates = append(job.Rank.Candidates, job.GetRank().GetCandidates()...)
			}
			job.TimeoutUs = 8_000
		})
		if err != nil && code.Of(err) != wirev1.Code_CODE_EXPIRED {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	// What is frozen is told a little later than it is counted.
	for !strings.Contains(n.log.String(), "s for a candidate, version 1 takes") {
		if time.Now().After(deadline.Add(patience)) {
			t.Fatalf("the log says %q", n.log.String())
		}
		<-tick.C
	}
	for range 10 {
		if resp, err := n.rank(t, "news", halved(), nil); err != nil || resp.GetModelVersion() != 1 {
			t.Fatal(resp, err)
		}
	}
}
