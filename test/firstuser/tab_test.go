//go:build firstuser

package firstuser

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/pushmesh/pushmesh/test/chromium"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// tab shows a page, whose console is read.
type tab struct {
	b    *chromium.Browser
	name string
	url  string
}

func newTab(b *chromium.Browser, url string) *tab {
	b.T.Helper()
	t := &tab{b, url, url}
	b.Open(t.name, "about:blank")
	for _, domain := range []string{"Runtime", "Log", "Page", "Network"} {
		b.Do(t.name, domain+".enable", nil, nil)
	}
	b.Do(t.name, "Page.navigate", map[string]any{"url": url}, nil)
	return t
}

// reload loads the page anew.
func (t *tab) reload() {
	t.b.T.Helper()
	before := t.count(`^client:tess: hello from TypeScript$`)
	t.b.Do(t.name, "Page.reload", nil, nil)
	t.says(`^client:tess: hello from TypeScript$`, before+1)
}

// console is what the tab's program has logged.
func (t *tab) console() []string {
	t.b.T.Helper()
	var is bool
	t.b.Evaluate(t.name, "true", &is) // events come beside an answer
	var lines []string
	for _, e := range t.b.Tabs[t.name].Events {
		var p struct{ Args []struct{ Value any } }
		if e.Method != "Runtime.consoleAPICalled" || json.Unmarshal(e.Params, &p) != nil {
			continue
		}
		for _, arg := range p.Args {
			if line, ok := arg.Value.(string); ok {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// count is how many lines of the console match.
func (t *tab) count(pattern string) (n int) {
	t.b.T.Helper()
	re := regexp.MustCompile(pattern)
	for _, line := range t.console() {
		if re.MatchString(line) {
			n++
		}
	}
	return n
}

// says waits until so many lines of the console match.
func (t *tab) says(pattern string, n int) {
	t.b.T.Helper()
	procmesh.Await(t.b.T, "the tab says "+pattern, func() bool { return t.count(pattern) >= n })
}

// logs waits until the browser itself has logged an error with a text.
func (t *tab) logs(text string) {
	t.b.T.Helper()
	procmesh.Await(t.b.T, "the browser logs "+text, func() bool {
		var is bool
		t.b.Evaluate(t.name, "true", &is)
		for _, e := range t.b.Tabs[t.name].Events {
			if e.Method == "Log.entryAdded" && strings.Contains(string(e.Params), text) {
				return true
			}
		}
		return false
	})
}
