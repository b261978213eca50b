// Package strictyaml reads files of YAML whose keys are known, and says of each fault in which line
// it is.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Fault is what is wrong with a file.
type Fault struct {
	Line int // 0: Err names it
	Err  error
}

// At is a fault in a line.
func At(line int, format string, args ...any) Fault { return Fault{line, fmt.Errorf(format, args...)} }

// Join has the faults of a file in the order of their lines; nil: there is none.
func Join(path string, faults []Fault) error {
	faults = slices.Clone(faults)
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	errs := make([]error, len(faults))
	for i, f := range faults {
		if f.Line == 0 {
			errs[i] = fmt.Errorf("%s: %w", path, f.Err)
			continue
		}
		errs[i] = fmt.Errorf("%s:%d: %w", path, f.Line, f.Err)
	}
	return errors.Join(errs...)
}

// Document reads the one document of a file; a nil root has nothing but comments.
func Document(data []byte) (root *yaml.Node, faults []Fault) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, []Fault{{0, err}}
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		faults = append(faults, At(1, "there must be one document"))
	}
	return document.Content[0], faults
}

// Field is a line NAME: VALUE.
type Field struct {
	Name  string
	Line  int
	Value *yaml.Node
}

// Fields are those of a map, whose names are words that are there once.
func Fields(m *yaml.Node) (all []Field, faults []Fault) {
	first := map[string]int{}
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		line, twice := first[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			faults = append(faults, At(key.Line, "a name must be a word"))
		case twice:
			faults = append(faults, At(key.Line, "%s is there twice, first in line %d", key.Value, line))
		default:
			first[key.Value] = key.Line
			all = append(all, Field{key.Value, key.Line, value})
		}
	}
	return all, faults
}

// Scalar is a value as text.
func Scalar(n *yaml.Node) (string, error) {
	switch {
	case n.Kind == yaml.AliasNode:
		return "", errors.New("it must be a value: an alias (*NAME) is not followed")
	case n.Kind != yaml.ScalarNode:
		return "", errors.New("it must be a value")
	case n.Tag == "!!null":
		return "", errors.New("it has no value: leave the line out, or write '' for an empty one")
	}
	return n.Value, nil
}

// Scalars are the values of a list.
func Scalars(n *yaml.Node) (all []string, err error) {
	if n.Kind != yaml.SequenceNode {
		return nil, errors.New("it must be a list of values, like [a, b]")
	}
	for _, one := range n.Content {
		if one.Kind != yaml.ScalarNode {
			return nil, errors.New("a list must be of values")
		}
		if one.Tag == "!!null" {
			return nil, errors.New("an item of the list has no value")
		}
		all = append(all, one.Value)
	}
	return all, nil
}

// Near is the name that is most like a word, for an error: ": did you mean NAME?", or nothing.
func Near(word string, names []string) string {
	best, least := "", 4
	for _, name := range names {
		if d := distance(word, name, least); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance is how many letters of a must change to make b, or at least most.
func distance(a, b string, most int) int {
	if len(a) > len(b)+most || len(b) > len(a)+most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
