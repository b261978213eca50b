package trees

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/trees/treesgen"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func refused(t *testing.T, data []byte, limits Limits, want wirev1.Code, words string) {
	t.Helper()
	m, err := Parse(data, limits)
	if m != nil || code.From(err) == nil || code.From(err).Code != want || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, want %v with %q", err, want, words)
	}
}

const (
	bad   = wirev1.Code_CODE_INVALID_ARGUMENT
	unsup = wirev1.Code_CODE_UNSUPPORTED
)

const lightText = `tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=1
objective=regression
feature_names=a b
feature_infos=none none
tree_sizes=300

Tree=0
num_leaves=3
num_cat=0
split_feature=0 1
threshold=0.5 1.5
decision_type=2 2
left_child=1 -1
right_child=-2 -3
leaf_value=1 2 3
leaf_count=1 2 3
internal_count=6 4
shrinkage=1


end of trees
`

func TestLightGBMFaults(t *testing.T) {
	if _, err := Parse([]byte(lightText), Limits{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse([]byte(strings.ReplaceAll(lightText, "\n", "\r\n")), Limits{}); err != nil {
		t.Fatalf("with carriage returns: %v", err)
	}
	for _, c := range []struct {
		old, text string
		want      wirev1.Code
		words     string
	}{
		{"version=v4", "version=v1", unsup, "v1"},
		{"objective=regression", "objective=guess", unsup, "guess"},
		{"objective=regression", "objective=binary sigmoid:-1", bad, "sigmoid"},
		{"objective=regression", "objective=multiclass num_class:3", bad, "3"},
		{"shrinkage=1", "is_linear=1", unsup, "linear"},
		{"tree_sizes=300", "tree_sizes=300 300", bad, "2 trees"},
		{"num_tree_per_iteration=1", "num_tree_per_iteration=2", bad, "1 trees for 2"},
		{"num_tree_per_iteration=1", "num_tree_per_iteration=0", bad, "is 0"},
		{"num_tree_per_iteration=1", "num_tree_per_iteration=9999999", bad, "at most"},
		{"max_feature_idx=1", "max_feature_idx=4294967296", bad, "at most"},
		{"max_feature_idx=1", "max_feature_idx=-5", bad, "max_feature_idx"},
		{"feature_names=a b", "feature_names=a", bad, "1 feature_names"},
		{"split_feature=0 1", "split_feature=0 2", bad, "column 2 of 2"},
		{"split_feature=0 1", "split_feature=0 -1", bad, "column -1"},
		{"num_leaves=3", "num_leaves=2000000000", bad, "at most"},
		{"num_leaves=3", "num_leaves=0", bad, ""},
		{"num_leaves=3", "num_leaves=-3", bad, ""},
		{"left_child=1 -1", "left_child=0 -1", bad, "two parents"},
		{"left_child=1 -1", "left_child=1 -3", bad, "two parents"},
		{"left_child=1 -1", "left_child=7 -1", bad, "child"},
		{"left_child=1 -1", "left_child=1 -4", bad, "child"},
		{"left_child=1 -1", "left_child=-3 -1", bad, "reached from the root"},
		{"left_child=1 -1", "left_child=1", bad, "too short"},
		{"left_child=1 -1", "left_child=1 -1 -1", bad, "too long"},
		{"threshold=0.5 1.5", "threshold=nan 1.5", bad, "NaN"},
		{"threshold=0.5 1.5", "threshold=0.5 1e999", bad, "threshold"},
		{"leaf_value=1 2 3", "leaf_value=1 nan 3", bad, "NaN"},
		{"leaf_value=1 2 3", "leaf_value=1 inf 3", bad, "Inf"},
		{"leaf_value=1 2 3", "leaf_value=1 x 3", bad, "leaf_value"},
		{"decision_type=2 2", "decision_type=2 12", bad, "decision_type"},
		{"num_cat=0", "num_cat=1", bad, "cat_boundaries"},
		{"num_cat=0", "num_cat=1\ncat_boundaries=0 9\ncat_threshold=1", bad, "cat_threshold"},
		{"num_cat=0", "num_cat=2\ncat_boundaries=0 2 1\ncat_threshold=1", bad, "ascending"},
		{"num_cat=0", "num_cat=1\ncat_boundaries=0 2000000000\ncat_threshold=1", bad, "categories"},
	} {
		if !strings.Contains(lightText, c.old) {
			t.Fatalf("no %q", c.old)
		}
		refused(t, []byte(strings.Replace(lightText, c.old, c.text, 1)), Limits{}, c.want, c.words)
	}
}

func TestThresholdsMayBeInfinite(t *testing.T) {
	m, err := Parse([]byte(strings.Replace(lightText, "threshold=0.5 1.5", "threshold=inf -inf", 1)), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, 1)
	if m.Raw([]float64{math.Inf(1), 0}, out); out[0] != 3 {
		t.Errorf("%v, want 3", out)
	}
}

func TestLimits(t *testing.T) {
	data := treesgen.New(3, 31, 41, 1).LightGBM()
	for words, l := range map[string]Limits{
		"bytes": {Bytes: 100}, "trees": {Trees: 2}, "nodes": {Nodes: 150}, "max_feature_idx": {Columns: 40}, "deeper": {Depth: 3},
	} {
		refused(t, data, l, bad, words)
	}
}

// A list of splits, deeper than the limit, in each format that can say so.
func TestDeepTreesAreRefused(t *testing.T) {
	join := func(n int, f func(i int) string) string {
		words := make([]string, n)
		for i := range words {
			words[i] = f(i)
		}
		return strings.Join(words, " ")
	}
	constant := func(s string) func(int) string { return func(int) string { return s } }
	list := func(splits int) []byte {
		return []byte("tree\nversion=v4\nnum_class=1\nmax_feature_idx=0\nfeature_names=a\nTree=0\nnum_cat=0\nnum_leaves=" + strconv.Itoa(splits+1) +
			"\nsplit_feature=" + join(splits, constant("0")) + "\nthreshold=" + join(splits, strconv.Itoa) +
			"\nleft_child=" + join(splits, func(i int) string { return strconv.Itoa(-1 - i) }) +
			"\nright_child=" + join(splits, func(i int) string {
			if i+1 < splits {
				return strconv.Itoa(i + 1)
			}
			return strconv.Itoa(-1 - splits)
		}) + "\nleaf_value=" + join(splits+1, constant("1")) + "\n\nend of trees\n")
	}
	refused(t, list(513), Limits{}, bad, "deeper than 512")
	m, err := Parse(list(512), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, 2)
	m.Explain([]float64{1e9}, 0, out)
	if sum := out[0] + out[1]; math.Abs(sum-1) > 1e-6 {
		t.Errorf("contributions sum up to %v, want 1", sum)
	}
}

func TestXGBoostJSONFaults(t *testing.T) {
	good, err := os.ReadFile("testdata/libraries/xgboost-categories-partition.json")
	if err != nil {
		t.Fatal(err)
	}
	dart, err := os.ReadFile("testdata/libraries/xgboost-dart.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		data      []byte
		old, text string
		want      wirev1.Code
		words     string
	}{
		{good, `"name":"binary:logistic"`, `"name":"guess"`, unsup, "guess"},
		{good, `"name":"gbtree"`, `"name":"gblinear"`, unsup, "linear"},
		{good, `"name":"gbtree"`, `"name":"what"`, bad, "booster"},
		{good, `"num_feature":"8"`, `"num_feature":"3"`, bad, "column"},
		{good, `"num_feature":"8"`, `"num_feature":"999999999"`, bad, "size"},
		{good, `"base_score":"`, `"base_score":"x`, bad, "base_score"},
		{good, `"base_score":"5E-1"`, `"base_score":"2E0"`, bad, "base score"},
		{good, `"base_score":"5E-1"`, `"base_score":"[5E-1,5E-1]"`, bad, "2 base scores"},
		{good, `"num_trees":"6"`, `"num_trees":"5"`, bad, "6 trees"},
		{good, `"tree_info":[0,`, `"tree_info":[1,`, bad, "output 1"},
		{good, `"tree_info":[0,`, `"tree_info":[0,0,`, bad, "group"},
		{good, `"left_children":[1`, `"left_children":[0`, bad, "two parents"},
		{good, `"left_children":[1`, `"left_children":[99999`, bad, "child"},
		{good, `"left_children":[1`, `"left_children":[1,1`, bad, "length"},
		{good, `"left_children":[1`, `"left_children":[1e3`, bad, "whole"},
		{good, `"size_leaf_vector":"0"`, `"size_leaf_vector":"3"`, unsup, "vectors"},
		{good, `"categories":[`, `"categories":[16777216,`, bad, "categor"},
		{good, `"categories":[`, `"categories":[-1,`, bad, "categor"},
		{good, `"categories_sizes":[`, `"categories_sizes":[99999999,`, bad, "categories"},
		{good, `"trees":[`, `"trees":[],"trees":[`, bad, "second"},
		{good, `"learner":`, `"learner_":`, bad, "missing"},
		{good, `"attributes":`, `"attributes":` + strings.Repeat("[", 100), bad, "deep"},
		{good, `{`, `{{`, bad, ""},
		{dart, `"weight_drop":[`, `"weight_drop":[1,`, bad, "weights"},
		{dart, `"weight_drop":[`, `"weight_drop":[NaN,`, bad, "weight"},
		{dart, `"weight_drop"`, `"weight_dropped"`, bad, "weights"},
	} {
		if !bytes.Contains(c.data, []byte(c.old)) {
			t.Errorf("no %q", c.old)
		}
		refused(t, bytes.ReplaceAll(c.data, []byte(c.old), []byte(c.text)), Limits{}, c.want, c.words)
	}
	refused(t, good[:len(good)/2], Limits{}, bad, "")
	refused(t, append(bytes.Clone(good), 'x'), Limits{}, bad, "after")
	refused(t, []byte("{L\x00\x00\x00\x00\x00\x00\x00\x07learner{"), Limits{}, unsup, "UBJSON")
	refused(t, []byte("bs64 abc"), Limits{}, unsup, "base64")
	refused(t, good, Limits{CategoryWords: 1}, bad, "at most")
}

func TestXGBoostBinaryFaults(t *testing.T) {
	good, err := os.ReadFile("testdata/leaves/xgdermatology.model")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(append([]byte("binf"), good...), Limits{}); err != nil {
		t.Errorf("with a header: %v", err)
	}
	// Where things stand in this file: the learner's 136 bytes, two strings, the forest's 160, the
	// first tree's 148.
	forest := learnerParam + 8 + len("multi:softmax") + 8 + len("gbtree")
	first := forest + forestParam
	nodes := first + treeParam
	for _, c := range []struct {
		at    int
		value uint32
		want  wirev1.Code
		words string
	}{
		{0, math.Float32bits(float32(math.NaN())), bad, "base score"},
		{4, 1 << 30, bad, "columns"},
		{4, 3, bad, "column"},
		{8, 1 << 30, bad, "outputs"},
		{8, 2, bad, "output"},
		{learnerParam, 1 << 30, bad, "incomplete"},
		{learnerParam + 4, 1 << 30, bad, "incomplete"},
		{forest, 1 << 30, bad, "trees"},
		{forest, 31, bad, ""},
		{forest + 28, 4, unsup, "vectors"},
		{first, 2, unsup, "roots"},
		{first + 4, 0, bad, "no nodes"},
		{first + 4, 1 << 31, bad, ""},
		{first + 4, 1 << 20, bad, "incomplete"},
		{nodes + 4, 0, bad, "two parents"},
		{nodes + 4, 1 << 20, bad, "child"},
		{nodes + 8, 0xffffffff, bad, "child"},
		{nodes + 16, math.Float32bits(float32(math.NaN())), bad, "NaN"},
	} {
		data := bytes.Clone(good)
		binary.LittleEndian.PutUint32(data[c.at:], c.value)
		refused(t, data, Limits{}, c.want, c.words)
	}
	for n := 0; n < len(good)-200; n += 37 {
		if _, err := Parse(good[:n], Limits{}); err == nil {
			t.Fatalf("%d of %d bytes are a model", n, len(good))
		}
	}
}

// What files ask for isn't allocated before it is known to be there.
func TestHostileFilesTakeLittleMemory(t *testing.T) {
	for name, data := range map[string][]byte{
		"numbers in a line":   []byte(strings.Replace(lightText, "threshold=0.5", "threshold="+strings.Repeat("1 ", 1<<20), 1)),
		"sizes":               []byte(strings.Replace(lightText, "tree_sizes=300", "tree_sizes="+strings.Repeat("1 ", 1<<20), 1)),
		"names":               []byte(strings.Replace(lightText, "feature_names=a", "feature_names="+strings.Repeat("a ", 1<<20), 1)),
		"trees without nodes": []byte(`{"learner":{"gradient_booster":{"model":{"trees":[` + strings.Repeat("{},", 1<<20) + `{}]}}}}`),
		"groups":              []byte(`{"learner":{"gradient_booster":{"model":{"tree_info":[` + strings.Repeat("0,", 1<<20) + `0]}}}}`),
		"categories":          []byte(`{"learner":{"gradient_booster":{"model":{"trees":[{"categories":[` + strings.Repeat("0,", 5<<20) + `0]}]}}}}`),
		"one large category":  []byte(`{"learner":{"gradient_booster":{"model":{"trees":[` + strings.Repeat(manyCategories+",", 40) + manyCategories + `]}}}}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Parse(data, Limits{}); err == nil {
			t.Errorf("%s: no error", name)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
			t.Errorf("%s: %d bytes for %d", name, took, len(data))
		}
	}
}

const manyCategories = `{"left_children":[1,-1,-1],"right_children":[2,-1,-1],"split_indices":[0,0,0],"default_left":[0,0,0],"split_type":[1,0,0],` +
	`"split_conditions":[0,1,2],"categories":[16777215],"categories_nodes":[0],"categories_segments":[0],"categories_sizes":[1]}`

// What is left of a file that was cut off is not taken for a smaller model.
func TestACutFileIsRefused(t *testing.T) {
	whole, _, _ := strings.Cut(lightText, "end of trees")
	for n := range len(whole) {
		if _, err := Parse([]byte(whole[:n]), Limits{}); err == nil {
			t.Fatalf("the first %d of %d bytes are a model", n, len(lightText))
		}
	}
}
