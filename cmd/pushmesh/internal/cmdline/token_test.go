package cmdline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/identity/token"
)

func TestReadToken(t *testing.T) {
	longest := strings.Repeat("s", token.MaxToken)
	path := filepath.Join(t.TempDir(), "token")
	for _, c := range []struct{ text, want, says string }{
		{"a.b.c", "a.b.c", ""},
		{" a.b.c\r\n", "a.b.c", ""},
		{longest + "\n", longest, ""},
		{"", "", "has no token in it"},
		{" \n", "", "has no token in it"},
		{"secret secret", "", "more in it than one token"},
		{longest + "s", "", "longer than a token may be, which is 8192 bytes"},
		{strings.Repeat("secret ", 1<<14), "", "longer than"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, from := range []string{path, "-"} {
			got, err := ReadToken(from, strings.NewReader(c.text))
			if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%.20q by %s: %.20q, %v, want %q", c.text, from, got, err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has what was read: %v", err)
			}
		}
	}
	if _, err := ReadToken("-", nil); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}

// A file is read for each connection, so that a token that was renewed is used; standard input can
// be read once.
func TestATokenIsReadForEachConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	file, err := TokenFlag{path}.Source(nil)
	if err != nil {
		t.Fatal(err)
	}
	input, err := TokenFlag{"-"}.Source(strings.NewReader("one"))
	if err != nil {
		t.Fatal(err)
	}
	write("two")
	for want, source := range map[string]func() (string, error){
		"two": func() (string, error) { return file(t.Context()) }, "one": func() (string, error) { return input(t.Context()) },
	} {
		if got, err := source(); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if none, err := (TokenFlag{}).Source(nil); none != nil || err != nil {
		t.Error("a token without a flag", err)
	}
	if _, err := (TokenFlag{path + "x"}).Source(nil); ExitCode(err) != 2 {
		t.Errorf("a file that is not there: %v", err)
	}
}
