package compute

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
)

// Only the CPU counts: what takes none does not end.
func TestPerSecondCountsCPU(t *testing.T) {
	began, calls := cpu(), 0
	got, err := perSecond(20*time.Millisecond, 10, func() error {
		for from := cpu(); cpu()-from < time.Millisecond; {
		}
		calls++
		return nil
	})
	ran := (cpu() - began).Seconds()
	if err != nil || got < float64(10*calls)/ran || got > 10_000 {
		t.Fatalf("%d calls in %v s: %v a second, %v", calls, ran, got, err)
	}
	fault := errors.New("fault")
	if _, err := perSecond(time.Hour, 1, func() error { return fault }); !errors.Is(err, fault) {
		t.Fatal(err)
	}
}

// The parts that need no server, for a moment each: they compare with C, and refuse to where the
// results differ.
func TestParts(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Fatal("gcc is missing: ", err)
	}
	sources, err := filepath.Abs("c")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Run: &suite.Run{Rounds: 1, Span: time.Millisecond, Dir: local.Dir(t.TempDir())}, sources: sources}
	if err := errors.Join(b.trees(t.Context()), b.scorers(t.Context())); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range b.Rows() {
		if all = append(all, r.Reference); r.Value <= 0 {
			t.Errorf("%s: %v", r.Name, r.Value)
		}
	}
	if said := strings.Join(all, "\n"); !strings.Contains(said, "gathers") && !strings.Contains(said, "interleaved") || !strings.Contains(said, "cel-go") {
		t.Errorf("nothing was compared with: %s", said)
	}
	if err := os.WriteFile(filepath.Join(string(b.Dir), "broken.c"), []byte("int main(void) { return }"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.sources = string(b.Dir)
	if programs, missing := b.compile(t.Context(), "broken", "-O1"); len(programs) != 0 || !strings.Contains(missing, "does not compile") {
		t.Errorf("%v, %q", programs, missing)
	}
}
