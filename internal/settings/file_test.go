package settings

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// some is settings of every kind.
type some struct {
	ID     string            `name:"id" help:"x"`
	Count  int               `default:"1" help:"x"`
	Share  float64           `help:"x"`
	Wait   time.Duration     `default:"5s" help:"x"`
	Open   bool              `help:"x"`
	Addrs  []string          `help:"x"`
	DB     string            `name:"db" secret:"" help:"x"`
	Level  string            `enum:"debug,info" default:"info" help:"x"`
	Needed string            `help:"x"`
	Pairs  map[string]string `help:"x"`
}

func (s *some) Check() error { return Require("needed", s.Needed) }

func config(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "edge.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A flag comes before a variable, that before the file, and this before the default; each line says
// where it is from, and secrets are not shown.
func TestWhichSettingCounts(t *testing.T) {
	path := config(t, "# of the edge\nneeded: file\nid: file\ncount: 7\nshare: 0.5\nwait: 1m\nopen: true\naddrs: [a, 'b,c']\ndb: postgres://u:secret@h/d\n")
	t.Setenv("PUSHMESH_ID", "variable")
	t.Setenv("PUSHMESH_COUNT", "8")
	var s some
	all, err := Explain(&s, "x", []string{"--config", path, "--count", "9"})
	if err != nil {
		t.Fatal(err)
	}
	if s.ID != "variable" || s.Count != 9 || s.Needed != "file" || s.Share != 0.5 || s.Wait != time.Minute || !s.Open || !slices.Equal(s.Addrs, []string{"a", "b,c"}) || s.Level != "info" {
		t.Errorf("%+v", s)
	}
	want := map[string]Line{
		"id": {"id", "variable", "PUSHMESH_ID"}, "count": {"count", "9", "--count"}, "needed": {"needed", "file", path + ":2"}, "wait": {"wait", "1m0s", path + ":6"},
		"level": {"level", "info", "default"}, "db": {"db", Hidden, path + ":9"},
	}
	for _, l := range all {
		if w, ok := want[l.Name]; ok && l != w {
			t.Errorf("%+v, not %+v", l, w)
		}
		if strings.Contains(l.Value, "secret") || l.Name == "config" || l.Name == "help" {
			t.Errorf("it is shown: %+v", l)
		}
	}
	t.Setenv("PUSHMESH_CONFIG", path)
	var again some
	if err := Parse(&again, "x", "", nil, t.Output()); err != nil || again.Count != 8 || again.Needed != "file" {
		t.Errorf("by the variable: %+v, %v", again, err)
	}
}

// Every fault of a file is told, with its line.
func TestFaultsOfAFile(t *testing.T) {
	for text, wants := range map[string][]string{
		"needed: a\nadrs: [b]\n":                                   {":2: there is no setting \"adrs\": did you mean addrs?"},
		"needed: a\nconfig: b\nhelp: true\n":                       {":2: there is no setting \"config\"", ":3: there is no setting \"help\""},
		"needed: a\nneeded: b\nid: {a: b}\n":                       {":2: needed is there twice, first in line 1", ":3: it must be a value or a list of values"},
		"needed: a\nid: [a, b]\naddrs: [[a]]\n":                    {":2: id is one value, not a list", ":3: a list must be of values"},
		"needed: a\nid:\n":                                         {":2: it has no value"},
		"needed: a\ncount: many\n":                                 {":2: --count", "many"},
		"needed: a\nlevel: loud\n":                                 {":2: --level", "loud"},
		"- needed\n":                                               {":1: it must have lines of the form NAME: VALUE"},
		"needed: a\n---\nid: b\n":                                  {"one document"},
		"needed: &a x\nid: *a\n":                                   {":2: it must be a value"},
		"needed: a\nx: 1\nneed: b\nid: [a, ]\naddrs: [a, '', ~]\n": {":2: there is", ":5: an item of the list has no value"},
		"idd: x\n":                 {":1: there is no setting", "--needed is required"},
		"needed: &id a\n*id : b\n": {":2: a name must be a word"},
		"needed: 'a\n":             {"yaml"},
		"id: a\n":                  {"--needed is required"},
		"":                         {"--needed is required"},
		"needed: a\nx: " + strings.Repeat("y", mostFile): {"more than"},
	} {
		var s some
		err := Parse(&s, "x", "", []string{"--config=" + config(t, text)}, t.Output())
		var usage *UsageError
		if !errors.As(err, &usage) {
			t.Errorf("%.60q: %v", text, err)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%.60q: %v, not %q", text, err, want)
			}
		}
	}
	var s some
	if err := Parse(&s, "x", "", []string{"--config", "/nowhere.yaml", "--needed", "a"}, t.Output()); err == nil || !strings.Contains(err.Error(), "/nowhere.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// What a flag takes several times is a list, or lines of their own.
func TestPairsOfAFile(t *testing.T) {
	for _, text := range []string{"pairs: [a=1, 'b=2;3']\n", "pairs: {a: 1, b: '2;3'}\n", "pairs:\n  a: 1\n  b: 2;3\n"} {
		var s some
		if err := Parse(&s, "x", "", []string{"--needed=a", "--config=" + config(t, text)}, t.Output()); err != nil || len(s.Pairs) != 2 || s.Pairs["a"] != "1" || s.Pairs["b"] != "2;3" {
			t.Errorf("%q: %v, %v", text, s.Pairs, err)
		}
	}
}

// FuzzFile reads files of anybody: whatever is taken is a flag's, and has a line.
func FuzzFile(f *testing.F) {
	parser, err := kong.New(&some{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("id: a\naddrs: [a, 'b,c']\nopen: true\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("id: a\nid: b\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, _ := parseFile(data, parser.Model.Flags)
		for name, e := range all {
			if e.line < 1 || !slices.ContainsFunc(parser.Model.Flags, func(f *kong.Flag) bool { return f.Name == name }) {
				t.Fatalf("%q: %+v", name, e)
			}
		}
	})
}
