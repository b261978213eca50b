package loop_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// walkers are functions of the standard library that walk what they are given.
var walkers = []string{
	"slices.Contains", "slices.ContainsFunc", "slices.Index", "slices.IndexFunc", "slices.Delete", "slices.DeleteFunc", "slices.Insert", "slices.Replace",
	"slices.Sort", "slices.Clone", "maps.Clone", "maps.Copy", "maps.DeleteFunc",
}

// TestEveryWalkOnALoopHasItsBound finds every function of what an event loop decides with that goes
// over something, and compares with testdata/walks.txt, which says of each what keeps it short:
// nothing that grows with subscribers, subscriptions or backlog is done in one go. Whoever adds a
// loop says so there.
func TestEveryWalkOnALoopHasItsBound(t *testing.T) {
	raw, err := os.ReadFile("testdata/walks.txt")
	if err != nil {
		t.Fatal(err)
	}
	bounds := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, bound, _ := strings.Cut(line, ": ")
		kind, _, _ := strings.Cut(bound, ",")
		if !slices.Contains([]string{"slice", "counted", "limit", "few", "once"}, kind) {
			t.Errorf("%s: %q is no bound", name, bound)
		}
		bounds[name] = bound
	}
	found := map[string]bool{}
	for _, name := range []string{"admin", "claims", "cursor", "delivery", "delivery/count", "delivery/counters", "delivery/lag", "delivery/native", "delivery/roster", "delivery/sendq", "delivery/state", "delivery/unacked", "delivery/wake", "audit/report", "departure", "frames", "gaps", "replay", "sessions", "starts", "wildcards", "groups/membership", "ranking/ranked", "presence", "members", "permissions", "principals", "request", "walk", "limits/admission", "limits/kept", "limits/linkhealth", "limits/proxyproto", "sys/wheel"} {
		for _, fn := range walksIn(t, path.Base(name), filepath.Join("..", name)) {
			found[fn] = true
		}
	}
	for _, fn := range slices.Sorted(maps.Keys(found)) {
		if bounds[fn] == "" {
			t.Errorf("%s walks, and testdata/walks.txt does not say what keeps it short", fn)
		}
	}
	for _, fn := range slices.Sorted(maps.Keys(bounds)) {
		if !found[fn] {
			t.Errorf("testdata/walks.txt has %s, which does not walk", fn)
		}
	}
}

func TestWalksAreSeen(t *testing.T) {
	dir := t.TempDir()
	code := `package bad
import "slices"
type hub struct{}
func (h *hub) forever() { for {} }
func over(all []int) { for range all {} }
func inside(all []int) { func() { _ = slices.Contains(all, 1) }() }
func short(all []int) int { return all[0] }
`
	if err := os.WriteFile(filepath.Join(dir, "bad.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := walksIn(t, "bad", dir), []string{"bad.hub.forever", "bad.inside", "bad.over"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// walksIn are the functions of a package that go over something, and are called on a loop.
func walksIn(t *testing.T, name, dir string) (walks []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %d files", dir, err, len(files))
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Body != nil && !slices.Contains(offLoop, name+"."+fn.Name.Name) && goesOver(fn.Body) {
				walks = append(walks, name+"."+receiver(fn)+fn.Name.Name)
			}
		}
	}
	slices.Sort(walks)
	return slices.Compact(walks)
}

func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	at := fn.Recv.List[0].Type
	for {
		switch e := at.(type) {
		case *ast.StarExpr:
			at = e.X
		case *ast.IndexExpr:
			at = e.X
		case *ast.IndexListExpr:
			at = e.X
		case *ast.Ident:
			return e.Name + "."
		default:
			return "?."
		}
	}
}

func goesOver(body ast.Node) (walks bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			walks = true
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && slices.Contains(walkers, pkg.Name+"."+n.Sel.Name) {
				walks = true
			}
		}
		return !walks
	})
	return walks
}
