package loop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// onLoop are the packages whose code runs on an event loop. What they call is theirs, or in
// allowed. netpoll is not among them, for it takes locks and starts goroutines: loops call it where
// there is no epoll.
var onLoop = []string{
	"admin", "claims", "delivery", "delivery/count", "delivery/counters", "delivery/lag", "delivery/native", "delivery/roster", "delivery/sendq", "delivery/state", "delivery/unacked", "delivery/wake", "departure", "frames", "gaps", "replay", "sessions", "starts", "wildcards", "groups/membership", "ranking/ranked", "presence", "members", "permissions", "principals", "request", "walk", "loop", "mailbox", "cursor", "audit/eventring", "audit/report", "sys/poll", "sys/uring", "sys/wheel", "sys/slab", "tls/record",
	"limits/admission", "limits/budget", "limits/kept", "limits/linkhealth", "limits/proxyproto",
}

// offLoop are functions of these packages that other goroutines call: before the loop runs, after
// it, or beside it.
var offLoop = []string{
	"loop.New", "loop.NewAll", "loop.open", "loop.Start", "loop.pin", "loop.Stop", "loop.Check", "loop.LastTurn", "loop.Stats",
	"loop.openPollers", "loop.newLoop", "loop.ParsePoller", "loop.Chosen",
	"poll.NewEpoll", "poll.OpenEpoll", "poll.open", "poll.Wake", "poll.newTimer", "poll.Tick", "poll.Listen",
	"poll.Bind", "poll.bind", "poll.resolve", "poll.hasIPv6", "poll.sockaddr", "poll.stream", "poll.CPUs", "poll.Pin",
	"poll.MostFiles", "admission.New", "admission.newBucket", "admission.newCounts", "admission.newRates", "admission.ParsePrefixes", "admission.parsePrefix",
	"linkhealth.ParseMode", "linkhealth.NewGate", "linkhealth.newRecent", "record.Prepare", "record.Server", "record.Handshake", "record.State", "slab.check", "slab.fits", "slab.None", "eventring.Open", "eventring.Take", "eventring.copyTo", "eventring.decode", "budget.New", "kept.NewHolders", "poll.set",
}

// forbidden is what no allow-list may grow to hold.
var forbidden = []string{
	"log.", "log/slog.", "os.Open", "os.ReadFile", "os.WriteFile", "os.Stderr", "os.Stdout", "net.", "time.Sleep", "time.After", "time.NewTimer", "regexp.",
	"encoding/json.", "compress/", "crypto/", "(*sync.", "sync.", "fmt.Print", "fmt.Fprint", "(*log/",
}

type listed struct{ ImportPath, Dir, Export string }

// TestOnlyWhatIsAllowedIsCalledOnALoop reads the code that runs on event loops, resolves every use
// of something of another package, and compares it with testdata/allowed.txt. Nothing there may
// wait, lock, log, look up, or take long.
func TestOnlyWhatIsAllowedIsCalledOnALoop(t *testing.T) {
	raw, err := os.ReadFile("testdata/allowed.txt")
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, line := range strings.Fields(string(raw)) {
		allowed[line] = true
		for _, bad := range forbidden {
			if line == bad || strings.HasPrefix(line, bad) {
				t.Errorf("%s can't be allowed on a loop", line)
			}
		}
	}
	c := newChecker(t)
	for _, name := range onLoop {
		c.walk(name)
	}
	for _, use := range slices.Sorted(maps.Keys(c.uses)) {
		if !allowed[use] {
			t.Errorf("%s is used on a loop, at %s, and testdata/allowed.txt does not have it", use, c.uses[use])
		}
	}
	for _, line := range stale(allowed, c.uses) {
		t.Errorf("%s is in testdata/allowed.txt and nothing on a loop uses it: a line that permits what nobody meant to permit", line)
	}
	for _, w := range c.waits {
		t.Error(w)
	}
}

