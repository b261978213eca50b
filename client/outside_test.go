package pushmesh

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var programs = []string{"subscriber", "producer", "backend", "claim"}

func goTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A program outside the workspace builds with this module and the one it needs, and nothing else of
// the project.
func TestBuildsOutsideTheWorkspace(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod := fmt.Sprintf(`module example.org/user

go 1.26.0

require (
	github.com/pushmesh/pushmesh/client v0.0.0
	github.com/pushmesh/pushmesh/proto v0.0.0
)

replace github.com/pushmesh/pushmesh/client => %s

replace github.com/pushmesh/pushmesh/proto => %s
`, here, filepath.Join(filepath.Dir(here), "proto"))
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", mod)
	write("go.sum", read(t, "go.sum"))
	for _, p := range programs {
		write(filepath.Join(p, "main.go"), read(t, filepath.Join("examples", p, "main.go")))
	}
	// all at once: each is linked, what they share is looked at once
	goTool(t, dir, "build", "-o", filepath.Join(dir, "bin")+string(filepath.Separator), "./...")
	goTool(t, dir, "vet", "./...")
	for dep := range strings.Lines(goTool(t, dir, "list", "-deps", "./...")) {
		dep = strings.TrimSpace(dep)
		rest, ours := strings.CutPrefix(dep, "github.com/pushmesh/pushmesh/")
		if ours && rest != "client" && !strings.HasPrefix(rest, "client/") && !strings.HasPrefix(rest, "proto/") {
			t.Errorf("the client needs %s", dep)
		}
	}
}

// README and package documentation show the programs that were built, of under 30 lines each.
func TestDocsShowThePrograms(t *testing.T) {
	readme, doc := read(t, "README.md"), read(t, "doc.go")
	for _, p := range programs {
		_, text, _ := strings.Cut(read(t, filepath.Join("examples", p, "main.go")), "package main")
		text = strings.TrimSpace("package main" + text)
		if n := strings.Count(text, "\n") + 1; n >= 30 {
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
