package protoyaml

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Difference is a field that one of two maps has another value of.
type Difference struct {
	Path string
	// Before and After are the values; "": it has none.
	Before, After string
	// Removed and Added are of lists: the values that only one of them has.
	Removed, Added []string
}

// String implements fmt.Stringer: "+ durable: true", "~ retention: 24h -> 48h", say.
func (d Difference) String() string {
	var all []string
	for _, one := range d.Removed {
		all = append(all, fmt.Sprintf("- %s: %s", d.Path, line(one)))
	}
	for _, one := range d.Added {
		all = append(all, fmt.Sprintf("+ %s: %s", d.Path, line(one)))
	}
	switch {
	case all != nil:
		return strings.Join(all, "\n")
	case d.Before == "":
		return fmt.Sprintf("+ %s: %s", d.Path, d.After)
	case d.After == "":
		return fmt.Sprintf("- %s: %s", d.Path, d.Before)
	}
	return fmt.Sprintf("~ %s: %s -> %s", d.Path, d.Before, d.After)
}

// Differ compares two maps that Node has made; nil is an empty one.
func Differ(before, after *yaml.Node) (all []Difference) {
	paths, old, now := []string(nil), map[string]*yaml.Node{}, map[string]*yaml.Node{}
	flatten("", before, func(path string, n *yaml.Node) { paths, old[path] = append(paths, path), n })
	flatten("", after, func(path string, n *yaml.Node) {
		if now[path] = n; old[path] == nil {
			paths = append(paths, path)
		}
	})
	for _, path := range paths {
		a, b := old[path], now[path]
		d := Difference{Path: path, Before: show(a), After: show(b)}
		if d.Before == d.After {
			continue
		}
		if isList(a) || isList(b) {
			d.Removed, d.Added = beyond(a, b), beyond(b, a)
		}
		all = append(all, d)
	}
	return all
}

func flatten(at string, n *yaml.Node, each func(path string, n *yaml.Node)) {
	switch {
	case n == nil:
	case n.Kind != yaml.MappingNode || at != "" && len(n.Content) == 0:
		each(at, n)
	default:
		for i := 0; i < len(n.Content); i += 2 {
			path := n.Content[i].Value
			if at != "" {
				path = at + "." + path
			}
			flatten(path, n.Content[i+1], each)
		}
	}
}

func isList(n *yaml.Node) bool { return n != nil && n.Kind == yaml.SequenceNode }

// beyond are the values of a list that another one has not; a nil one is empty.
func beyond(n, other *yaml.Node) (all []string) {
	if !isList(n) {
		return nil
	}
	has := map[string]bool{}
	if isList(other) {
		for _, one := range other.Content {
			has[one.Value] = true
		}
	}
	for _, one := range n.Content {
		if !has[one.Value] {
			all = append(all, one.Value)
		}
	}
	return all
}

// show is a value in a line, "" where there is none.
func show(n *yaml.Node) string {
	switch {
	case n == nil:
		return ""
	case n.Kind == yaml.MappingNode:
		return "{}"
	case n.Kind == yaml.SequenceNode:
		all := make([]string, len(n.Content))
		for i, one := range n.Content {
			all[i] = fmt.Sprintf("%q", one.Value)
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	return line(n.Value)
}

// line is a text that stays in its line, and tells a terminal nothing.
func line(text string) string {
	if text == "" || text != strings.TrimSpace(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
