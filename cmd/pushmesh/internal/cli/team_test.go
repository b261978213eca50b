package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
)

// Operators make teams, see who is in them, and take users out: who is there loses what the team
// granted, and is told which one that was.
func TestTeams(t *testing.T) {
	t.Parallel()
	is := tokentest.New(t)
	edges, routers := startGuarded(t, is.File(t))
	file := filepath.Join(t.TempDir(), "ann.jwt")
	if err := os.WriteFile(file, []byte(is.Token("ann", nil)), 0o600); err != nil {
		t.Fatal(err)
	}
	team := func(args ...string) string {
		t.Helper()
		return must(t, "", with(routers, append([]string{"team"}, args...)...)...)
	}
	if out := team("put", "editors", "--subscribe", "doc/#", "--subscribe", "note/{user}", "--publish", "doc/+/edit"); out != "team editors grants 3 filters\n" {
		t.Errorf("put prints %q", out)
	}
	if out := team("add", "editors", "ann", "bob", "ann"); out != "added 2\n" {
		t.Errorf("add prints %q", out)
	}
	if out := team("list"); !strings.HasPrefix(out, "TEAM") || !strings.Contains(out, "doc/# note/{user}") {
		t.Errorf("list prints %q", out)
	}
	if out := team("list", "--format", "json"); !strings.Contains(out, `"publish":["doc/+/edit"]`) {
		t.Errorf("list --format json prints %q", out)
	}
	if out := team("members", "--team", "editors"); strings.Join(strings.Fields(out), " ") != "TEAM USER editors ann editors bob" {
		t.Errorf("members prints %q", out)
	}
	if out := team("members", "--user", "bob", "--format", "json", "--limit", "1"); !strings.Contains(out, `"team":"editors"`) {
		t.Errorf("members --user prints %q", out)
	}
	explain := start(t, nil, with(routers, "auth", "explain", "--user", "ann", "--teams", "--verb", "publish", "--topic", "doc/7/edit")...)
	if explain.wait(); explain.code != 0 || !strings.Contains(explain.out.String(), "by doc/+/edit (team:editors)") {
		t.Errorf("explain: exit code %d, %q, %q", explain.code, explain.out.String(), explain.err.String())
	}
	alone := start(t, nil, "auth", "explain", "--user", "ann", "--verb", "publish", "--topic", "doc/7/edit")
	if alone.wait(); alone.code == 0 {
		t.Errorf("explain without --teams: %q", alone.out.String())
	}
	ann := start(t, nil, with(edges, "sub", "doc/1", "--token-file", file)...)
	ann.says("subscribed to")
	if out := team("remove", "editors", "ann", "carl"); out != "removed 1\n" {
		t.Errorf("remove prints %q", out)
	}
	if ann.wait(); ann.code == 0 || !strings.Contains(ann.err.String(), "FORBIDDEN") || !strings.Contains(ann.err.String(), "team:editors") {
		t.Errorf("ann: exit code %d, %q", ann.code, ann.err.String())
	}
	if out := team("delete", "editors"); out != "deleted\n" {
		t.Errorf("delete prints %q", out)
	}
	if out := team("members", "--user", "bob"); strings.Count(out, "\n") != 1 {
		t.Errorf("members after the team is deleted prints %q", out)
	}
	for want, args := range map[string][]string{
		"NOT_FOUND":              {"add", "editors", "ann"},
		"team editors not found": {"delete", "editors"},
		"either --team or":       {"members"},
		"must not contain /":     {"put", "a/b"},
		"must be GROUP/FILTER":   {"put", "a", "--group", "x"},
		"--limit is below":       {"list", "--limit=-1"},
		"--limit is below 0":     {"members", "--user", "ann", "--limit=-1"},
		"the user's name must n": {"add", "a", "x/y"},
	} {
		c := start(t, nil, with(routers, append([]string{"team"}, args...)...)...)
		if c.wait(); c.code == 0 || !strings.Contains(c.err.String(), want) {
			t.Errorf("%q: exit code %d, %q, want %q", args, c.code, c.err.String(), want)
		}
	}
}