// stale are the lines that allow what is not used.
func stale(allowed map[string]bool, uses map[string]string) (lines []string) {
	for _, line := range slices.Sorted(maps.Keys(allowed)) {
		if _, used := uses[line]; !used {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestStaleLinesAreSeen(t *testing.T) {
	got := stale(map[string]bool{"b.Gone": true, "a.Used": true, "a.Gone": true}, map[string]string{"a.Used": "x.go:1", "c.New": "x.go:2"})
	if !slices.Equal(got, []string{"a.Gone", "b.Gone"}) {
		t.Fatalf("got %v", got)
	}
}

// TestCheckerSeesWhatIsForbidden proves that the test above can fail.
func TestCheckerSeesWhatIsForbidden(t *testing.T) {
	c := newChecker(t)
	dir := t.TempDir()
	code := `package bad
import ("fmt"; "time"; "sync")
var m sync.Mutex
func turn(ch chan int) { fmt.Println(); time.Sleep(1); m.Lock(); ch <- 1; <-ch; select {}; go turn(ch) }
`
	if err := os.WriteFile(filepath.Join(dir, "bad.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	c.walkDir("bad", dir)
	for _, want := range []string{"fmt.Println", "time.Sleep", "(*sync.Mutex).Lock"} {
		if _, ok := c.uses[want]; !ok {
			t.Errorf("%s was not seen: %v", want, c.uses)
		}
	}
	if len(c.waits) != 4 {
		t.Errorf("saw %v, want a send, a receive, a select and a go statement", c.waits)
	}
}

type checker struct {
	t     *testing.T
	fset  *token.FileSet
	dirs  map[string]string
	imp   types.Importer
	uses  map[string]string // what, and where first
	waits []string
}

// newChecker asks the go command where the types of every package are.
func newChecker(t *testing.T) *checker {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export", "sync", "../...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	c := &checker{t: t, fset: token.NewFileSet(), dirs: map[string]string{}, uses: map[string]string{}}
	exports := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if base, ok := strings.CutPrefix(p.ImportPath, edgePackages); ok {
			c.dirs[base] = p.Dir
		}
	}
	c.imp = importer.ForCompiler(c.fset, "gc", func(p string) (io.ReadCloser, error) { return os.Open(exports[p]) })
	return c
}

const edgePackages = "github.com/pushmesh/pushmesh/services/edge/internal/"

func (c *checker) walk(name string) {
	dir := c.dirs[name]
	if dir == "" {
		c.t.Fatalf("there is no package %s", name)
	}
	c.walkDir(name, dir)
}

func (c *checker) walkDir(name, dir string) {
	system := build.Default
	system.BuildTags = append(system.BuildTags, "scribble")
	pkgs, err := parser.ParseDir(c.fset, dir, func(f os.FileInfo) bool { //nolint:staticcheck // build tags are looked at
		ours, err := system.MatchFile(dir, f.Name())
		return err == nil && ours && !strings.HasSuffix(f.Name(), "_test.go")
	}, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, pkg := range pkgs {
		files := slices.Collect(maps.Values(pkg.Files))
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
		if _, err := (&types.Config{Importer: c.imp}).Check(edgePackages+name, c.fset, files, info); err != nil {
			c.t.Fatal(err)
		}
		for _, f := range files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); !ok || !slices.Contains(offLoop, path.Base(name)+"."+fn.Name.Name) {
					c.decl(d, info)
				}
			}
		}
	}
}

func (c *checker) decl(d ast.Decl, info *types.Info) {
	ast.Inspect(d, func(n ast.Node) bool {
		waits := ""
		switch n := n.(type) {
		case *ast.Ident:
			c.use(n, info.Uses[n])
		case *ast.SendStmt:
			waits = "a send"
		case *ast.SelectStmt:
			waits = "a select"
		case *ast.GoStmt:
			waits = "a go statement"
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				waits = "a receive"
			}
		}
		if waits != "" {
			c.waits = append(c.waits, fmt.Sprintf("%s on a loop, at %s", waits, c.fset.Position(n.Pos())))
		}
		return true
	})
}

// use notes a function or variable of a package that is not onLoop. What generated code and the
// seam offer is plain data.
func (c *checker) use(id *ast.Ident, o types.Object) {
	if o == nil || o.Pkg() == nil {
		return
	}
	path := o.Pkg().Path()
	if rel, ok := strings.CutPrefix(path, edgePackages); ok && (rel == "bad" || rel == "exchange" || slices.Contains(onLoop, rel)) || strings.Contains(path, "/proto/gen/") {
		return
	}
	name := path + "." + o.Name()
	switch o := o.(type) {
	case *types.Func:
		name = o.Origin().FullName()
	case *types.Var:
		if o.IsField() {
			return
		}
	default:
		return
	}
	if _, ok := c.uses[name]; !ok {
		c.uses[name] = c.fset.Position(id.Pos()).String()
	}
}
