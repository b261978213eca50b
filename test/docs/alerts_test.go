package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	metricFull   = regexp.MustCompile(`\bpushmesh_(?:edge|router|store|compute|nats|log)_[a-z0-9_]*[a-z0-9]`)
	literal      = regexp.MustCompile(`"([a-z][a-z0-9_]*)"`)
	metricPrefix = regexp.MustCompile(`"(pushmesh_[a-z_]*_)"`)
	histogram    = regexp.MustCompile(`_(?:bucket|sum|count)$`)
	alertRow     = regexp.MustCompile(`(?m)^\| (Pushmesh\w+) \| (\w+) \| (.+) \| .+ \|$`)
	alertRule    = regexp.MustCompile(`alert: (\w+)\n\s+expr: (.+)\n(?:\s+for: .+\n)?\s+labels: \{severity: (\w+)\}`)
)

// metrics reports whether the code registers a metric of some name: under a name that is written
// out, or a prefix and the rest.
func metrics(t *testing.T) func(name string) bool {
	t.Helper()
	names, prefixes := map[string]bool{}, []string{}
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || !strings.Contains(path, "/services/") && !strings.Contains(path, "/internal/") {
			continue
		}
		text := read(t, path)
		for _, m := range literal.FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
		for _, m := range metricPrefix.FindAllStringSubmatch(text, -1) {
			prefixes = append(prefixes, m[1])
		}
	}
	for _, tier := range []string{"edge", "router", "store", "compute"} {
		// "pushmesh_" + tier + "_claim_…"
		prefixes = append(prefixes, "pushmesh_"+tier+"_claim_", "pushmesh_"+tier+"_connect_hook_", "pushmesh_"+tier+"_permission_hook_", "pushmesh_"+tier+"_")
	}
	return func(name string) bool {
		return names[name] || slices.ContainsFunc(prefixes, func(p string) bool {
			rest, ok := strings.CutPrefix(name, p)
			return ok && (names[rest] || rest == "namespaces_version")
		})
	}
}

// Every metric that the rules for Prometheus name exists, and so does every one that a page writes
// out.
func TestMetricsThatPagesNameExist(t *testing.T) {
	exists := metrics(t)
	if exists("pushmesh_edge_nothing_total") || !exists("pushmesh_edge_connections") {
		t.Fatal("metrics are not told apart from what is none")
	}
	paths := append(files(t, ".md"), root+"/deploy/prometheus/pushmesh.rules.yaml")
	named := 0
	for _, path := range paths {
		if strings.Contains(path, "CHANGELOG") || strings.Contains(path, "/adr/") {
			continue // of their time
		}
		for _, name := range metricFull.FindAllString(read(t, path), -1) {
			if named++; !exists(name) && !exists(histogram.ReplaceAllString(name, "")) {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d metrics are named", named)
	}
}

// The page has the rules of the file, with their severities and metrics.
func TestAlertsAreThoseOfTheRules(t *testing.T) {
	rows := map[string][]string{}
	for _, m := range alertRow.FindAllStringSubmatch(read(t, root+"/docs/operations.md"), -1) {
		rows[m[1]] = m[2:]
	}
	rules := alertRule.FindAllStringSubmatch(read(t, root+"/deploy/prometheus/pushmesh.rules.yaml"), -1)
	if len(rules) != 10 || len(rows) != 10 {
		t.Errorf("%d rules and %d rows, 10 of each are expected", len(rules), len(rows))
	}
	for _, r := range rules {
		row := rows[r[1]]
		if row == nil {
			t.Errorf("docs/operations.md does not name %s", r[1])
			continue
		}
		if row[0] != r[3] {
			t.Errorf("%s is %s in the rules and %s on the page", r[1], r[3], row[0])
		}
		for _, name := range metricFull.FindAllString(r[2], -1) {
			if !strings.Contains(row[1], "`"+histogram.ReplaceAllString(name, "")+"`") {
				t.Errorf("the row of %s does not name %s", r[1], name)
			}
		}
	}
}
