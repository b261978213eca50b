package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/test/sdk/play"
	"github.com/pushmesh/pushmesh/test/sdk/scenes"
)

func load(t *testing.T) []*play.Scene {
	t.Helper()
	all, err := play.Load(scenes.Files)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The table of README.md has every scene with its rules, in order, no other, and none that failed.
// It needs no SDK: where this fails, scripts/sdk-table plays all scenes and writes the table.
func TestTheTableHasEveryScene(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, written, _, err := cut(string(page))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(written), "\n")
	if got := strings.Split(lines[0], " | "); len(got) != 7 || got[2] != "Go, TCP" || !strings.HasPrefix(got[6], "TypeScript, WebSocket") {
		t.Fatalf("the table has the columns %q", got)
	}
	lines = lines[2:]
	for i, s := range load(t) {
		if i >= len(lines) {
			t.Fatalf("%s.scene is not in the table: scripts/sdk-table", s.Name)
		}
		cells := strings.Split(strings.Trim(lines[i], "| "), "|")
		for n := range cells {
			cells[n] = strings.TrimSpace(cells[n])
		}
		if cells[0] != "`"+s.Name+"`" || cells[1] != strings.Join(s.Rules, ", ") {
			t.Fatalf("the table has %s with %s where %s.scene with %q should be: scripts/sdk-table", cells[0], cells[1], s.Name, s.Rules)
		}
		for _, c := range cells[2:] {
			if !regexp.MustCompile(`^(passed|without [a-z]+|)$`).MatchString(c) {
				t.Errorf("%s has a cell %q", s.Name, c)
			}
		}
	}
	if more := len(lines) - len(load(t)); more > 0 {
		t.Errorf("the table has %d scenes more than there are: %q", more, lines[len(lines)-more:])
	}
}

// What is written is what came: a column for each transport that an SDK has, and empty cells for
// scenes that are not of it.
func TestTables(t *testing.T) {
	scene := func(name, more string) *play.Scene {
		s, err := play.Parse(name, []byte("# Rules: S-1, S-2\n"+more+"client connect {}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := scene("a", ""), scene("b", "# Transports: websocket\n")
	columns := columnsOf("Both", []play.Result{
		{Scene: a, Transport: "tcp"}, {Scene: a, Transport: "websocket", Err: errors.New("no")}, {Scene: b, Transport: "websocket", Without: "refresh"},
	})
	columns = append(columns, columnsOf("One", []play.Result{
		{Scene: a, Transport: "tcp", Without: "tcp"}, {Scene: a, Transport: "websocket"}, {Scene: b, Transport: "websocket"},
	})...)
	const want = `| scene | rules | Both, TCP | Both, WebSocket | One, WebSocket |
| --- | --- | --- | --- | --- |
| ` + "`a`" + ` | S-1, S-2 | passed | failed | passed |
| ` + "`b`" + ` | S-1, S-2 |  | without refresh | passed |
`
	got := table([]*play.Scene{a, b}, columns)
	if got != want {
		t.Errorf("the table is\n%s", got)
	}
	page, err := replace("before\n"+begins+"old\n"+ends+"after\n", got)
	if err != nil || page != "before\n"+begins+"\n"+want+"\n"+ends+"after\n" {
		t.Errorf("the page is %v\n%s", err, page)
	}
	if _, err := replace("no marks", got); err == nil {
		t.Error("a page without a place for the table was taken")
	}
}

// A scene that fails leaves the page as it is, and says why.
func TestNothingIsWrittenOfScenesThatFail(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	const text = begins + "old\n" + ends
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	err := run([]string{"-page", page, "-parallel", "64", "Echo /bin/echo hello"})
	if err == nil || !strings.Contains(err.Error(), "Echo, connect by tcp") {
		t.Errorf("echo is an SDK: %v", err)
	}
	if err := run([]string{"-page", page}); err == nil {
		t.Error("a table of no SDK")
	}
	if now, err := os.ReadFile(page); err != nil || string(now) != text {
		t.Errorf("the page was changed to %s, %v", now, err)
	}
}
