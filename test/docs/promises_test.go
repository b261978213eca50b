package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	named = regexp.MustCompile("`([Tt]est[A-Za-z0-9]+)`")
	tests = regexp.MustCompile(`(?m)^func ([Tt]est[A-Za-z0-9]+)\(`)
)

// Every test that docs/promises.md names exists, and every row of it names one.
func TestPromisesNameTheirTests(t *testing.T) {
	exist := map[string]bool{}
	for _, path := range files(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "backendtest") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range tests.FindAllStringSubmatch(string(text), -1) {
			exist[f[1]] = true
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/promises.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| promise") {
			continue
		}
		rows++
		found := named.FindAllStringSubmatch(line, -1)
		if len(found) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, f := range found {
			if !exist[f[1]] {
				t.Errorf("there is no %s: %s", f[1], line)
			}
		}
	}
	if rows == 0 {
		t.Error("no promises")
	}
}
