package docs

import (
	"regexp"
	"strings"
	"testing"
)

var (
	goBlock     = regexp.MustCompile("(?s)```go\n(.*?)```")
	exampleName = regexp.MustCompile("`(Example[A-Za-z_]*)`")
)

// trimmed is text without the indentation of its lines.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// What docs/api.md shows of Go runs as a part of the SDK's examples, and examples that pages name
// exist.
func TestPagesShowExamplesThatRun(t *testing.T) {
	examples := read(t, root+"/client/pushmesh/example_test.go")
	lines := trimmed(examples)
	blocks := goBlock.FindAllStringSubmatch(read(t, root+"/docs/api.md"), -1)
	if len(blocks) < 3 {
		t.Errorf("docs/api.md shows %d pieces of Go", len(blocks))
	}
	for _, m := range blocks {
		if !strings.Contains(lines, trimmed(m[1])) {
			t.Errorf("no example has\n%s", m[1])
		}
	}
	for _, page := range []string{"/docs/api.md", "/docs/protocol.md", "/client/README.md"} {
		for _, m := range exampleName.FindAllStringSubmatch(read(t, root+page), -1) {
			if !strings.Contains(examples, "\nfunc "+m[1]+"(") {
				t.Errorf("%s names %s, which is no example", page, m[1])
			}
		}
	}
}
