package goproxy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const root = "../../.."

// run runs the go command as somebody has it who knows nothing of this repository.
func run(t *testing.T, dir, proxy string, args ...string) string {
	t.Helper()
	upstream, err := exec.CommandContext(t.Context(), "go", "env", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GONOSUMDB=github.com/pushmesh/pushmesh",
		"GOPROXY=file://"+proxy+","+strings.TrimSpace(string(upstream)))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Who fetches the client gets it with `go get`, and builds the programs of README.md with it; of
// this project they need the client and the protocols alone.
func TestProgramsBuildWithWhatIsFetched(t *testing.T) {
	proxy, dir := t.TempDir(), t.TempDir()
	// A version that is new each time: what the cache of modules has is not read again.
	version := fmt.Sprintf("v0.0.1-test.%d", time.Now().UnixNano())
	if err := Write(root, version, proxy, time.Now()); err != nil {
		t.Fatal(err)
	}
	cache := strings.TrimSpace(run(t, dir, proxy, "env", "GOMODCACHE"))
	t.Cleanup(func() {
		kept, _ := filepath.Glob(filepath.Join(cache, "cache/download/github.com/pushmesh/pushmesh/@v", version+".*"))
		for _, path := range append(kept, filepath.Join(cache, "github.com/pushmesh/pushmesh@"+version)) {
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
		}
	})
	run(t, dir, proxy, "mod", "init", "example.org/user")
	run(t, dir, proxy, "get", "github.com/pushmesh/pushmesh/client/pushmesh@"+version)
	programs, err := filepath.Glob(filepath.Join(root, "client", "examples", "*", "main.go"))
	if err != nil || len(programs) < 4 {
		t.Fatalf("%v, %v", programs, err)
	}
	for _, p := range programs {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Base(filepath.Dir(p)))
		if err := os.Mkdir(to, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, "main.go"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// all at once: each is linked, what they share is looked at once
	run(t, dir, proxy, "build", "-o", filepath.Join(dir, "bin")+string(filepath.Separator), "./...")
	run(t, dir, proxy, "vet", "./...")
	for dep := range strings.Lines(run(t, dir, proxy, "list", "-deps", "./...")) {
		rest, ours := strings.CutPrefix(strings.TrimSpace(dep), "github.com/pushmesh/pushmesh/")
		if ours && !strings.HasPrefix(rest, "client/") && !strings.HasPrefix(rest, "proto/") {
			t.Errorf("the client needs %s", dep)
		}
	}
	if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || bytes.Contains(mod, []byte("replace")) {
		t.Errorf("%s, %v", mod, err)
	}
}

// The same files are the same bytes, and what nobody could fetch is refused.
func TestTheSameFilesAreTheSameBytes(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	var first map[string][]byte
	for range 2 {
		out, got := t.TempDir(), map[string][]byte{}
		if err := Write(root, "v1.2.3", out, at); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"list", "v1.2.3.mod", "v1.2.3.info", "v1.2.3.zip"} {
			b, err := os.ReadFile(filepath.Join(out, "github.com/pushmesh/pushmesh/@v", name))
			if err != nil || len(b) == 0 {
				t.Fatal(name, err)
			}
			if got[name] = b; first != nil && !bytes.Equal(first[name], b) {
				t.Errorf("%s is another one", name)
			}
		}
		first = got
	}
	for want, mod := range map[string]string{
		"has a replace": "module m\nreplace a => ../a\n", "which nobody can fetch": "module m\nrequire example.org/a v0.0.0\n", "malformed module path": "module m m\n",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Write(dir, "v1.2.3", t.TempDir(), at); err == nil || !strings.Contains(err.Error(), want) && want != "malformed module path" {
			t.Errorf("%q: %v", mod, err)
		}
	}
}
