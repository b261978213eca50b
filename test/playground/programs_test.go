// Package playground runs the programs that the page of `pushmesh dev` shows beside its demos.
package playground

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/procmesh"
)

const (
	root = "../.."
	code = root + "/cmd/pushmesh/internal/playground/code"
)

func TestMain(m *testing.M) {
	status := m.Run()
	procmesh.Cleanup()
	os.Exit(status)
}

// demo is what its programs print, line by line, among others, and whether they end then.
type demo struct {
	says []string
	ends bool
}

// LANGUAGE is how a program calls its own.
var demos = map[string]demo{
	"chat":   {says: []string{`hello from LANGUAGE$`}},
	"prices": {says: slices.Repeat([]string{`QBIT|LUMA|NODE|PIXL`}, 3)},
	"seat":   {says: []string{`^has the seat`, `^gave it up$`}, ends: true},
	"topic":  {says: []string{`play/news/today.*hello from LANGUAGE$`}},
}

var languages = map[string]string{"go": "Go", "ts": "TypeScript", "py": "Python", "sh": "the shell"}

// TestPrograms runs each program in each language against `pushmesh dev`, with the addresses put in
// as the page does it, and waits for what it is to print.
func TestPrograms(t *testing.T) {
	dev := procmesh.StartDev(t)
	addresses := strings.NewReplacer("127.0.0.1:7400", dev.Edge, "127.0.0.1:7401", dev.Router)
	runners := map[string]func(t *testing.T, file, text string) *exec.Cmd{"go": goProgram, "ts": tsProgram, "py": pyProgram, "sh": shProgram(filepath.Dir(dev.Path))}
	for name, demo := range demos {
		files, err := filepath.Glob(filepath.Join(code, name, "*"))
		if err != nil || len(files) != len(runners) {
			t.Fatalf("the programs of %s are %q, %v", name, files, err)
		}
		for _, file := range files {
			t.Run(name+"/"+filepath.Base(file), func(t *testing.T) {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				language := strings.TrimPrefix(filepath.Ext(file), ".")
				run, known := runners[language]
				if !known {
					t.Fatalf("%s is in no language that is known", file)
				}
				var lines []string
				for _, line := range demo.says {
					lines = append(lines, strings.ReplaceAll(line, "LANGUAGE", languages[language]))
				}
				prints(t, run(t, file, addresses.Replace(string(text))), lines, demo.ends)
			})
		}
	}
}

// prints runs a program until it has printed lines, in this order, among others, and to its end
// where it has one.
func prints(t *testing.T, cmd *exec.Cmd, lines []string, ends bool) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = in, in
	err = cmd.Start()
	_ = in.Close()
	if err != nil {
		t.Fatal(err)
	}
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	defer kill()
	if err := out.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var said []string
	for scanner := bufio.NewScanner(out); len(lines) > 0; {
		if !scanner.Scan() {
			t.Fatalf("it never says %q (%v), but\n%s", lines[0], scanner.Err(), strings.Join(said, "\n"))
		}
		said = append(said, scanner.Text())
		if strings.HasPrefix(scanner.Text(), "pushmesh: ") {
			t.Errorf("a command was refused: %s", scanner.Text())
		}
		if regexp.MustCompile(lines[0]).MatchString(scanner.Text()) {
			lines = lines[1:]
		}
	}
	if !ends {
		kill()
		_ = cmd.Wait() // it was killed
		return
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// write has a file of the test hold a text.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// made runs a compiler.
func made(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// goProgram compiles the program in its place, with another text.
func goProgram(t *testing.T, file, text string) *exec.Cmd {
	t.Helper()
	absolute, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{absolute: write(t, "main.go", text)}})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "program")
	// #nosec G204 -- the test's own
	made(t, exec.Command("go", "build", "-overlay", write(t, "overlay.json", string(overlay)), "-o", binary, filepath.Dir(absolute)))
	return exec.Command(binary)
}

// tsProgram bundles the program with the sources of the client. scripts/playground checks its
// types.
func tsProgram(t *testing.T, _, text string) *exec.Cmd {
	t.Helper()
	tools, err := exec.Command(filepath.Join(root, "scripts", "tool"), "js-client").Output()
	if err != nil {
		t.Fatal(err)
	}
	client, err := filepath.Abs(filepath.Join(root, "clients", "js", "src", "index.ts"))
	if err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "program.mjs")
	made(t, exec.Command(filepath.Join(strings.TrimSpace(string(tools)), "node_modules", ".bin", "esbuild"),
		write(t, "program.ts", text), "--bundle", "--format=esm", "--platform=node", "--log-level=warning", "--alias:@pushmesh/client="+client, "--outfile="+bundle))
	return exec.Command("node", "--experimental-websocket", "--no-warnings", bundle)
}

// pyProgram runs the program with the sources of the client.
func pyProgram(t *testing.T, _, text string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", "-u", "-W", "error", write(t, "program.py", text))
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+filepath.Join(root, "clients", "python", "src"))
	return cmd
}

// shProgram runs the commands with pushmesh of a folder.
func shProgram(bin string) func(t *testing.T, file, text string) *exec.Cmd {
	return func(t *testing.T, _, text string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sh", write(t, "program.sh", text))
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		return cmd
	}
}
