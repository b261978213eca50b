package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/test/sdk/godriver"
	"github.com/pushmesh/pushmesh/test/sdk/play"
	"github.com/pushmesh/pushmesh/test/sdk/scenes"
)

// asDriver has this test's program be the Go SDK's driver, with that fault.
const asDriver = "PUSHMESH_SDK_DRIVER"

func TestMain(m *testing.M) {
	if fault, ok := os.LookupEnv(asDriver); ok {
		if err := godriver.Run(os.Stdin, os.Stdout, fault); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func load(t *testing.T) []*play.Scene {
	t.Helper()
	all, err := play.Load(scenes.Files)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The Go SDK passes every scene, by both transports.
func TestTheGoSDKPassesAllScenes(t *testing.T) {
	t.Setenv(asDriver, "")
	for _, r := range (play.Suite{Scenes: load(t), Transports: []string{"tcp", "websocket"}, Program: os.Args[:1], Parallel: 8}).Play() {
		switch {
		case r.Err != nil:
			t.Errorf("by %s: %v\n%s", r.Transport, r.Err, strings.Join(r.Story, "\n"))
		case r.Without != "":
			t.Errorf("%s by %s: the Go SDK is without %s", r.Scene.Name, r.Transport, r.Without)
		}
	}
}

// hearTwo has the SDK tell two messages, soon.
const hearTwo = `
# Rules: S-33
client connect {"client_id":"ann"}
edge accepts {}
edge sends welcome {}
client tells connected {}
client subscribe {"name":"chat","filter":"a/b"}
edge gets subscribe {} as s
edge sends subscribed {"id":"$s.id","epoch":1,"head":0,"recovered":true}
client tells subscribed {}
edge sends message {"topic":"a/b","seq":1}
edge sends message {"topic":"a/b","seq":2}
edge sends message {"topic":"a/b","seq":3}
client tells message {"seq":1}
client tells message {"seq":2}
client tells message {"seq":3}
`

// SDKs with a fault fail, and the reason says which.
func TestBrokenSDKsFail(t *testing.T) {
	two, err := play.Parse("two-messages", []byte(hearTwo))
	if err != nil {
		t.Fatal(err)
	}
	all := load(t)
	grows := all[slices.IndexFunc(all, func(s *play.Scene) bool { return s.Name == "back-off-grows" })]
	for _, c := range []struct {
		fault, want string
		scene       *play.Scene
	}{
		{"lose", `client tells message {"seq":2}: seq is 3, want 2`, two},
		{"double", `client tells message {"seq":3}: seq is 2, want 3`, two},
		{"hammer", "at the least", grows},
	} {
		for _, transport := range []string{"tcp", "websocket"} {
			t.Setenv(asDriver, c.fault)
			results := play.Suite{Scenes: []*play.Scene{c.scene}, Transports: []string{transport}, Program: os.Args[:1]}.Play()
			if r := results[0]; r.Err == nil || !strings.Contains(r.Err.Error(), c.want) {
				t.Errorf("an SDK that does %q: %v, want %q", c.fault, r.Err, c.want)
			}
			if failed := play.Table(new(bytes.Buffer), results); failed != 1 {
				t.Errorf("an SDK that does %q: %d scenes are counted as failed", c.fault, failed)
			}
		}
	}
}

// What an SDK does not have is neither passed nor failed, and a program that is no driver fails.
func TestWithout(t *testing.T) {
	sc, err := play.Parse("x", []byte("# Rules: S-1\n# Needs: refresh\nclient connect {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	lacking := []string{"/bin/sh", "-c", `echo '{"told":"ready","transports":["tcp"],"without":["refresh"]}'; cat >/dev/null`}
	play.Table(&table, play.Suite{Scenes: []*play.Scene{sc}, Transports: []string{"tcp"}, Program: lacking}.Play())
	if !strings.Contains(table.String(), "without") || !strings.Contains(table.String(), "0 passed, 0 failed, 1 without") {
		t.Errorf("the table says:\n%s", table.String())
	}
	table.Reset()
	tcpAlone := []string{"/bin/sh", "-c", `echo '{"told":"ready","transports":["tcp"]}'; cat >/dev/null`}
	play.Table(&table, play.Suite{Scenes: load(t), Transports: []string{"websocket"}, Program: tcpAlone}.Play())
	if n := strings.Count(table.String(), "\n"); n != 2 || !strings.Contains(table.String(), fmt.Sprintf("0 passed, 0 failed, %d without", len(load(t)))) {
		t.Errorf("of an SDK without WebSocket the table says:\n%s", table.String())
	}
	if err := run([]string{"-run", "connect", "-transport", "tcp", "--", "/bin/echo", "hello"}, &table); err == nil {
		t.Error("echo passes for an SDK")
	}
}

func TestScenesThatAreNone(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"client connect {}\n", "Rules"},
		{"# Rules: S-1\nedge dances\n", "no such step"},
		{"# Rules: S-1\nedge sends nonsense {}\n", `there is no frame "nonsense"`},
		{"# Rules: S-1\nclient connect {\n", "EOF"},
		{"# Rules: S-1\nedge accepts {} within soon\n", "A..B"},
	} {
		if _, err := play.Parse("x", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

// Scenes name rules that there are, and README names every rule that no scene shows.
func TestRulesHaveScenes(t *testing.T) {
	docs, err := os.ReadFile("../../docs/sdk.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- \*\*(S-\d+)\*\*`).FindAllSubmatch(docs, -1) {
		rules[string(m[1])] = false
	}
	if len(rules) < 80 {
		t.Fatalf("docs/sdk.md has %d rules", len(rules))
	}
	for _, sc := range load(t) {
		for _, rule := range sc.Rules {
			if _, ok := rules[rule]; !ok {
				t.Errorf("%s.scene names %s, which is no rule", sc.Name, rule)
			}
			rules[rule] = true
		}
	}
	_, list, found := strings.Cut(string(readme), "No scene shows ")
	list, _, _ = strings.Cut(list, "\n")
	named := regexp.MustCompile(`S-\d+`).FindAllString(list, -1)
	if !found {
		t.Fatal("README.md does not say which rules no scene shows")
	}
	for rule, shown := range rules {
		if shown == slices.Contains(named, rule) {
			t.Errorf("%s is shown by a scene: %v, README.md says: %v", rule, shown, !shown)
		}
	}
}
