package backendtest

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// docs/conformance.md lists every test of the suite, in its order, and no other.
func TestTheSuiteIsListed(t *testing.T) {
	text, err := os.ReadFile("../../../../../docs/conformance.md")
	need(t, err)
	var listed, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| .+ \\|$").FindAllSubmatch(text, -1) {
		listed = append(listed, string(m[1]))
	}
	for _, c := range slices.Concat(backendTests, logTests) {
		want = append(want, c.name)
	}
	if !slices.Equal(listed, want) {
		t.Errorf("listed: %q\nwant:   %q", listed, want)
	}
}
