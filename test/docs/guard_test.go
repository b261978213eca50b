package docs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

var (
	codeName   = regexp.MustCompile("`([A-Z][A-Z_]+)`")
	codeInGo   = regexp.MustCompile(`Code_CODE_([A-Z_]+)`)
	metricName = regexp.MustCompile("`pushmesh_(?:edge|store|router)_([a-z0-9_]+)`")
	benchName  = regexp.MustCompile("bench `([a-z-]+)`")
	quoted     = regexp.MustCompile(`"(?:pushmesh_(?:edge|store|router)_)?([a-z0-9_-]+)"`)
	benchPart  = regexp.MustCompile(`Name: "([a-z-]+)"`)
)

// toNobody are codes that an edge counts or reads, and gives to no client.
var toNobody = map[string]string{
	"OK":            "no reason at all",
	"NO_SUBSCRIBER": "a group's message while it has no members: counted alone",
}

// edgeCodes are the codes that the edge's own code names.
func edgeCodes(t *testing.T) map[string]bool {
	t.Helper()
	codes := map[string]bool{}
	for _, path := range files(t, ".go") {
		if !strings.Contains(path, "services/edge/") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "meshtest") || strings.Contains(path, "edgetest") {
			continue
		}
		for _, m := range codeInGo.FindAllStringSubmatch(read(t, path), -1) {
			codes[m[1]] = true
		}
	}
	if len(codes) < 20 {
		t.Fatalf("only %d codes found", len(codes))
	}
	return codes
}

// namesIn are what the first group of a pattern matches in the sources below a folder.
func namesIn(t *testing.T, folder string, pattern *regexp.Regexp, isTest bool) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, path := range files(t, ".go") {
		if strings.Contains(path, folder) && strings.HasSuffix(path, "_test.go") == isTest {
			for _, m := range pattern.FindAllStringSubmatch(read(t, path), -1) {
				names[m[1]] = true
			}
		}
	}
	return names
}

// Every row of docs/guard.md has a metric, a test, and codes that exist; no code that an edge gives
// is missing.
func TestGuardPageIsTrue(t *testing.T) {
	metrics, benches, exist := namesIn(t, "services/", quoted, false), namesIn(t, "test/load/", benchPart, false), namesIn(t, "/", tests, true)
	maps.Copy(metrics, namesIn(t, "/internal/", quoted, false)) // what edges share with others
	missing := edgeCodes(t)
	rows := 0
	for line := range strings.Lines(read(t, root+"/docs/guard.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| situation") {
			continue
		}
		if rows++; len(cells) != 5 {
			t.Errorf("%d cells: %s", len(cells), line)
			continue
		}
		for _, m := range codeName.FindAllStringSubmatch(cells[1], -1) {
			if _, is := wirev1.Code_value["CODE_"+m[1]]; !is {
				t.Errorf("there is no code %s: %s", m[1], line)
			}
			delete(missing, m[1])
		}
		all(t, line, cells[3], metricName, metrics, 1)
		all(t, line, cells[4], named, exist, 1)
		all(t, line, line, benchName, benches, 0)
	}
	if rows < 40 {
		t.Errorf("only %d rows", rows)
	}
	maps.DeleteFunc(missing, func(code string, _ bool) bool { return toNobody[code] != "" })
	if len(missing) > 0 {
		t.Errorf("no row says when a client gets %v", slices.Sorted(maps.Keys(missing)))
	}
}

// all wants what pattern finds in the cell, so many at least, among what there is.
func all(t *testing.T, line, cell string, pattern *regexp.Regexp, exist map[string]bool, least int) {
	t.Helper()
	found := pattern.FindAllStringSubmatch(cell, -1)
	if len(found) < least {
		t.Errorf("nothing named: %s", line)
	}
	for _, m := range found {
		if !exist[m[1]] {
			t.Errorf("there is no %s: %s", m[1], line)
		}
	}
}
