package docs

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/pushmesh/pushmesh/services/compute"
	"github.com/pushmesh/pushmesh/services/edge"
	"github.com/pushmesh/pushmesh/services/router"
	"github.com/pushmesh/pushmesh/services/store"
)

var update = flag.Bool("update", false, "write what is generated into the pages")

// TestSettingsTablesAreGenerated compares the tables of settings with the tags that hold defaults
// and help, so that no setting is missing and no default is said twice.
func TestSettingsTablesAreGenerated(t *testing.T) {
	const page = "../../docs/operations.md"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, tier := range []struct {
		name     string
		settings any
	}{{"edge", &edge.Settings{}}, {"router", &router.Settings{}}, {"store", &store.Settings{}}, {"compute", &compute.Settings{}}} {
		begin, end := "<!-- settings: "+tier.name+" -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(text, begin)
		_, after, ended := strings.Cut(rest, end)
		if !ok || !ended {
			t.Fatalf("%s has no place for the settings of %s", page, tier.name)
		}
		text = before + begin + table(t, tier.settings) + end + after
	}
	if text == string(raw) {
		return
	}
	if !*update {
		t.Fatalf("%s does not say what the settings are: go test ./test/docs -run Settings -update", page)
	}
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// table of the flags of settings, in Markdown.
func table(t *testing.T, settings any) string {
	t.Helper()
	app, err := kong.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
	for _, f := range app.Model.Flags {
		if f.Name == "help" {
			continue
		}
		help := strings.ReplaceAll(f.Help, "|", `\|`)
		if see := f.Tag.Get("see"); see != "" {
			if !strings.Contains(see, "#") {
				see = "#" + see
			}
			help += " [More](" + see + ")."
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.Name, shown(f.Default), help)
	}
	b.WriteString("\n")
	return b.String()
}

// shown is a default as people read it.
func shown(value string) string {
	n, err := strconv.Atoi(value)
	switch {
	case value == "":
		return ""
	case err == nil && n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%s (%d GiB)", value, n>>30)
	case err == nil && n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%s (%d MiB)", value, n>>20)
	case err == nil && n >= 1<<17 && n%(1<<10) == 0:
		return fmt.Sprintf("%s (%d KiB)", value, n>>10)
	}
	return value
}
