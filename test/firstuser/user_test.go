//go:build firstuser

package firstuser

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/procmesh"
)

// user is somebody with an empty folder and a release, and what they have made of it so far.
type user struct {
	t       *testing.T
	dist    string // the release
	archive string // of it, for this machine
	folder  string // where all is done
	version string // of the release, such as v1.2.3
	path    string // where the shell looks for commands
	env     []string

	edge, router, edgeHTTP, playground string // of the mesh, once it runs
}

func newUser(t *testing.T) *user {
	t.Helper()
	dist, err := filepath.Abs(os.Getenv("PUSHMESH_DIST"))
	if err != nil {
		t.Fatal(err)
	}
	u := &user{t: t, dist: dist, folder: t.TempDir()}
	u.archive = u.file("pushmesh_*_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.gz")
	name := strings.TrimSuffix(filepath.Base(u.archive), ".tar.gz")
	u.version = "v" + strings.Split(name, "_")[1]
	// Nothing of this repository, and none of its settings.
	u.env = slices.DeleteFunc(os.Environ(), func(set string) bool {
		name, _, _ := strings.Cut(set, "=")
		return strings.HasPrefix(name, "PUSHMESH_") || slices.Contains([]string{"GOFLAGS", "GOWORK", "GOMODCACHE", "GOEXPERIMENT", "PYTHONPATH", "PATH"}, name)
	})
	u.path = filepath.Join(u.folder, name) + string(filepath.ListSeparator) + os.Getenv("PATH")
	u.env = append(u.env, "PATH="+u.path, "GOWORK=off")
	return u
}

// file is the one of the release that has such a name.
func (u *user) file(pattern string) string {
	u.t.Helper()
	all, err := filepath.Glob(filepath.Join(u.dist, pattern))
	if err != nil || len(all) != 1 {
		u.t.Fatalf("%s has %q for %s, %v", u.dist, all, pattern, err)
	}
	return all[0]
}

// in is a folder of the user's, which is made.
func (u *user) in(name string) string {
	u.t.Helper()
	path := filepath.Join(u.folder, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// write puts a text into a file.
func (u *user) write(path, text string) string {
	u.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
	return path
}

func (u *user) read(path string) string {
	u.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		u.t.Fatal(err)
	}
	return string(text)
}

// put writes this mesh's addresses where a program has those of every README.
func (u *user) put(text string) string {
	return strings.NewReplacer("127.0.0.1:7400", u.edge, "127.0.0.1:7401", u.router).Replace(text)
}

// command is one in a folder of the user's; PATH is the user's, too.
func (u *user) command(folder, name string, args ...string) *exec.Cmd {
	u.t.Helper()
	if !strings.Contains(name, "/") {
		name = u.look(name)
	}
	// #nosec G204 -- the test's own
	cmd := exec.CommandContext(u.t.Context(), name, args...)
	cmd.Dir = u.in(folder)
	cmd.Env = u.env
	if u.router != "" {
		cmd.Env = append(slices.Clone(u.env), "PUSHMESH_EDGE="+u.edge, "PUSHMESH_ROUTER="+u.router, "EDGE=ws://"+u.edge)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	return cmd
}

// look finds a command as the user's shell does.
func (u *user) look(name string) string {
	u.t.Helper()
	for _, folder := range filepath.SplitList(u.path) {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	u.t.Fatalf("there is no command %s", name)
	return ""
}

// does runs a command, which must succeed, and returns what it says.
func (u *user) does(folder, name string, args ...string) string {
	u.t.Helper()
	out, err := u.command(folder, name, args...).CombinedOutput()
	if err != nil {
		u.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// fails runs a command that must not succeed and say that.
func (u *user) fails(want, folder, name string, args ...string) {
	u.t.Helper()
	out, err := u.command(folder, name, args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), want) {
		u.t.Errorf("%s %q ends with %v and must say %q:\n%s", name, args, err, want, out)
	}
}

// program is one that runs. It ends with the test.
type program struct {
	t    *testing.T
	name string
	in   io.WriteCloser
	mu   sync.Mutex
	said []string      // guarded by mu
	over chan struct{} // closed once it says nothing more
	wait func() error
}

// starts runs a command beside the test.
func (u *user) starts(folder, name string, args ...string) *program {
	u.t.Helper()
	cmd := u.command(folder, name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		u.t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	p := &program{t: u.t, name: strings.Join(append([]string{filepath.Base(name)}, args...), " "), over: make(chan struct{}), wait: sync.OnceValue(cmd.Wait)}
	if p.in, err = cmd.StdinPipe(); err != nil {
		u.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func() {
		defer close(p.over)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.mu.Lock()
			p.said = append(p.said, lines.Text())
			p.mu.Unlock()
		}
	}()
	u.t.Cleanup(func() { // behind the end of the test's context, and so of the program
		<-p.over
		_ = p.wait()
		if u.t.Failed() {
			u.t.Logf("--- %s\n%s", p.name, strings.Join(p.lines(), "\n"))
		}
	})
	return p
}

func (p *program) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.said)
}

// says waits until it has said a line that matches, and returns its groups.
func (p *program) says(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	procmesh.Await(p.t, p.name+" says "+pattern, func() bool {
		over := false
		select {
		case <-p.over:
			over = true
		default:
		}
		for _, line := range p.lines() {
			if found = re.FindStringSubmatch(line); found != nil {
				return true
			}
		}
		if over {
			p.t.Fatalf("%s never says %q, but\n%s", p.name, pattern, strings.Join(p.lines(), "\n"))
		}
		return false
	})
	return found
}

// ends waits until it has ended well.
func (p *program) ends() {
	p.t.Helper()
	_ = p.in.Close() // it may have ended
	select {
	case <-p.over:
	case <-time.After(patience):
		p.t.Fatalf("%s never ends", p.name)
	}
	if err := p.wait(); err != nil {
		p.t.Fatalf("%s: %v\n%s", p.name, err, strings.Join(p.lines(), "\n"))
	}
}

func (p *program) tells(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// section of a README is what follows a heading, up to the next one.
func section(t *testing.T, readme, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(readme, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("there is no heading %q in\n%.2000s", heading, readme)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// programs of a text, in a language.
func programs(t *testing.T, text, language string) []string {
	t.Helper()
	var all []string
	for _, found := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	if len(all) == 0 {
		t.Fatalf("there is no program in %s in\n%s", language, text)
	}
	return all
}

// commands of a text are its lines that are indented.
func commands(text string) []string {
	var all []string
	for line := range strings.SplitSeq(text, "\n") {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			all = append(all, command)
		}
	}
	return all
}
