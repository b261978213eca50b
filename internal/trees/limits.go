package trees

import (
	"fmt"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Limits bound what a model file may ask for. A field that is 0 has the default.
type Limits struct {
	// Bytes of the file, 64 MiB.
	Bytes int
	// Trees of the model, 50,000.
	Trees int
	// Nodes of all trees, leaves among them, 2 Mi: each takes 36 bytes.
	Nodes int
	// Columns of a row, 65,536.
	Columns int
	// Outputs, that is classes or targets, 1,024.
	Outputs int
	// Depth of a tree, 512: the most splits between its root and a leaf.
	Depth int
	// CategoryWords of 32 categories each that all categorical splits together may list, 4 Mi. A
	// tree in XGBoost's JSON, where each category is a number of its own, may list as many numbers.
	CategoryWords int
}

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		field *int
		value int
	}{
		{&l.Bytes, 64 << 20},
		{&l.Trees, 50_000},
		{&l.Nodes, 2 << 20},
		{&l.Columns, 1 << 16},
		{&l.Outputs, 1 << 10},
		{&l.Depth, 512},
		{&l.CategoryWords, 4 << 20},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return l
}

func invalid(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "model: "+fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_UNSUPPORTED, "model: "+fmt.Sprintf(format, args...))
}

// beyond is the refusal of what a limit doesn't allow.
func beyond(what string, n, most int) error {
	return invalid("%d %s, at most %d are allowed", n, what, most)
}
