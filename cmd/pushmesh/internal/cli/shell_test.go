package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Shells complete commands of the tool and flags of the tiers, and a page of the manual is there
// for each.
func TestShellsAndManual(t *testing.T) {
	for line, want := range map[string]string{
		"e":                               "edge\t",
		"namespace ":                      "put\tSet the whole",
		"edge --mesh-ce":                  "--mesh-cert\tPEM file",
		"apply --prune ":                  "namespaces\t",
		"apply -f ":                       ":files\t",
		"store acc":                       "accept-server\t",
		"store --db-m":                    "--db-max-conns\t",
		"store accept-server --new":       "--new-epoch\t",
		"namespace put x --overflow = di": "disconnect\t",
	} {
		if out := must(t, "", append([]string{"complete-words", "--"}, strings.Split(line, " ")...)...); !strings.Contains(out, want) {
			t.Errorf("%q: %q, want %q", line, out, want)
		}
	}
	if out := must(t, "", "complete-words", "--", "complete"); strings.Contains(out, "complete-words") {
		t.Errorf("what is hidden is shown: %s", out)
	}
	if out := must(t, "", "completion", "bash"); !strings.Contains(out, "complete -F _pushmesh pushmesh") {
		t.Errorf("the script of bash is %s", out)
	}
	dir := t.TempDir()
	must(t, "", "manual", dir)
	for name, want := range map[string]string{"pushmesh": "pushmesh\\-apply", "pushmesh-apply": "\\-\\-dry\\-run", "pushmesh-edge": "\\-\\-issuers", "pushmesh-session": "pushmesh session set\\-profile", "pushmesh-store": "\\-\\-trust\\-promotion", "pushmesh-store-accept-server": "\\-\\-same\\-epoch"} {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("%s lacks %q: %v", name, want, err)
		}
	}
}
