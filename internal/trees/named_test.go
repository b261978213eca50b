package trees

import (
	"os"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestNamesOfColumns(t *testing.T) {
	unnamed, err := os.ReadFile("testdata/libraries/xgboost-squared.model")
	if err != nil {
		t.Fatal(err)
	}
	named, err := os.ReadFile("testdata/libraries/lightgbm-binary.txt")
	if err != nil {
		t.Fatal(err)
	}
	own, err := ParseNamed(named, nil, Limits{})
	if err != nil || !own.Named() {
		t.Fatal(own, err)
	}
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for what, c := range map[string]struct {
		file  []byte
		names []string
		ok    bool
	}{
		"names for a file without":   {unnamed, names, true},
		"none for a file without":    {unnamed, nil, true},
		"the file's own":             {named, own.Columns(), true},
		"others than the file's own": {named, names, false},
		"too few":                    {unnamed, names[:7], false},
		"an empty one":               {unnamed, []string{"a", "", "c", "d", "e", "f", "g", "h"}, false},
		"one twice":                  {unnamed, []string{"a", "a", "c", "d", "e", "f", "g", "h"}, false},
		"one that is no UTF-8":       {unnamed, []string{"a", "\xff", "c", "d", "e", "f", "g", "h"}, false},
	} {
		m, err := ParseNamed(c.file, c.names, Limits{})
		if !c.ok {
			if code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if err != nil || c.names != nil && !slices.Equal(m.Columns(), c.names) {
			t.Errorf("%s: %v %v", what, m, err)
			continue
		}
		for i, name := range m.Columns() {
			if place, ok := m.Column(name); place != i || !ok {
				t.Errorf("%s: column %q is at %d, not %d", what, name, place, i)
			}
		}
	}
}

func TestSizeGrowsWithTheForest(t *testing.T) {
	size := func(file string) (bytes, nodes int) {
		data, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Parse(data, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Size(), m.Nodes()
	}
	small, few := size("libraries/lightgbm-stump.txt")
	large, many := size("leaves/lg_breast_cancer.txt")
	if few >= many || small >= large || large < 36*many || small < 36*few {
		t.Errorf("%d bytes for %d nodes, %d bytes for %d", small, few, large, many)
	}
}
