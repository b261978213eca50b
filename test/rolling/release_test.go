package rolling

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root of the repository.
const root = "../.."

// release is a line of RELEASES.
type release struct{ version, commit string }

// released are all versions there are, oldest first.
func released(t *testing.T) (all []release) {
	t.Helper()
	for line := range strings.Lines(run(t, root+"/scripts/releases")) {
		if f := strings.Fields(line); len(f) == 3 {
			all = append(all, release{f[0], f[1]})
		}
	}
	if len(all) == 0 {
		t.Fatal("RELEASES names no version")
	}
	return all
}

// last is the newest release, which every version since must work beside.
func last(t *testing.T) release {
	t.Helper()
	all := released(t)
	return all[len(all)-1]
}

// shallow is the exit code of scripts/release-binary in a clone that does not have the release.
const shallow = 3

// binary of the last release. A shallow clone without it is the only reason not to test.
func binary(t *testing.T) (path string, have bool) {
	t.Helper()
	cmd := exec.Command(root+"/scripts/release-binary", "last")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == shallow {
		t.Logf("not tested: shallow clone\n%s", &said)
		return "", false
	}
	if err != nil {
		t.Fatalf("scripts/release-binary: %v\n%s", err, &said)
	}
	path, err = filepath.Abs(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return path, true
}

// hasCommit reports whether this clone has a commit: a shallow one need not, though the binary was
// built before.
func hasCommit(t *testing.T, commit string) bool {
	t.Helper()
	part := strings.TrimSpace(run(t, "git", "-C", root, "rev-parse", "--is-shallow-repository")) == "true"
	// #nosec G204 -- of RELEASES
	if err := exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run(); err != nil && part {
		t.Log("not tested: shallow clone")
		return false
	}
	return true
}

// run returns what a command prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output() // #nosec G204 -- named in this package
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s %v: %v\n%s", name, args, err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// RELEASES names each version and each commit once, and the last is one that this branch is made
// from.
func TestReleasesAreThere(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range released(t) {
		if seen[r.version] || seen[r.commit] {
			t.Errorf("RELEASES names %s or its commit twice", r.version)
		}
		seen[r.version], seen[r.commit] = true, true
	}
	if strings.TrimSpace(run(t, "git", "-C", root, "rev-parse", "--is-shallow-repository")) == "false" {
		run(t, "git", "-C", root, "merge-base", "--is-ancestor", last(t).commit, "HEAD")
	}
}

// scripts/releases reads what is right, and says what is wrong.
func TestTheFileOfReleasesIsRead(t *testing.T) {
	const one, two = "v0.1.0 1d33c4f80d8db4e93c9b2b71314c397f17d62a5f 2026-11-28", "v0.10.0-rc.1 1d33c4f80d8db4e93c9b2b71314c397f17d62a5e 2026-12-01"
	for name, c := range map[string]struct {
		file, asked, want string
		code              int
	}{
		"all":           {"# comment\n" + one + "\n" + two, "", one + "\n" + two, 0},
		"last":          {one + "\n" + two, "last", two, 0},
		"one":           {one + "\n" + two, "v0.1.0", one, 0},
		"a part of one": {one + "\n" + two, "v0.1", "", 1},
		"a short hash":  {"v0.1.0 1d33c4f8 2026-11-28", "last", "v0.1.0 1d33c4f8 2026-11-28\nRELEASES: a line must be VERSION COMMIT DATE, with all 40 digits of the commit", 2},
	} {
		dir := t.TempDir()
		script, err := os.ReadFile(root + "/scripts/releases")
		if err == nil {
			err = errors.Join(os.Mkdir(dir+"/scripts", 0o700), os.WriteFile(dir+"/RELEASES", []byte(c.file+"\n"), 0o600), os.WriteFile(dir+"/scripts/releases", script, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		// #nosec G204 -- a copy of ours
		cmd := exec.Command("bash", dir+"/scripts/releases", c.asked)
		out, _ := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != c.want || cmd.ProcessState.ExitCode() != c.code {
			t.Errorf("%s: prints %q and ends with %d, want %q and %d", name, got, cmd.ProcessState.ExitCode(), c.want, c.code)
		}
	}
}

// folders of the schema's steps: Postgres, SQLite.
var folders = []string{"services/store/migrations", "services/store/internal/sqlite/migrations"}

var sqlFile = regexp.MustCompile(`^\d+_\w+\.sql$`)

// here are the steps of a folder as they are in this tree, by name.
func here(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if sqlFile.MatchString(e.Name()) {
			text, err := os.ReadFile(filepath.Join(root, folder, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all[e.Name()] = string(text)
		}
	}
	return all
}

// of are the steps of a folder as they were in a commit, by name.
func of(t *testing.T, commit, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name := range strings.FieldsSeq(run(t, "git", "-C", root, "ls-tree", "--name-only", commit+":"+folder)) {
		if sqlFile.MatchString(name) {
			all[name] = run(t, "git", "-C", root, "show", commit+":"+folder+"/"+name)
		}
	}
	return all
}

// Steps that were released are as they were, and those since let stores of the last release go on:
// they only add.
func TestStepsSinceTheLastReleaseOnlyAdd(t *testing.T) {
	if _, have := binary(t); !have || !hasCommit(t, last(t).commit) {
		return
	}
	was, all := last(t), released(t)
	var versions []string
	for _, r := range all {
		versions = append(versions, r.version)
	}
	for _, folder := range folders {
		before, now := of(t, was.commit, folder), here(t, folder)
		if len(before) == 0 {
			t.Fatalf("%s has no steps in %s", folder, was.version)
		}
		for _, wrong := range judgeSteps(before, now, versions) {
			t.Errorf("%s/%s", folder, wrong)
		}
		t.Logf("%s: %d steps of %s, %d since", folder, len(before), was.version, len(now)-len(before))
	}
}

// sorted names of steps, which are their order: numbers have five digits.
func sorted(steps map[string]string) (names []string) {
	for name := range steps {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
