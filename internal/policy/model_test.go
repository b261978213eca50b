package policy

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func TestWhoUsesAModel(t *testing.T) {
	using := func(m *pushmeshv1.ModelScorer) *pushmeshv1.Namespace {
		return &pushmeshv1.Namespace{Policy: &pushmeshv1.Policy{Rank: &pushmeshv1.RankPolicy{Model: m}}}
	}
	for what, c := range map[string]struct {
		ns      *pushmeshv1.Namespace
		version uint64
		newest  bool
		want    bool
	}{
		"no policy":                {&pushmeshv1.Namespace{}, 1, true, false},
		"another model":            {using(&pushmeshv1.ModelScorer{Name: "other", Version: 1}), 1, true, false},
		"pinned":                   {using(&pushmeshv1.ModelScorer{Name: "ctr", Version: 1}), 1, false, true},
		"another version":          {using(&pushmeshv1.ModelScorer{Name: "ctr", Version: 2}), 1, true, false},
		"rolled out":               {using(&pushmeshv1.ModelScorer{Name: "ctr", Version: 2, NextVersion: 1}), 1, false, true},
		"the newest, and it is":    {using(&pushmeshv1.ModelScorer{Name: "ctr"}), 1, true, true},
		"the newest, and it isn't": {using(&pushmeshv1.ModelScorer{Name: "ctr"}), 1, false, false},
	} {
		if got := UsesModel(c.ns, "ctr", c.version, c.newest); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
