package trees

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// lightFile is a LightGBM text model while it is read, a line at a time.
type lightFile struct {
	*forest
	rest []byte
	// What the header says.
	version, objective string
	perIteration       int
	columns            int
	names              []string
	sizes              int
	average            bool
}

func parseLightGBM(data []byte, limits Limits) (*Model, error) {
	l := &lightFile{forest: newForest(LightGBMText, limits), rest: data, perIteration: -1, columns: -1, sizes: -1}
	l.connected = true
	if err := l.header(); err != nil {
		return nil, err
	}
	for {
		line, ok := l.line()
		if !ok {
			return nil, invalid("the file is incomplete: the line \"end of trees\" is missing")
		}
		if string(line) == "end of trees" {
			break
		}
		if bytes.HasPrefix(line, []byte("Tree=")) {
			if err := l.tree(); err != nil {
				return nil, err
			}
		} else if len(line) > 0 {
			// What follows the trees, in files without "end of trees".
			break
		}
	}
	if l.sizes >= 0 && l.sizes != len(l.trees) {
		return nil, invalid("the file announces %d trees and has %d", l.sizes, len(l.trees))
	}
	if len(l.trees)%l.outputs != 0 {
		return nil, invalid("%d trees for %d outputs", len(l.trees), l.outputs)
	}
	for i := range l.trees {
		l.trees[i].output = int32(i % l.outputs)
	}
	l.base = make([]float64, l.outputs)
	m, err := l.finish(l.columns, l.names)
	if err != nil {
		return nil, err
	}
	if l.average && len(m.trees) > 0 {
		iterations, rest := float64(len(m.trees)/m.outputs), m.transform
		m.transform = func(out []float64) {
			for i := range out {
				out[i] /= iterations
			}
			rest(out)
		}
	}
	return m, nil
}

// line is the next line without its end; false: there is none.
func (l *lightFile) line() ([]byte, bool) {
	if len(l.rest) == 0 {
		return nil, false
	}
	line, rest, _ := bytes.Cut(l.rest, []byte("\n"))
	l.rest = rest
	return bytes.TrimSuffix(line, []byte("\r")), true
}

// header reads up to the first tree.
func (l *lightFile) header() error {
	classes := -1
	for !bytes.HasPrefix(l.rest, []byte("Tree=")) {
		line, ok := l.line()
		if !ok || string(line) == "end of trees" {
			break
		}
		key, value, _ := strings.Cut(string(line), "=")
		var err error
		switch key {
		case "version":
			l.version = value
		case "num_class":
			classes, err = count(key, value, l.limits.Outputs)
		case "num_tree_per_iteration":
			l.perIteration, err = count(key, value, l.limits.Outputs)
		case "max_feature_idx":
			l.columns, err = count(key, value, l.limits.Columns-1)
			l.columns++
		case "objective":
			l.objective = value
		case "average_output":
			l.average = true
		case "feature_names":
			if n := strings.Count(value, " ") + 1; n > 2*l.limits.Columns {
				return beyond("columns", n, l.limits.Columns)
			}
			l.names = strings.Fields(value)
		case "tree_sizes":
			l.sizes = 0
			for field, rest := nextField([]byte(value)); len(field) > 0; field, rest = nextField(rest) {
				l.sizes++
			}
		}
		if err != nil {
			return err
		}
	}
	switch l.version {
	case "v2", "v3", "v4":
	default:
		return unsupported("LightGBM text of version %.20q, not v2 to v4", l.version)
	}
	if l.columns < 0 || classes < 1 {
		return invalid("no max_feature_idx or num_class")
	}
	if len(l.names) != l.columns {
		return invalid("%d feature_names for %d columns", len(l.names), l.columns)
	}
	l.outputs = l.perIteration
	if l.outputs < 0 {
		l.outputs = classes
	}
	if l.outputs == 0 {
		return invalid("num_tree_per_iteration is 0")
	}
	return l.objectiveOf()
}

// objectiveOf sets the transformation. A model with a custom objective has none, and is not
// transformed.
func (l *lightFile) objectiveOf() error {
	l.Model.objective = l.objective
	l.transform = identity
	words := strings.Fields(l.objective)
	if len(words) == 0 {
		return nil
	}
	slope := 1.0
	for _, w := range words[1:] {
		if value, ok := strings.CutPrefix(w, "sigmoid:"); ok {
			s, err := strconv.ParseFloat(value, 64)
			if err != nil || !(s > 0) || math.IsInf(s, 0) {
				return invalid("objective %.40q", l.objective)
			}
			slope = s
		}
		if value, ok := strings.CutPrefix(w, "num_class:"); ok && value != strconv.Itoa(l.outputs) {
			return invalid("objective %.40q with %d trees in an iteration", l.objective, l.outputs)
		}
	}
	switch words[0] {
	case "regression", "regression_l2", "regression_l1", "quantile", "mape":
		if len(words) > 1 && words[1] == "sqrt" {
			l.transform = each(signedSquare)
		}
	case "huber", "fair", "lambdarank", "rank_xendcg", "custom", "none":
	case "poisson", "gamma", "tweedie":
		l.transform = each(math.Exp)
	case "binary", "multiclassova":
		l.transform = sigmoid(slope)
	case "cross_entropy", "xentropy":
		l.transform = sigmoid(1)
	case "cross_entropy_lambda", "xentlambda":
		l.transform = each(log1pExp)
	case "multiclass":
		l.transform = softmax
	default:
		return unsupported("objective %.40q", l.objective)
	}
	return nil
}

// count reads a whole number from 0 to most.
func count(key, value string, most int) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil || n < 0 {
		return 0, invalid("%s is %.20q", key, value)
	}
	if n > most {
		return 0, beyond(key, n, most)
	}
	return n, nil
}
