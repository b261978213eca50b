package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli/claims"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// shownState is a state as the commands print it.
type shownState claims.State

// claimed runs a command about claims that prints one state as JSON.
func claimed(t *testing.T, m *running, args ...string) (shownState, int) {
	t.Helper()
	c := ran(t, "", with(m.router, append([]string{"claim"}, append(args, "--format", "json")...)...)...)
	var st shownState
	if c.out.String() != "" {
		if err := json.Unmarshal([]byte(c.out.String()), &st); err != nil {
			t.Fatalf("%v: %v: out %q err %q", args, err, c.out.String(), c.err.String())
		}
	}
	return st, c.code
}

func (s shownState) is(t *testing.T, what, state string) shownState {
	t.Helper()
	if s.State != state {
		t.Fatalf("%s: %+v, want %s", what, s, state)
	}
	return s
}

func TestClaims(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	for name, test := range map[string]func(*testing.T, *running){
		"places": testPlaces, "of a namespace": testClaimsOfANamespace, "run": testClaimRun, "block": testClaimAcquireBlocks, "list": testClaimList,
	} {
		t.Run(name, func(t *testing.T) { test(t, m) })
	}
}

func testPlaces(t *testing.T, m *running) {
	t.Helper()
	first, code := claimed(t, m, "acquire", "printer/3", "--owner", "ann", "--ttl", "10m")
	if first.is(t, "ann", "GRANTED"); code != 0 || first.Token == 0 || first.ExpiresInMs < 500_000 {
		t.Errorf("code %d, %+v", code, first)
	}
	if again, _ := claimed(t, m, "acquire", "printer/3", "--owner", "ann"); again.Token != first.Token {
		t.Errorf("again: %+v", again)
	}
	if st, code := claimed(t, m, "acquire", "printer/3", "--owner", "bob", "--no-wait"); code != cmdline.ExitNotHeld || st.Holder != "ann" {
		t.Errorf("without waiting: code %d, %+v", code, st)
	}
	if st, code := claimed(t, m, "acquire", "printer/3", "--owner", "bob"); code != cmdline.ExitNotHeld || st.is(t, "bob", "QUEUED").Position != 1 {
		t.Errorf("bob: code %d, %+v", code, st)
	}
	stale := fmt.Sprint(first.Token + 1)
	if st, code := claimed(t, m, "release", "printer/3", "--owner", "ann", "--token", stale); code != cmdline.ExitNotHeld || st.is(t, "a wrong token", "HELD_BY_OTHER").Code != "NOT_HELD" {
		t.Errorf("a wrong token: code %d, %+v", code, st)
	}
	watch := start(t, strings.NewReader(""), with(m.router, "claim", "watch", "printer/3", "--owner", "bob")...)
	watch.says("QUEUED\tposition=1")
	token := fmt.Sprint(first.Token)
	if st, code := claimed(t, m, "release", "printer/3", "--owner", "ann", "--token", token); code != 0 {
		t.Errorf("release: code %d, %+v", code, st)
	}
	watch.says("GRANTED\ttoken=")
	second, _ := claimed(t, m, "check", "printer/3", "--owner", "bob")
	if second.is(t, "bob's turn", "GRANTED"); second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
	if st, code := claimed(t, m, "renew", "printer/3", "--owner", "bob", "--token", fmt.Sprint(second.Token), "--ttl", "20m"); code != 0 || st.ExpiresInMs < 1_100_000 {
		t.Errorf("renew: code %d, %+v", code, st)
	}
	if _, code := claimed(t, m, "renew", "printer/3", "--owner", "ann", "--token", token); code != cmdline.ExitNotHeld {
		t.Errorf("a token of the past renews: code %d", code)
	}
	if st, _ := claimed(t, m, "release", "printer/3", "--owner", "bob", "--token", fmt.Sprint(second.Token)); st.State != "RELEASED" {
		t.Errorf("release: %+v", st)
	}
	if st, code := claimed(t, m, "release", "printer/3", "--owner", "bob", "--token", fmt.Sprint(second.Token)); code != cmdline.ExitNotHeld || st.State != "FREE" {
		t.Errorf("twice: code %d, %+v", code, st)
	}
	if st, code := claimed(t, m, "leave", "printer/3", "--owner", "bob"); code != 0 || st.State != "FREE" {
		t.Errorf("leave: code %d, %+v", code, st)
	}
}

