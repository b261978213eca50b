package strictyaml

import (
	"strings"
	"testing"
)

// Every fault of a map and its values is told, with its line, in the order of the lines.
func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: [2]\nc: [x, y]\n":  "",
		"a: 1\na: 2\nb: {c: d}\n":    "f:2: a is there twice, first in line 1\nf:3: it must be a value",
		"? [x]\n: 1\n<<: {a: b}\n":   "f:1: a name must be a word\nf:3: a name must be a word",
		"x: &v 1\na: *v\n":           "f:2: it must be a value: an alias (*NAME) is not followed",
		"a:\nb: ~\n":                 "f:1: it has no value: leave the line out, or write '' for an empty one\nf:2: it has no value: leave the line out, or write '' for an empty one",
		"a: 1\n---\nb: 2\n":          "f:1: there must be one document",
		"a: 'x\n":                    "f: yaml: ",
		"c: [a, ~]\n":                "f:1: an item of the list has no value",
		"c: [[a]]\n":                 "f:1: a list must be of values",
		"# nothing but a comment\n":  "",
		"c: [a, b]\nb: {}\na: true":  "f:2: it must be a value",
		"a: 1\nc: 1\n":               "f:2: it must be a list of values, like [a, b]",
		"a: \"\"\nc: []\nb: false\n": "",
	} {
		root, faults := Document([]byte(text))
		if root != nil {
			fields, wrong := Fields(root)
			faults = append(faults, wrong...)
			for _, f := range fields {
				var err error
				if f.Name == "c" {
					_, err = Scalars(f.Value)
				} else if f.Value.Kind != 2 {
					_, err = Scalar(f.Value)
				}
				if err != nil {
					faults = append(faults, Fault{f.Line, err})
				}
			}
		}
		got := ""
		if err := Join("f", faults); err != nil {
			got = err.Error()
		}
		if same := got == want || strings.HasSuffix(want, " ") && strings.HasPrefix(got, want); !same {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestNear(t *testing.T) {
	for word, want := range map[string]string{"adrs": ": did you mean addrs?", "retentions": ": did you mean retention?", "something": ""} {
		if got := Near(word, []string{"addrs", "retention"}); got != want {
			t.Errorf("%s: %q", word, got)
		}
	}
}
