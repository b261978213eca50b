package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/meshfile/meshfiletest"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	tier "github.com/pushmesh/pushmesh/services/router"
	"github.com/pushmesh/pushmesh/services/store"
)

const unchanged = "nothing to change\n"

// A file is applied, and applied again, shown, changed, and what it no longer has is pruned; a file
// with a fault changes nothing.
func TestApply(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	dir := t.TempDir()
	path, keys, dir2 := filepath.Join(dir, "mesh.yaml"), filepath.Join(dir, "backends.yaml"), filepath.Join(dir, "keys")
	model, err := os.ReadFile(libraryModel("lightgbm-stump.txt"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("model.txt", string(model))
	if err := os.Mkdir(dir2, 0o700); err != nil {
		t.Fatal(err)
	}
	apply := func(code int, args ...string) string {
		t.Helper()
		c := ran(t, "", with(m.router, append([]string{"apply", "-f", path, "--backends", keys}, args...)...)...)
		if c.code != code {
			t.Fatalf("%v: exit code %d, want %d: %s%s", args, c.code, code, c.out.String(), c.err.String())
		}
		return c.out.String() + c.err.String()
	}
	text := `models:
  clicks: {file: model.txt}
namespaces:
  orders: {durable: true, retention: 7d}
  news: {rank: {model: {name: clicks}}}
teams:
  editors: {subscribe: [doc/#], members: [ann, bob]}
backends:
  shop: {roles: ['publisher:orders/#'], key: true}
`
	put("mesh.yaml", text)
	plan := "+ model clicks\n    + version: a new one of 3328 bytes, from model.txt\n+ namespace orders\n    + durable: true\n    + retention: 168h\n"
	if out := apply(0, "--dry-run"); !strings.HasPrefix(out, plan) || !strings.HasSuffix(out, "5 to add, 0 to change, 0 to delete\n") {
		t.Errorf("dry run: %s", out)
	}
	apply(2, "--dry-run", "--exit-code")
	if out := apply(0, "--keys-dir", dir2); !strings.HasPrefix(out, plan) || !strings.Contains(out, "team editors: members added: 2\n") || strings.Contains(out, "pmk_") {
		t.Errorf("apply: %s", out)
	}
	info, err := os.Stat(filepath.Join(dir2, "shop.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	key, err := os.ReadFile(filepath.Join(dir2, "shop.key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backends.ReadKey(strings.TrimSpace(string(key))); err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{nil, {"--dry-run", "--exit-code"}, {"--prune", "namespaces,teams,models,backends"}} {
		if out := apply(0, args...); out != unchanged {
			t.Errorf("again with %v: %s", args, out)
		}
	}
	if out := must(t, "", with(m.router, "namespace", "get", "orders", "--format", "json")...); !strings.Contains(out, `"retention":"168h0m0s"`) {
		t.Error(out)
	}

	put("mesh.yaml", text+"  bad: {roles: [king]}\ngroups: {}\n")
	if out := apply(1); !strings.Contains(out, "mesh.yaml:10: backends.bad: role") || !strings.Contains(out, `mesh.yaml:11: there is no section "groups"`) {
		t.Errorf("a file with faults: %s", out)
	}
	changed := strings.NewReplacer("7d", "8d", "bob", "carl", "publisher", "consumer").Replace(text)
	put("mesh.yaml", strings.Replace(changed, "file: model.txt", "file: none.txt", 1))
	if out := apply(1); !strings.Contains(out, "mesh.yaml:2: models.clicks: open") {
		t.Errorf("a model that is not there: %s", out)
	}
	put("mesh.yaml", changed)
	if out := apply(0); !strings.Contains(out, "~ retention: 168h -> 192h") || !strings.Contains(out, "- members: bob") || strings.Contains(out, "pmk_") {
		t.Errorf("changed: %s", out)
	}
	if out := must(t, "", with(m.router, "team", "members", "--team", "editors")...); strings.Contains(out, "bob") || !strings.Contains(out, "carl") {
		t.Error(out)
	}

	// what the file does not name stays, until it is pruned
	put("mesh.yaml", "models: {}\nnamespaces: {}\nteams: {}\nbackends: {}\n")
	if out := apply(0); out != unchanged {
		t.Errorf("an empty file: %s", out)
	}
	if out := apply(1, "--prune", "namespaces,models"); !strings.Contains(out, "nothing is done: this must be confirmed with --yes:\n  model clicks is deleted") {
		t.Errorf("prune without an answer: %s", out)
	}
	if out := must(t, "", with(m.router, "namespace", "list")...); !strings.Contains(out, "orders") {
		t.Error(out)
	}
	if out := apply(0, "--yes", "--prune", "namespaces,models,teams,backends"); !strings.HasSuffix(out, "backend shop is taken out\nteam editors is deleted\nnamespace news is deleted\nnamespace orders is deleted\nmodel clicks@1 is deleted\n") {
		t.Errorf("prune: %s", out)
	}
	if out := must(t, "", with(m.router, "namespace", "list")...); strings.Contains(out, "orders") || !strings.Contains(out, "room") {
		t.Error(out)
	}
	put("mesh.yaml", "teams: {}\n")
	if out := apply(1, "--prune", "namespaces"); !strings.Contains(out, "there is no section namespaces") {
		t.Errorf("prune of what the file does not have: %s", out)
	}
}

// What is written wrong is said before anything is connected.
func TestApplyUsage(t *testing.T) {
	t.Parallel()
	file := write(t, "mesh.yaml", "teams: {a: {}}\n")
	owned := write(t, "backends.yaml", "backends: {a: {roles: [auditor], key: true}, 'x/y': {roles: [auditor], key: true}}\n")
	taken := filepath.Join(t.TempDir(), "a.key")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(filepath.Dir(taken), "backends.yaml")
	for _, c := range []struct {
		args []string
		in   string
		code int
		says string
	}{
		{nil, "", 2, "either --file or --export"},
		{[]string{"-f", file, "--export"}, "", 2, "either --file or --export"},
		{[]string{"--export", "--yes"}, "", 2, "--export changes nothing"},
		{[]string{"-f", file, "--exit-code"}, "", 2, "--exit-code is for --dry-run"},
		{[]string{"-f", file, "--keys-dir", "x"}, "", 2, "--keys-dir needs --backends"},
		{[]string{"-f", file, "--prune", "rooms"}, "", 2, "--prune"},
		{[]string{"-f", "/does/not/exist"}, "", 2, "/does/not/exist"},
		{[]string{"-f", file, "--router", "127.0.0.1:1"}, "", 1, "UNAVAILABLE"},
		{[]string{"-f", owned}, "", 1, ":1: backends are in a file of the routers"},
		{[]string{"-f", owned, "--backends", made, "--keys-dir", "/does/not/exist"}, "", 1, "is no folder"},
		{[]string{"-f", owned, "--backends", made, "--keys-dir", filepath.Dir(taken)}, "", 1, "a.key is there already"},
		{[]string{"-f", owned, "--backends", made, "--keys-dir", filepath.Dir(taken)}, "", 1, "x/y has no name that a file can have"},
		{[]string{"-f", "-"}, "namespaces: [", 1, "-: yaml"},
		{[]string{"-f", "-"}, "# nothing", 0, ""},
		// no router is needed for what is in files
		{[]string{"-f", owned, "--backends", made, "--router", "127.0.0.1:1"}, "", 0, ""},
	} {
		cmd := start(t, strings.NewReader(c.in), append([]string{"apply"}, c.args...)...)
		if code := cmd.wait(); code != c.code || !strings.Contains(cmd.err.String(), c.says) {
			t.Errorf("%v: exit code %d, says %q; want %d and %q", c.args, code, cmd.err.String(), c.code, c.says)
		}
	}
	if set, err := backends.Read(made, nil); err != nil || set.Len() != 2 {
		t.Errorf("%v, %v", set, err)
	}
}

// Whoever may not change namespaces is told so, and an auditor sees the difference; what an
// operator applies is in the audit, by its name.
func TestApplyGoesByRolesAndIsAudited(t *testing.T) {
	t.Parallel()
	const any = "127.0.0.1:0"
	dir := t.TempDir()
	file := filepath.Join(dir, "backends.yaml")
	key := func(name, role string) []string {
		t.Helper()
		_, text, err := backends.Create(file, name, []string{role}, time.Now(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"--router-token-file", path}
	}
	admin, auditor, publisher := key("admin", "operator"), key("eye", "auditor"), key("shop", "publisher:orders/#")
	m := inprocess.New(inprocess.Settings{
		Stores:  []store.Settings{{ID: "s", Listen: any, HTTP: any, LogLevel: "error", DB: "sqlite:" + filepath.Join(dir, "db")}},
		Routers: []tier.Settings{{Backends: file, ID: "r", Listen: any, HTTP: any, LogLevel: "error"}},
	})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := m.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := m.Ready(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
	routers := []string{"--router", m.Routers[0].Part.Addr()}
	args := []string{"apply", "-f", write(t, "mesh.yaml", "namespaces: {orders: {durable: true}}\nteams: {editors: {members: [ann]}}\n")}
	if c := ran(t, "", with(routers, with(publisher, args...)...)...); c.code != 1 || !strings.Contains(c.err.String(), "FORBIDDEN") || !strings.Contains(c.err.String(), "auditor or operator") {
		t.Errorf("a publisher: exit code %d, %s", c.code, c.err.String())
	}
	if out := must(t, "", with(routers, with(auditor, with([]string{"--dry-run"}, args...)...)...)...); !strings.HasPrefix(out, "+ namespace orders\n") {
		t.Errorf("an auditor sees %s", out)
	}
	if c := ran(t, "", with(routers, with(auditor, args...)...)...); c.code != 1 || !strings.Contains(c.err.String(), "FORBIDDEN") {
		t.Errorf("an auditor: exit code %d, %s", c.code, c.err.String())
	}
	must(t, "", with(routers, with(admin, args...)...)...)
	for call, want := range map[string]string{"NamespaceService/Put": "orders", "MembershipService/PutTeam": "editors", "MembershipService/Add": "ann"} {
		said(t, want, with(routers, with(auditor, "history", "$audit/"+call)...)...)
		if out := must(t, "", with(routers, with(auditor, "history", "$audit/"+call)...)...); strings.Count(out, "backend:admin") != strings.Count(out, "\n") {
			t.Errorf("%s: %s", call, out)
		}
	}
}

// A team that is changed by a file ends what it granted on a connection that is there.
func TestApplyReachesConnections(t *testing.T) {
	t.Parallel()
	is := tokentest.New(t)
	edges, routers := startGuarded(t, is.File(t))
	token := write(t, "ann.jwt", is.Token("ann", nil))
	apply := func(text string) {
		t.Helper()
		must(t, "", with(routers, "apply", "-f", write(t, "mesh.yaml", text))...)
	}
	apply("teams: {editors: {subscribe: [doc/#], members: [ann]}}\n")
	ann := start(t, nil, with(edges, "sub", "doc/1", "--token-file", token)...)
	ann.says("subscribed to")
	apply("teams: {editors: {subscribe: [note/#], members: [ann]}}\n")
	if ann.wait(); ann.code == 0 || !strings.Contains(ann.err.String(), "FORBIDDEN") || !strings.Contains(ann.err.String(), "team:editors") {
		t.Errorf("ann: exit code %d, %q", ann.code, ann.err.String())
	}
}

// Whatever a file says, applying it a second time changes nothing, and neither does applying what
// is exported after that.
func TestApplyTwiceIsApplyOnce(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	dir := t.TempDir()
	file, exported, keys := filepath.Join(dir, "mesh.yaml"), filepath.Join(dir, "exported.yaml"), filepath.Join(dir, "backends.yaml")
	files := rapid.Custom(meshfiletest.File)
	for round := range 6 {
		text, err := files.Example(round).Write()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		args := with(m.router, "apply", "-f", file, "--backends", keys, "--yes")
		if round%2 == 1 {
			args = append(args, "--prune", "namespaces,teams,backends")
		}
		must(t, "", args...)
		if out := must(t, "", args...); out != unchanged {
			t.Fatalf("again: %s\n%s", out, text)
		}
		all := must(t, "", with(m.router, "apply", "--export", "--backends", keys)...)
		if err := os.WriteFile(exported, []byte(all), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := must(t, "", with(m.router, "apply", "-f", exported, "--backends", keys, "--prune", "namespaces,teams,backends")...); out != unchanged {
			t.Fatalf("what is exported: %s\n%s", out, all)
		}
	}
}

// The example is taken by a mesh, whole.
func TestExampleIsApplied(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	const file = "../../../../deploy/examples/mesh.yaml"
	if out := must(t, "", with(m.router, "apply", "-f", file)...); !strings.Contains(out, "7 to add, 0 to change, 0 to delete\n") {
		t.Error(out)
	}
	if out := must(t, "", with(m.router, "apply", "-f", file)...); out != unchanged {
		t.Error(out)
	}
}
