package procmesh

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// withClocks are the binaries whose wall clocks tests can set: the tiers that keep promises about
// messages.
var withClocks = []string{"services/edge/cmd/edge", "services/router/cmd/router", "services/store/cmd/store"}

// setByTests joins the mains of these binaries.
//
//go:embed testdata/clock.go.txt
var setByTests []byte

// clockVariable names the file that says how many seconds a process's wall clock is ahead.
const clockVariable = "PUSHMESH_TEST_CLOCK"

// buildWithClocks builds binaries whose time.Now, theirs and that of every package they use, can be
// set ahead or back while they run, and returns their folder. The standard library's source is
// replaced for this build alone (go help build, -overlay): no other binary has a place where its
// time could be changed. Monotonic times and timers are as they were, as with a machine's clock
// that is set.
var buildWithClocks = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pushmesh-clocks-")
	if err != nil {
		return "", err
	}
	builtWithClocks.Store(&dir)
	overlay, err := overlayOfTime(dir)
	if err != nil {
		return "", err
	}
	args := []string{"build", "-overlay", overlay, "-o", dir + string(filepath.Separator)}
	for _, pkg := range withClocks {
		args = append(args, module+pkg)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		// #nosec G204 -- of packages above
		return "", fmt.Errorf("build with clocks: %w\n%s", err, out)
	}
	return dir, nil
})

// overlayOfTime writes what `go build -overlay` wants, and a package time that can be set.
func overlayOfTime(dir string) (string, error) {
	env, err := exec.Command("go", "env", "GOROOT", "GOWORK").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(env)), "\n")
	if len(lines) != 2 || lines[1] == "" {
		return "", fmt.Errorf("go env GOROOT GOWORK says %q, want two folders", env)
	}
	source, project := filepath.Join(lines[0], "src", "time", "time.go"), filepath.Dir(lines[1])
	text, err := os.ReadFile(source) // #nosec G304 -- Go's own
	if err != nil {
		return "", err
	}
	const now, imports = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "import (\n"
	changed := string(text)
	if strings.Count(changed, now) != 1 {
		return "", fmt.Errorf("%s has no Now as this package knows it: change overlayOfTime in test/procmesh for this version of Go", source)
	}
	changed = strings.Replace(changed, now, now+"\tsec += ahead.Load()\n", 1)
	changed = strings.Replace(changed, imports, imports+"\t\"sync/atomic\"\n", 1)
	changed += "\nvar ahead atomic.Int64\n\nfunc SetAhead(seconds int64) { ahead.Store(seconds) }\n"
	timeFile, mainFile := filepath.Join(dir, "time.go"), filepath.Join(dir, "clock.go")
	replace := map[string]string{source: timeFile}
	for _, pkg := range withClocks {
		replace[filepath.Join(project, pkg, "clock_set_by_tests.go")] = mainFile
	}
	spec, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(timeFile, []byte(changed), 0o600), os.WriteFile(mainFile, setByTests, 0o600), os.WriteFile(overlay, spec, 0o600))
}

// settable gives a process a wall clock that SetClock sets, by the file that it reads.
func settable(p *Process, bin, file string) {
	p.Path, p.Env = filepath.Join(bin, filepath.Base(p.Path)), append(p.Env, clockVariable+"="+file)
}

// SetClock has a process's wall clock be so far ahead of the machine's, in whole seconds, below 0:
// behind, and returns when the process goes by it: one that does not run will when it is started.
// Of meshes with Options.Clocks.
func (m *Mesh) SetClock(ctx context.Context, p *Process, ahead time.Duration) error {
	clock := m.clocks[p.Name]
	if clock == "" {
		return fmt.Errorf("%s: its clock can't be set: start the mesh with Options.Clocks", p.Name)
	}
	said := strconv.FormatInt(int64(ahead/time.Second), 10)
	next := clock + ".next" // a process never reads half of it
	if err := errors.Join(os.WriteFile(next, []byte(said), 0o600), os.Rename(next, clock)); err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		text, _ := os.ReadFile(clock + ".is") // #nosec G304 -- in the test's folder
		if is, now, whole := strings.Cut(string(text), " "); whole && is == said {
			at, err := strconv.ParseInt(now, 10, 64)
			if off := time.Unix(at, 0).Sub(time.Now().Add(ahead)).Abs(); err != nil || off > patience {
				return fmt.Errorf("%s: its clock says %s, which is %s from what was set: %w", p.Name, now, off, err)
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not go by a clock that is %s ahead: %w", p.Name, ahead, ctx.Err())
		}
	}
}
