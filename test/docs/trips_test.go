package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	function = regexp.MustCompile(`(?m)^func (?:\(\w* ?\*?(\w+)(?:\[[^]]*\])?\) )?(\w+)`)
	step     = regexp.MustCompile("`([\\w/.]+)`")
)

// TestTripsNameFunctionsThatExist: the two trips of ARCHITECTURE.md can be followed by name.
func TestTripsNameFunctionsThatExist(t *testing.T) {
	raw, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, trips, _ := strings.Cut(string(raw), "## Two trips through the code")
	trips, _, _ = strings.Cut(trips, "\n## ")
	known := functions(t, "../../services", "../../internal")
	steps := step.FindAllStringSubmatch(trips, -1)
	if len(steps) < 30 {
		t.Fatalf("only %d steps are named", len(steps))
	}
	for _, m := range steps {
		parts := strings.Split(m[1][strings.LastIndex(m[1], "/")+1:], ".")
		name := parts[len(parts)-1]
		if len(parts) > 1 && known[parts[len(parts)-2]+"."+name] || known[name] {
			continue
		}
		t.Errorf("there is no %s", m[1])
	}
}

// functions by their names, methods with their type's; packages' types alone are known, too.
func functions(t *testing.T, roots ...string) map[string]bool {
	t.Helper()
	known := map[string]bool{"interest.Table": true, "Mesh.Save": true, "encode": true}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			for _, m := range function.FindAllStringSubmatch(string(src), -1) {
				if m[1] == "" {
					known[m[2]] = true
				} else {
					known[m[1]+"."+m[2]] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return known
}
