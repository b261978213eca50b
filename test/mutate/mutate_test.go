package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const counter = "github.com/pushmesh/pushmesh/test/mutate/testdata/counter"

// tryCounter runs the command on testdata/counter and returns what it printed.
func tryCounter(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(append(append([]string{"-n", "0"}, args...), "./testdata/counter"), &out)
	t.Log(out.String())
	return out.String(), err
}

func survivors(text string) (all []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "survived ") || strings.HasPrefix(line, "not run ") {
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
	}
	return all
}

func TestWhatTestsDoNotNotice(t *testing.T) {
	t.Parallel()
	text, err := tryCounter(t)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"not run counter.go:28 Counter.Even: compare: c.n%2 == 0 → c.n%2 != 0",
		"not run counter.go:28 Counter.Even: arithmetic: c.n%2 → c.n * 2",
		"survived counter.go:22 Counter.Add: drop: c.changes++ → (nothing)",
		"survived counter.go:42 First: boundary: n > 0 → n >= 0",
	}
	if got := survivors(text); !slices.Equal(got, want) {
		t.Errorf("survivors are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// The loop that counts down never ends without its statement: that is noticed by the clock.
	if !strings.Contains(text, "by time") {
		t.Error("the table has no column of mutants that were noticed by time")
	}
}

func TestEquivalentMutantsDoNotCount(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "equivalent.txt")
	label := counter + " | counter.go | First | boundary | n > 0 | n >= 0"
	if err := os.WriteFile(list, fmt.Appendf(nil, "# a comment\n\n%s # no test has a zero\n", label), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := tryCounter(t, "-equivalent", list, "-goal", "99")
	if err == nil || !strings.Contains(err.Error(), "below 99 %") {
		t.Errorf("a missed goal: error %v", err)
	}
	if strings.Contains(text, "n >= 0") || !strings.Contains(text, "1 known as equivalent") {
		t.Error("a mutant of the list was tried")
	}
}

func TestAnEquivalentMutantNeedsAReason(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "equivalent.txt")
	if err := os.WriteFile(list, []byte("a | label\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readEquivalent(list); err == nil || !strings.Contains(err.Error(), "no reason") {
		t.Errorf("error %v", err)
	}
}

func TestASampleIsRepeatable(t *testing.T) {
	t.Parallel()
	var all []*mutant
	for i := range 100 {
		all = append(all, &mutant{id: i + 1})
	}
	a, b, c := sample(all, 10, 7), sample(all, 10, 7), sample(all, 10, 8)
	if len(a) != 10 || !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("samples of %d, %d, %d mutants", len(a), len(b), len(c))
	}
	if !slices.IsSortedFunc(a, func(x, y *mutant) int { return x.id - y.id }) {
		t.Error("a sample is not in the order of the sources")
	}
}

func TestNonsense(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"-n", "x", "p"}, {"./nowhere"}, {"./testdata/..."}} {
		if err := run(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
