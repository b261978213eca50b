package main

import (
	"strings"
	"testing"
)

const long = "a comment that goes on for so long that no screen shows the whole of it without a line that is broken"

func TestCommentsEndBeforeTheColumn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"paragraph": {
			"package p\n\n// F is " + long + ".\n// And more.\nfunc F() {}\n",
			"package p\n\n// F is a comment that goes on for so long that no screen shows the whole of it without a line that\n// is broken. And more.\nfunc F() {}\n",
		},
		"directive": {"package p\n\n//go:generate " + long + "\n", "package p\n\n//go:generate " + long + "\n"},
		"code":      {"package p\n\n// F:\n//\n//\t" + long + "\nfunc F() {}\n", "package p\n\n// F:\n//\n//\t" + long + "\nfunc F() {}\n"},
		"beside":    {"package p\n\nvar a = 1 // " + long + "\n", "package p\n\n// a comment that goes on for so long that no screen shows the whole of it without a line that is\n// broken\nvar a = 1\n"},
		"a string":  {"package p\n\nvar a = `\n// " + long + "\n`\n", "package p\n\nvar a = `\n// " + long + "\n`\n"},
		"short":     {"package p\n\n// Two\n// lines.\nvar a = 1 // one\n", "package p\n\n// Two\n// lines.\nvar a = 1 // one\n"},
	} {
		got, err := comments("p.go", []byte(c.src))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: error %v, got\n%s\nwant\n%s", name, err, got, c.want)
		}
		again, err := comments("p.go", got)
		if err != nil || string(again) != string(got) {
			t.Errorf("%s: a second time changes it: error %v\n%s", name, err, again)
		}
	}
}

func TestOneSentenceALine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"paragraph": {"One. Two\nis long. `Three` too.\n", "One.\nTwo is long.\n`Three` too.\n"},
		"item":      {"- One. Two.\n- Three,\n  four. Five.\n", "- One.\n  Two.\n- Three, four.\n  Five.\n"},
		"short":     {"Ports, e.g. Numbers, are fine.\n", "Ports, e.g. Numbers, are fine.\n"},
		"table":     {"| a. B | c. D |\n|---|---|\n", "| a. B | c. D |\n|---|---|\n"},
		"code":      {"```\nOne. Two.\n```\n", "```\nOne. Two.\n```\n"},
		"indented":  {"So:\n\n    one. Two\n    three  | x\n\n      four\n\nEnd. Of it.\n", "So:\n\n    one. Two\n    three  | x\n\n      four\n\nEnd.\nOf it.\n"},
		"in code":   {"The flag `a. B` stays.\n", "The flag `a. B` stays.\n"},
		"heading":   {"# One. Two.\n", "# One. Two.\n"},
	} {
		if got := string(markdown([]byte(c.src))); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		} else if again := string(markdown([]byte(got))); again != got {
			t.Errorf("%s: a second time changes it:\n%s", name, again)
		}
	}
}

func TestReportsEachLine(t *testing.T) {
	t.Parallel()
	if n := report("f.md", []byte("One. Two.\nThree.\n"), []byte("One.\nTwo.\nThree.\n")); n != 1 {
		t.Errorf("%d lines are reported, 1 is wrong", n)
	}
	if n := report("f.go", []byte(strings.Repeat("a\n", 3)), []byte("a\n")); n != 1 {
		t.Errorf("%d lines are reported for a file that is only laid out otherwise", n)
	}
}