func testClaimsOfANamespace(t *testing.T, m *running) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "claims.json")
	if err := os.WriteFile(file, []byte(`{"holders": 2, "max_waiting": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	put := must(t, "", with(m.router, "namespace", "put", "pool", "--claims", file, "--format", "json")...)
	if put = strings.ReplaceAll(put, " ", ""); !strings.Contains(put, `"claims":{"holders":2,"max_waiting":1}`) {
		t.Errorf("got %s", put)
	}
	for i, want := range []string{"GRANTED", "GRANTED", "QUEUED"} {
		st, _ := claimed(t, m, "acquire", "pool/a", "--owner", fmt.Sprint("o", i))
		st.is(t, fmt.Sprint("the ", i), want)
	}
	c := start(t, strings.NewReader(""), with(m.router, "claim", "acquire", "pool/a", "--owner", "o3")...)
	if code := c.wait(); code != 1 || !strings.Contains(c.err.String(), "OVERLOADED") {
		t.Errorf("a full line: code %d, %s", code, c.err.String())
	}
}

// What runs while a claim is held: it is told the token, its exit code is handed on, others wait
// for it.
func testClaimRun(t *testing.T, m *running) {
	t.Helper()
	run := func(args ...string) *command {
		return start(t, strings.NewReader(""), append(with(m.router, "claim", "run", "deploy/web"), args...)...)
	}
	first := run("--owner", "ann", "--", "sh", "-c", `echo "holds $PUSHMESH_CLAIM_RESOURCE as $PUSHMESH_CLAIM_OWNER with $PUSHMESH_CLAIM_TOKEN"; trap 'exit 9' TERM; sleep 1000 & wait`)
	first.says("holds deploy/web as ann with ")
	second := run("--owner", "bob", "--", "sh", "-c", "exit 5")
	second.says("QUEUED\tposition=1")
	if third := run("--no-wait", "--", "true"); third.wait() != cmdline.ExitNotHeld {
		t.Errorf("without waiting: code %d, %s", third.code, third.err.String())
	}
	held, _ := claimed(t, m, "check", "deploy/web", "--owner", "ann")
	if st, _ := claimed(t, m, "release", "deploy/web", "--owner", "ann", "--token", fmt.Sprint(held.Token)); st.State != "RELEASED" {
		t.Fatalf("release: %+v", st)
	}
	if code := first.wait(); code != claims.ExitLost {
		t.Errorf("a command whose claim was taken away: code %d, %s", code, first.err.String())
	}
	if code := second.wait(); code != 5 {
		t.Errorf("the next: code %d, %s", code, second.err.String())
	}
	if st, _ := claimed(t, m, "check", "deploy/web", "--owner", "bob"); st.State != "FREE" {
		t.Errorf("it was not released: %+v", st)
	}
	if c := run("--", "/does/not/exist"); c.wait() != claims.ExitNotStarted {
		t.Errorf("no such command: code %d, %s", c.code, c.err.String())
	}
	stopped := run("--", "sh", "-c", "echo runs; sleep 1000")
	stopped.says("runs")
	stopped.cancel()
	if code := stopped.wait(); code != 128+15 {
		t.Errorf("interrupted: code %d, %s", code, stopped.err.String())
	}
}

// Who waits with --block is granted it as soon as it is free; an interrupt leaves the line.
func testClaimAcquireBlocks(t *testing.T, m *running) {
	t.Helper()
	first, _ := claimed(t, m, "acquire", "gate", "--owner", "ann")
	bob := start(t, strings.NewReader(""), with(m.router, "claim", "acquire", "gate", "--owner", "bob", "--block")...)
	bob.says("QUEUED\tposition=1")
	eve := start(t, strings.NewReader(""), with(m.router, "claim", "acquire", "gate", "--owner", "eve", "--block")...)
	eve.says("QUEUED\tposition=2")
	bob.cancel()
	if bob.wait() == 0 {
		t.Errorf("interrupted: %s", bob.out.String())
	}
	eve.says("QUEUED\tposition=1")
	claimed(t, m, "release", "gate", "--owner", "ann", "--token", fmt.Sprint(first.Token))
	if code := eve.wait(); code != 0 || !strings.Contains(eve.out.String(), "GRANTED\ttoken=") {
		t.Errorf("code %d, out %q, err %q", code, eve.out.String(), eve.err.String())
	}
	short := start(t, strings.NewReader(""), with(m.router, "claim", "acquire", "gate", "--owner", "joe", "--block", "--wait", "50ms")...)
	if code := short.wait(); code != cmdline.ExitNotHeld || !strings.Contains(short.out.String(), "EXPIRED") {
		t.Errorf("a short wait: code %d, out %q, err %q", code, short.out.String(), short.err.String())
	}
}

func testClaimList(t *testing.T, m *running) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "claims.json")
	if err := os.WriteFile(file, []byte(`{"wait_ttl": "3600s"}`), 0o600); err != nil {
		// nobody comes again
		t.Fatal(err)
	}
	must(t, "", with(m.router, "namespace", "put", "list", "--claims", file)...)
	want := map[string]string{}
	for i := range 6 {
		name := fmt.Sprint("list/", i)
		for _, owner := range []string{"ann", "bob", "eve"} {
			st, _ := claimed(t, m, "acquire", name, "--owner", owner, "--ttl", "10m")
			want[name+" "+owner] = fmt.Sprint(st.Token, " ", st.Position)
		}
	}
	list := func(args ...string) []string {
		return strings.Split(strings.TrimSpace(must(t, "", with(m.router, append([]string{"claim", "list"}, args...)...)...)), "\n")
	}
	got := map[string]string{}
	for _, line := range list("list/", "--format", "json") {
		var p claims.Place
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		got[p.Resource+" "+p.Owner] = fmt.Sprint(p.Token, " ", p.Position)
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if lines := list("list/", "--limit", "7"); len(lines) != 8 || !strings.HasPrefix(lines[0], "RESOURCE") {
		t.Errorf("got %q", lines)
	}
	lines := list("--resource", "list/4")
	for i, want := range []string{"ann holds", "bob 1", "eve 2"} {
		if f := strings.Fields(lines[min(i+1, len(lines)-1)]); len(lines) != 4 || f[0] != "list/4" || f[1]+" "+f[2] != want {
			t.Errorf("got %q", lines)
		}
	}
}
