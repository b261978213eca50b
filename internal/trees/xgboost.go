package trees

import (
	"math"
	"strings"
)

// xgboostLink is how an objective's scores become predictions, and how a base score, which files
// give as a prediction, becomes a raw one.
type xgboostLink struct {
	transform transformation
	margin    func(float32) float32
}

func same(x float32) float32 { return x }

func logit(x float32) float32 { return -log32(1/x - 1) }

func log32(x float32) float32 { return float32(math.Log(float64(x))) }

// linkOf an objective by its name. Those that aren't listed transform in ways of their own, or are
// not known.
func linkOf(objective string) (xgboostLink, error) {
	switch objective {
	case "reg:squarederror", "reg:linear", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror", "reg:quantileerror",
		"rank:pairwise", "rank:ndcg", "rank:map":
		return xgboostLink{identity, same}, nil
	case "binary:logistic", "reg:logistic":
		return xgboostLink{each(sigmoid32), logit}, nil
	case "binary:logitraw":
		return xgboostLink{identity, same}, nil
	case "binary:hinge":
		return xgboostLink{each(hinge), same}, nil
	case "multi:softmax", "multi:softprob":
		return xgboostLink{softmax32, same}, nil
	case "count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft":
		return xgboostLink{each(exp32), log32}, nil
	}
	return xgboostLink{}, unsupported("objective %.40q", objective)
}

// xgboostHead is what the formats of XGBoost say of the model as a whole.
type xgboostHead struct {
	objective string
	columns   int
	outputs   int
	// bases are as the file has them: one for all outputs, or one each. margin: they are raw scores
	// already.
	bases  []float32
	margin bool
	major  int
	minor  int
}

// apply gives the forest its outputs, objective and base.
func (f *forest) apply(h *xgboostHead) error {
	if h.outputs > f.limits.Outputs {
		return beyond("outputs", h.outputs, f.limits.Outputs)
	}
	f.outputs = max(1, h.outputs)
	link, err := linkOf(h.objective)
	if err != nil {
		return err
	}
	if h.objective == "binary:logitraw" && h.major == 1 && h.minor < 4 {
		// Until then the base score was a probability here, too.
		link.margin = logit
	}
	f.objective, f.transform = h.objective, link.transform
	if len(h.bases) != 1 && len(h.bases) != f.outputs {
		return invalid("%d base scores for %d outputs", len(h.bases), f.outputs)
	}
	f.base = make([]float64, f.outputs)
	for i := range f.base {
		b := h.bases[i%len(h.bases)]
		if !h.margin {
			b = link.margin(b)
		}
		if f.base[i] = float64(b); math.IsNaN(f.base[i]) || math.IsInf(f.base[i], 0) {
			return invalid("a base score is %v", h.bases[i%len(h.bases)])
		}
	}
	return nil
}

// weigh multiplies the leaves of tree i by its weight in a DART.
func (f *forest) weigh(i int, weight float32) error {
	if w := float64(weight); math.IsNaN(w) || math.IsInf(w, 0) {
		return invalid("tree %d has the weight %v", i, weight)
	}
	t := &f.trees[i]
	for j := t.at; j < t.at+t.size; j++ {
		v := float64(float32(f.values[j]) * weight)
		if math.IsInf(v, 0) {
			return invalid("tree %d: a leaf is %v", i, v)
		}
		f.values[j] = v
	}
	t.expected *= float64(weight)
	return nil
}

// checkBooster refuses boosters that aren't made of trees.
func checkBooster(name string) error {
	if name == "gbtree" || name == "dart" {
		return nil
	}
	if name == "gblinear" {
		return unsupported("the linear booster")
	}
	return invalid("booster %.20q", strings.ToValidUTF8(name, "?"))
}
