package contexts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// grammar has the commands of contexts and one that connects.
type grammar struct {
	Flag
	Context Command  `cmd:""`
	Connect connects `cmd:""`
	Version version  `cmd:""`
}

type version struct{}

func (version) Run() error { return nil }

type connects struct{ connection }

func (c *connects) Run(stdio cmdline.IO) error {
	_, err := fmt.Fprintf(stdio.Out, "edge %v router %v token %q tls %v ca %q", c.Edge, c.Router, c.TokenFile, c.TLS, c.TLSCA)
	return err
}

// ran runs a command line and returns what it prints, to both outputs.
func ran(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	r := NewResolver()
	parser, err := kong.New(&grammar{}, append(cmdline.Mappers(), kong.Resolvers(r))...)
	if err != nil {
		t.Fatal(err)
	}
	command, err := parser.Parse(args)
	if err != nil {
		return "", err
	}
	if err := r.Err(command); err != nil {
		return "", err
	}
	command.BindTo(t.Context(), (*context.Context)(nil))
	err = command.Run(cmdline.IO{Out: &out, Err: &out})
	return out.String(), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := ran(t, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out
}

// refused runs a command line that is refused with something.
func refused(t *testing.T, says string, args ...string) {
	t.Helper()
	if out, err := ran(t, args...); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v: %v %q, want %q", args, err, out, says)
	}
}

// home is a folder for settings that has nothing in it, and returns the name of the file of
// contexts.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	for _, set := range os.Environ() {
		name, _, _ := strings.Cut(set, "=")
		if !strings.HasPrefix(name, "PUSHMESH_") {
			continue
		}
		t.Setenv(name, "") // restores it
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	at, err := path()
	if err != nil || !strings.HasPrefix(at, dir) {
		t.Fatalf("contexts are at %s, %v", at, err)
	}
	return at
}

// A flag wins over its variable, that over the context, and that over the default; a context that
// is named wins over the one in use.
func TestPrecedence(t *testing.T) {
	home(t)
	const none = `edge [127.0.0.1:7400] router [127.0.0.1:7401] token "" tls false ca ""`
	if out := must(t, "connect"); out != none {
		t.Errorf("without contexts: %s", out)
	}
	must(t, "context", "add", "prod", "--edge", "p:1,p:2", "--token-file", "/prod.jwt", "--tls")
	must(t, "context", "add", "stage", "--edge", "s:1", "--router", "s:2", "--tls-ca", "/ca.pem")
	if out := must(t, "connect"); out != none {
		t.Errorf("with contexts that are not used: %s", out)
	}
	const prod = `edge [p:1 p:2] router [127.0.0.1:7401] token "/prod.jwt" tls true ca ""`
	const stage = `edge [s:1] router [s:2] token "" tls false ca "/ca.pem"`
	must(t, "context", "use", "prod")
	for want, args := range map[string][]string{
		prod:  {"connect"},
		stage: {"connect", "--context", "stage"},
		`edge [f:1] router [127.0.0.1:7401] token "/prod.jwt" tls false ca ""`: {"connect", "--edge", "f:1", "--tls=false"},
	} {
		if out := must(t, args...); out != want {
			t.Errorf("%v: %s\nwant %s", args, out, want)
		}
	}
	t.Setenv("PUSHMESH_EDGE", "e:1")
	t.Setenv("PUSHMESH_TOKEN_FILE", "/env.jwt")
	if out := must(t, "connect", "--router", "f:2"); out != `edge [e:1] router [f:2] token "/env.jwt" tls true ca ""` {
		t.Errorf("with variables: %s", out)
	}
	if out := must(t, "connect", "--edge", "f:1"); !strings.HasPrefix(out, "edge [f:1] ") {
		t.Errorf("a flag and a variable: %s", out)
	}
	t.Setenv("PUSHMESH_CONTEXT", "stage")
	if out := must(t, "connect"); out != `edge [e:1] router [s:2] token "/env.jwt" tls false ca "/ca.pem"` {
		t.Errorf("a context by its variable: %s", out)
	}
	if out := must(t, "connect", "--context", "prod"); !strings.Contains(out, "tls true") {
		t.Errorf("a context by its flag and its variable: %s", out)
	}
	if out := must(t, "context", "use", "prod"); !strings.Contains(out, "PUSHMESH_CONTEXT is set to stage") {
		t.Errorf("use says %q", out)
	}
	// what is in the environment is in no context
	must(t, "context", "add", "small", "--router", "x:1")
	if out := must(t, "context", "show", "small"); out != "name: small\nrouter: x:1\n" {
		t.Errorf("show prints %q", out)
	}
}

