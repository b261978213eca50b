package pushmesh

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var programs = []string{"subscriber", "producer", "backend", "claim"}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// README and package documentation show the programs that were built, of 30 lines each at most.
func TestDocsShowThePrograms(t *testing.T) {
	readme, doc := read(t, "../README.md"), read(t, "doc.go")+read(t, "../claim/doc.go")
	for _, p := range programs {
		_, text, _ := strings.Cut(read(t, filepath.Join("..", "examples", p, "main.go")), "package main")
		text = strings.TrimSpace("package main" + text)
		if n := strings.Count(text, "\n") + 1; n > 30 {
			t.Errorf("%s has %d lines", p, n)
		}
		if !strings.Contains(readme, text) {
			t.Errorf("README.md shows another %s", p)
		}
		var comment strings.Builder
		for line := range strings.Lines(text + "\n") {
			if line == "\n" {
				comment.WriteString("//\n")
			} else {
				comment.WriteString("//\t" + line)
			}
		}
		if !strings.Contains(doc, comment.String()) {
			t.Errorf("doc.go shows another %s", p)
		}
	}
}
