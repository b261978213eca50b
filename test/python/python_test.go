// Package python runs what clients/python has: its programs against `pushmesh dev`, and a
// subscriber through connections that are cut.
package python

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/procmesh"
)

// patience is how long a program has for everything; a busy machine is no failure.
const patience = 5 * time.Minute

// interpreter is Debian's, which has the packages that scripts/setup installs, whatever else is
// there.
const interpreter = "/usr/bin/python3"

var sdk = filepath.Join("..", "..", "clients", "python")

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

// program is a running Python program. It ends with the test.
type program struct {
	t     *testing.T
	name  string
	lines *bufio.Scanner
	in    io.WriteCloser
	err   strings.Builder
	wait  func() error
}

// python starts a program with the package of clients/python.
func python(t *testing.T, path string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	cmd := exec.CommandContext(ctx, interpreter, append([]string{path}, args...)...)
	from, err := filepath.Abs(filepath.Join(sdk, "src"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+from, "PYTHONDONTWRITEBYTECODE=1")
	p := &program{t: t, name: filepath.Base(path), wait: cmd.Wait}
	cmd.Stderr = &p.err
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was ended, or has ended
		if t.Failed() {
			t.Logf("%s says\n%s", p.name, p.err.String())
		}
	})
	return p
}

// says reads one line.
func (p *program) says() string {
	p.t.Helper()
	if !p.lines.Scan() {
		err := p.wait()
		p.t.Fatalf("%s ended: %v %v\n%s", p.name, err, p.lines.Err(), p.err.String())
	}
	return p.lines.Text()
}

// saysAll reads lines, which must be those.
func (p *program) saysAll(want ...string) {
	p.t.Helper()
	for _, w := range want {
		if got := p.says(); got != w {
			p.t.Fatalf("%s says %q, want %q", p.name, got, w)
		}
	}
}

func (p *program) tell(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits until the program has ended well and said nothing more.
func (p *program) ends() {
	p.t.Helper()
	_ = p.in.Close() // it may have ended
	if p.lines.Scan() {
		p.t.Fatalf("%s says more: %s", p.name, p.lines.Text())
	}
	if err := p.wait(); err != nil {
		p.t.Fatalf("%s: %v\n%s", p.name, err, p.err.String())
	}
}