func TestListUseAndRemove(t *testing.T) {
	home(t)
	must(t, "context", "add", "a", "--edge", "a:1", "--use")
	must(t, "context", "add", "b", "--router", "b:1")
	if out := must(t, "context", "list"); out != "   NAME  EDGE  ROUTER\n*  a     a:1   -\n   b     -     b:1\n" {
		t.Errorf("list prints\n%s", out)
	}
	if out := must(t, "context", "list", "--format", "json"); out != `{"name":"a","used":true,"settings":{"edge":"a:1"}}`+"\n"+`{"name":"b","used":false,"settings":{"router":"b:1"}}`+"\n" {
		t.Errorf("list prints\n%s", out)
	}
	if out := must(t, "context", "show"); out != "name: a\nedge: a:1\n" {
		t.Errorf("show prints %q", out)
	}
	refused(t, "there is a context a: --replace", "context", "add", "a", "--edge", "a:2")
	must(t, "context", "add", "a", "--tls-ca", "ca.pem", "--replace")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if out := must(t, "context", "show", "a"); out != "name: a\ntls-ca: "+filepath.Join(here, "ca.pem")+"\n" {
		t.Errorf("show prints %q: files have absolute names, and what was replaced is gone", out)
	}
	must(t, "context", "use", "b")
	if out := must(t, "connect"); !strings.Contains(out, "router [b:1]") {
		t.Errorf("%s", out)
	}
	must(t, "context", "use", "--none")
	if out := must(t, "connect"); !strings.Contains(out, "router [127.0.0.1:7401]") {
		t.Errorf("%s", out)
	}
	refused(t, "no context is used", "context", "show")
	must(t, "context", "use", "b")
	if out := must(t, "context", "remove", "b"); !strings.Contains(out, "none is now") {
		t.Errorf("remove says %q", out)
	}
	refused(t, `there is no context "b": there are a`, "context", "remove", "b")
	if out := must(t, "connect"); !strings.Contains(out, "router [127.0.0.1:7401]") {
		t.Errorf("%s", out)
	}
}

func TestUnknownNames(t *testing.T) {
	at := home(t)
	refused(t, "nor any other", "connect", "--context", "x")
	must(t, "context", "add", "prod", "--edge", "p:1")
	for _, args := range [][]string{
		{"connect", "--context", "x"},
		{"context", "use", "x"},
		{"context", "show", "x"},
		{"context", "remove", "x"},
		{"connect", "--context", "x", "--edge", "e:1", "--router", "r:1", "--token-file", "t", "--tls=false", "--tls-ca", "c", "--tls-cert", "c", "--tls-key", "k", "--tls-server-name", "n"},
	} {
		refused(t, `there is no context "x": there are prod`, args...)
	}
	refused(t, "--context has no effect here: version connects to no mesh", "version", "--context", "prod")
	t.Setenv("PUSHMESH_CONTEXT", "x")
	must(t, "context", "list")
	refused(t, `there is no context "x"`, "connect")
	for _, name := range []string{"a/b", "", ".hidden", "a b", strings.Repeat("x", 65)} {
		refused(t, "no name of a context", "context", "add", name, "--edge", "e:1")
	}
	refused(t, "is empty", "context", "add", "y")
	refused(t, "standard input", "context", "add", "y", "--token-file", "-")
	refused(t, "host:port", "context", "add", "y", "--edge", "nowhere")
	refused(t, "host:port", "context", "add", "y", "--router", "http://x:1")
	refused(t, "either the name", "context", "use")
	refused(t, "either the name", "context", "use", "--none", "prod")
	if f, err := read(at); err != nil || !slices.Equal(f.names(), []string{"prod"}) {
		t.Errorf("%v, %v", f, err)
	}
}

