package trees

import (
	"bytes"
	"math"
	"strconv"
)

// jsonFile is an XGBoost JSON model while it is read. Its keys may stand in any order, so that
// checks across them come last.
type jsonFile struct {
	*forest
	jsonReader
	head    xgboostHead
	booster string
	names   []string
	groups  []int32
	weights []float32
	// announced is how many trees gbtree_model_param says; -1: nothing.
	announced int
	// seen: the trees were read.
	seen bool
	tree jsonTree
}

func parseXGBoostJSON(data []byte, limits Limits) (*Model, error) {
	f := &jsonFile{forest: newForest(XGBoostJSON, limits), jsonReader: jsonReader{data: data}, announced: -1}
	f.single = true
	f.head = xgboostHead{columns: -1, outputs: 1, major: 1}
	f.object(func(key string) {
		switch key {
		case "learner":
			f.object(f.learner)
		case "version":
			f.version()
		default:
			f.skip()
		}
	})
	if f.peek() != 0 || f.at < len(f.data) {
		f.jsonReader.fail("more data after the end of the model")
	}
	if f.jsonReader.err != nil {
		return nil, f.jsonReader.err
	}
	return f.check()
}

// check compares what stands in different places.
func (f *jsonFile) check() (*Model, error) {
	if !f.seen || f.head.columns < 0 || f.booster == "" {
		return nil, invalid("not an XGBoost model: trees, the booster or num_feature are missing")
	}
	if err := checkBooster(f.booster); err != nil {
		return nil, err
	}
	if err := f.apply(&f.head); err != nil {
		return nil, err
	}
	if f.announced >= 0 && f.announced != len(f.trees) || len(f.groups) != len(f.trees) {
		return nil, invalid("the file has %d trees, announces %d, and gives %d a group", len(f.trees), f.announced, len(f.groups))
	}
	for i, g := range f.groups {
		f.trees[i].output = g
	}
	if f.booster == "dart" && f.weights == nil && len(f.trees) > 0 || f.weights != nil && len(f.weights) != len(f.trees) {
		return nil, invalid("%d weights for %d trees", len(f.weights), len(f.trees))
	}
	for i, w := range f.weights {
		if err := f.weigh(i, w); err != nil {
			return nil, err
		}
	}
	if len(f.names) == 0 {
		f.names = nil
	} else if len(f.names) != f.head.columns {
		return nil, invalid("%d names of %d columns", len(f.names), f.head.columns)
	}
	return f.finish(f.head.columns, f.names)
}

func (f *jsonFile) version() {
	var parts []int64
	f.array(func() {
		if parts = append(parts, f.whole()); len(parts) > 3 {
			f.jsonReader.fail("a long version")
		}
	})
	if len(parts) >= 2 {
		f.head.major, f.head.minor = int(parts[0]), int(parts[1])
	}
}

func (f *jsonFile) learner(key string) {
	switch key {
	case "feature_names":
		f.names = f.names[:0]
		f.array(func() {
			if f.names = append(f.names, f.text()); len(f.names) > f.limits.Columns {
				f.jsonReader.err = beyond("columns", len(f.names), f.limits.Columns)
			}
		})
	case "objective":
		f.object(func(key string) {
			if key == "name" {
				f.head.objective = f.text()
			} else {
				f.skip()
			}
		})
	case "learner_model_param":
		f.object(f.param)
	case "gradient_booster":
		f.object(f.gradientBooster)
	default:
		f.skip()
	}
}

func (f *jsonFile) param(key string) {
	switch key {
	case "base_score":
		f.baseScore()
	case "num_feature":
		f.head.columns = f.size(f.limits.Columns)
	case "num_class", "num_target":
		f.head.outputs = max(f.head.outputs, f.size(f.limits.Outputs))
	default:
		f.skip()
	}
}

// baseScore is a number in quotes; since 3.1 a list of them.
func (f *jsonFile) baseScore() {
	f.head.bases = f.head.bases[:0]
	rest := bytes.Trim(f.scalar(), "[]")
	for more := true; more && f.jsonReader.err == nil; {
		var word []byte
		word, rest, more = bytes.Cut(rest, []byte(","))
		v, err := strconv.ParseFloat(string(bytes.TrimSpace(word)), 32)
		if err != nil || len(f.head.bases) >= f.limits.Outputs {
			f.jsonReader.fail("base_score is not a list of numbers, one for each output")
		}
		f.head.bases = append(f.head.bases, float32(v))
	}
}

// size reads a whole number from 0 to most.
func (f *jsonFile) size(most int) int {
	n := f.whole()
	if n < 0 || n > int64(most) {
		f.jsonReader.fail("a size beyond " + strconv.Itoa(most))
		return 0
	}
	return int(n)
}

// gradientBooster of a gbtree has the model itself, that of a dart has a gbtree and the weights.
func (f *jsonFile) gradientBooster(key string) {
	switch key {
	case "name":
		if name := f.text(); f.booster == "" || name == "dart" {
			f.booster = name
		}
	case "model":
		f.object(f.model)
	case "gbtree":
		f.object(func(key string) {
			if key == "model" {
				f.object(f.model)
			} else {
				f.skip()
			}
		})
	case "weight_drop":
		f.weightDrop()
	default:
		f.skip()
	}
}

func (f *jsonFile) model(key string) {
	switch key {
	case "gbtree_model_param":
		f.object(func(key string) {
			if key == "num_trees" {
				f.announced = f.size(math.MaxInt32)
			} else {
				f.skip()
			}
		})
	case "tree_info":
		f.groups = f.groups[:0]
		f.array(func() {
			if f.groups = append(f.groups, int32(f.size(math.MaxInt32))); len(f.groups) > f.limits.Trees {
				f.jsonReader.err = beyond("trees", len(f.groups), f.limits.Trees)
			}
		})
	case "trees":
		if f.seen {
			f.jsonReader.fail("a second list of trees")
		}
		f.seen = true
		f.array(f.readTree)
	case "weight_drop":
		f.weightDrop()
	default:
		f.skip()
	}
}

func (f *jsonFile) weightDrop() {
	f.weights = make([]float32, 0, len(f.trees))
	f.array(func() {
		if f.weights = append(f.weights, float32(f.number())); len(f.weights) > f.limits.Trees {
			f.jsonReader.err = beyond("trees", len(f.weights), f.limits.Trees)
		}
	})
}
