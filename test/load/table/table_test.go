package table

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRows(t *testing.T) {
	rows := []Row{
		AtMost("a", 512.04, "B", 512, "redis 2072"), AtMost("b", 0, "1", 0, ""), AtLeast("c", 1999.4, "1/s", 2000, ""),
		AtLeast("d", 2000, "1/s", 2000, ""), Figure("e", 1.23456, "ms", ""), Failed("f", "-", errors.New("gone")),
	}
	met := ""
	for _, r := range rows {
		switch {
		case r.Met == nil:
			met += "-"
		case *r.Met:
			met += "y"
		default:
			met += "n"
		}
	}
	if met != "nyny-n" {
		t.Fatalf("met: %s", met)
	}
	if rows[4].Value != 1.235 || rows[2].Value != 1999 {
		t.Fatalf("rounded to %v and %v", rows[4].Value, rows[2].Value)
	}
	var out strings.Builder
	if err := Print(&out, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"≤ 512", "≥ 2000", "redis 2072", "failed: gone"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	file := filepath.Join(t.TempDir(), "rows.json")
	if err := WriteJSON(file, rows); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name": "a"`, `"goal": 512`, `"goal": null`, `"met": null`, `"met": false`, `"reference": "redis 2072"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if err := WriteJSON("", rows); err != nil {
		t.Fatal(err)
	}
}