// A file that others may read is not used, and one that is made or changed is for its owner alone.
func TestTheFileIsForItsOwner(t *testing.T) {
	at := home(t)
	must(t, "context", "add", "prod", "--edge", "p:1", "--use")
	mode := func(path string) fs.FileMode {
		t.Helper()
		is, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return is.Mode().Perm()
	}
	if mode(at) != 0o600 || mode(filepath.Dir(at)) != 0o700 {
		t.Errorf("the file has mode %o, its folder %o", mode(at), mode(filepath.Dir(at)))
	}
	for _, open := range []fs.FileMode{0o640, 0o604, 0o602, 0o666, 0o610} {
		if err := os.Chmod(at, open); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"connect"}, {"connect", "--context", "prod"}, {"context", "add", "x", "--edge", "x:1"}, {"context", "list"}, {"context", "use", "prod"}} {
			refused(t, fmt.Sprintf("has mode %04o", open), args...)
		}
	}
	must(t, "version")
	if err := os.Chmod(at, 0o400); err != nil {
		t.Fatal(err)
	}
	must(t, "context", "add", "x", "--edge", "x:1")
	if mode(at) != 0o600 {
		t.Errorf("after a change the file has mode %o", mode(at))
	}
	left, err := os.ReadDir(filepath.Dir(at))
	if err != nil || len(left) != 1 {
		t.Errorf("%v files are left, %v", left, err)
	}
}

func TestABrokenFile(t *testing.T) {
	at := home(t)
	must(t, "context", "add", "prod", "--edge", "p:1", "--use")
	for text, says := range map[string]string{
		"current: [":                          "not a file of contexts",
		"contexts: 7\n":                       "not a file of contexts",
		"context: {}\n":                       "not a file of contexts",
		"current: a\n---\ncurrent: b\n":       "more than one document",
		"contexts: {a: {}, a: {}}\n":          "not a file of contexts",
		strings.Repeat("#", maxFile) + "\n":   "is longer than",
		"current: gone\n":                     `there is no context "gone"`,
		"current: a\ncontexts: {a: {x: y}}\n": `context a has a setting "x", which is not known: there are edge, router, router-token-file, tls,`,
	} {
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, says, "connect")
		must(t, "version")
		if out, err := ran(t, "context", "add", "new", "--edge", "n:1"); (err == nil) != (strings.Contains(says, "context a") || strings.Contains(says, "gone")) {
			t.Errorf("%q: add says %v %s", text, err, out)
		} else if kept, readErr := os.ReadFile(at); err != nil && (readErr != nil || string(kept) != text) {
			t.Errorf("%q: a file that could not be read was changed, %v", text, readErr)
		}
	}
	if err := os.WriteFile(at, []byte("current: a\ncontexts:\n  a: {tls: true, edge: 'e:1'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "connect"); !strings.Contains(out, "edge [e:1]") || !strings.Contains(out, "tls true") {
		t.Errorf("written by hand: %s", out)
	}
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "connect")
	must(t, "context", "add", "a", "--edge", "e:1")
}

// Contexts that are added at the same time are all kept.
func TestChangesAtTheSameTime(t *testing.T) {
	at := home(t)
	var all sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		all.Go(func() {
			errs[i] = change(func(f *file) error {
				f.Contexts[fmt.Sprint("c", i)] = settings{"edge": "e:1"}
				return nil
			})
		})
	}
	all.Wait()
	f, err := read(at)
	if err := errors.Join(errors.Join(errs...), err); err != nil {
		t.Fatal(err)
	}
	if len(f.Contexts) != len(errs) {
		t.Errorf("%d of %d contexts are kept", len(f.Contexts), len(errs))
	}
}

// A process without a home has no contexts, and needs none.
func TestWithoutAHome(t *testing.T) {
	home(t)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "")
	must(t, "connect")
	refused(t, "HOME", "connect", "--context", "x")
	refused(t, "HOME", "context", "list")
}
