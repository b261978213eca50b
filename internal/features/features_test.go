package features_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/features"
)

func TestCheck(t *testing.T) {
	many := map[string]float64{}
	for i := range features.Most {
		many[fmt.Sprint(i)] = float64(i)
	}
	long := strings.Repeat("x", features.LongestName)
	vector := make([]float32, 8)
	for _, good := range []map[string]float64{nil, many, {long: -1}, {"é": math.MaxFloat64}} {
		if err := features.Check(good, vector, len(vector)); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
	tooMany := map[string]float64{"one more": 1}
	for name, v := range many {
		tooMany[name] = v
	}
	for want, c := range map[string]struct {
		features map[string]float64
		vector   []float32
	}{
		"65 features, at most 64":          {features: tooMany},
		`feature "": a name`:               {features: map[string]float64{"": 1}},
		"xx\": a name":                     {features: map[string]float64{long + "x": 1}},
		`feature "\xff": a name`:           {features: map[string]float64{"\xff": 1}},
		`feature "a" is NaN`:               {features: map[string]float64{"a": math.NaN()}},
		`feature "a" is -Inf`:              {features: map[string]float64{"a": math.Inf(-1)}},
		"9 dimensions, at most 8":          {vector: make([]float32, 9)},
		"vector has +Inf at 1, it must be": {vector: []float32{0, float32(math.Inf(1))}},
		"vector has NaN at 0, it must be":  {vector: []float32{float32(math.NaN())}},
	} {
		if err := features.Check(c.features, c.vector, len(vector)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
