package completion

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

type grammar struct {
	Verbose bool   `help:"x"`
	Context string `help:"x"`
	Name    struct {
		Put struct {
			Prefix   string   `arg:""`
			Overflow string   `enum:"oldest,newest" default:"newest" help:"What goes."`
			Rank     string   `short:"r" type:"existingfile"`
			KeysDir  string   `placeholder:"DIR"`
			Durable  bool     `short:"d"`
			Kinds    []string `enum:"a,b"`
		} `cmd:"" help:"Puts."`
		Get    struct{} `cmd:""`
		Hidden struct{} `cmd:"" hidden:""`
	} `cmd:""`
	Near struct {
		Shell string   `arg:"" enum:"bash,zsh"`
		Files []string `arg:"" optional:"" type:"existingfile"`
	} `cmd:""`
}

func words(t *testing.T, line ...string) string {
	t.Helper()
	parser, err := kong.New(&grammar{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, one := range Of(parser.Model, line) {
		all = append(all, one.Word)
	}
	return strings.Join(all, " ")
}

func TestWhatALineMayBecome(t *testing.T) {
	for line, want := range map[string]string{
		"":                              "name near",
		"na":                            "name",
		"name ":                         "get put",
		"name put --k":                  "--keys-dir --kinds",
		"name put --":                   "--context --durable --help --keys-dir --kinds --overflow --rank --verbose",
		"name put x --overflow ":        "newest oldest",
		"name put x --overflow o":       "oldest",
		"name put x --overflow=o":       "oldest",
		"name put x --overflow = o":     "oldest",
		"name put x --overflow =":       "newest oldest",
		"name put x --rank ":            Files,
		"name put x -r ":                Files,
		"name put x -r f --keys-dir ":   Folders,
		"name put -d ":                  "",
		"--verbose name ":               "get put",
		"--context c name ":             "get put",
		"--context=c name put --kinds ": "a b",
		"near ":                         "bash zsh",
		"near bash ":                    Files,
		"near bash a b ":                Files,
		"nowhere ":                      "name near",
		"name put -- ":                  Files,
	} {
		if got := words(t, strings.Split(line, " ")...); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if got := words(t); got != "name near" {
		t.Errorf("nothing: %q", got)
	}
}

// The script of bash has what the program answers taken over, and names of files from the shell.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pushmesh":  "#!/bin/sh\ncase \"$*\" in\n'complete-words -- name p') printf 'put\\tPuts.\\npub\\t\\n' ;;\n'complete-words -- -f m') printf ':files\\t\\n' ;;\nesac\n",
		"mesh.yaml": "", "script.bash": Script("bash"),
		"try.bash": "source ./script.bash\ncompopt() { :; }\ntry() { COMP_WORDS=(./pushmesh \"$@\"); COMP_CWORD=$#; _pushmesh; echo \"${COMPREPLY[*]}\"; }\ntry name p\ntry -f m\ntry no\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			// #nosec G306 -- a script
			t.Fatal(err)
		}
	}
	try := exec.CommandContext(t.Context(), bash, "--norc", "try.bash") // #nosec G204 -- a shell
	try.Dir = dir
	if out, err := try.CombinedOutput(); err != nil || string(out) != "put pub\nmesh.yaml\n\n" {
		t.Errorf("%v: %q", err, out)
	}
	for shell := range strings.SplitSeq(Shells, ",") {
		if !strings.Contains(Script(shell), "complete-words -- ") {
			t.Errorf("the script of %s does not ask the program", shell)
		}
	}
}
