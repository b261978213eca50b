package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	section   = regexp.MustCompile(`(?m)^## (.*)$`)
	adrTitle  = regexp.MustCompile(`\A# (\d+)\. \S`)
	adrDate   = regexp.MustCompile(`## Date\n\n\d{4}-\d{2}-\d{2}\n`)
	adrStatus = regexp.MustCompile(`## Status\n\n(Accepted|Superseded by \[)`)
	relation  = regexp.MustCompile(`\((\d{4}-[a-z0-9-]+\.md)\)`)
)

// Every decision has the same parts, is in the index, and is named by those whose status it names.
func TestDecisionsHaveOneForm(t *testing.T) {
	pages, err := filepath.Glob(root + "/docs/adr/0*.md")
	if err != nil || len(pages) < 50 {
		t.Fatalf("%d decisions, %v", len(pages), err)
	}
	index := read(t, root+"/docs/adr/README.md")
	status := func(path string) string {
		_, rest, _ := strings.Cut(read(t, path), "## Status\n\n")
		rest, _, _ = strings.Cut(rest, "\n## ")
		return rest
	}
	for _, path := range pages {
		text, name := read(t, path), filepath.Base(path)
		var parts []string
		for _, m := range section.FindAllStringSubmatch(text, -1) {
			parts = append(parts, m[1])
		}
		if !slices.Equal(parts, []string{"Status", "Date", "Context", "Decision", "Consequences"}) {
			t.Errorf("%s has the parts %v", name, parts)
		}
		title := adrTitle.FindStringSubmatch(text)
		if title == nil || strings.TrimLeft(name[:4], "0") != title[1] || !adrDate.MatchString(text) || !adrStatus.MatchString(text) {
			t.Errorf("%s has no title with its number, no date or no status", name)
		}
		if !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/adr/README.md does not name %s", name)
		}
		for _, m := range relation.FindAllStringSubmatch(status(path), -1) {
			if other := status(filepath.Join(filepath.Dir(path), m[1])); !strings.Contains(other, name) {
				t.Errorf("the status of %s names %s, whose status does not name it", name, m[1])
			}
		}
	}
}
