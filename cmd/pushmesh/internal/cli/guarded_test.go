package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/services/edge"
	tier "github.com/pushmesh/pushmesh/services/router"
	"github.com/pushmesh/pushmesh/services/store"
)

// startGuarded starts a mesh whose edge wants a token of the issuers in a file, and returns the
// flags that lead to it.
func startGuarded(t *testing.T, issuers string) (edges, routers []string) {
	t.Helper()
	const any = "127.0.0.1:0"
	m := inprocess.New(inprocess.Settings{
		Stores:  []store.Settings{{ID: "s", Listen: any, HTTP: any, LogLevel: "error", DB: "sqlite:" + filepath.Join(t.TempDir(), "db")}},
		Routers: []tier.Settings{{Open: true, ID: "r", Listen: any, HTTP: any, LogLevel: "error"}},
		Edges:   []edge.Settings{{ID: "e", Listen: any, HTTP: any, LogLevel: "error", Issuers: issuers, OutboundAllow: []string{"127.0.0.1"}}},
	})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := m.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := m.Ready(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
	return []string{"--edge", m.Edges[0].Part.Addr()}, []string{"--router", m.Routers[0].Part.Addr()}
}

// What auth explain says of a token is what an edge does with it.
func TestExplainSaysWhatAnEdgeDoes(t *testing.T) {
	t.Parallel()
	is := tokentest.New(t)
	issuers := is.File(t)
	edges, routers := startGuarded(t, issuers)
	dir := t.TempDir()
	token := func(name string, changes map[string]any) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(is.Token("ann", changes)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := token("good", map[string]any{"pm_sub": []string{"room/+/chat", "room/+", "+"}, "pm_client": "{user}-*", "pm_group": "workers/room/+/chat"})
	for _, c := range []struct {
		file, filter, client, group string
		refusal                     string // "": none
	}{
		{good, "room/7/chat", "ann-1", "", ""},
		{good, "room/+/chat", "ann-1", "", ""},
		{good, "user/ann/#", "ann-1", "", ""},
		{good, "room/7/chat", "ann-1", "workers", ""},
		{good, "room/7/chat", "ann-1", "others", "FORBIDDEN"},
		{good, "room/#", "ann-1", "", "FORBIDDEN"},
		{good, "user/bob/#", "ann-1", "", "FORBIDDEN"},
		{good, "$dead/#", "ann-1", "", "FORBIDDEN"},
		{good, "room/7/chat", "bob-1", "", "FORBIDDEN"},
		{token("late", map[string]any{"exp": 1_000_000_000}), "room/7/chat", "ann-1", "", "TOKEN_EXPIRED"},
		{token("else", map[string]any{"aud": "else"}), "room/7/chat", "ann-1", "", "UNAUTHENTICATED"},
	} {
		explain := []string{"auth", "explain", "--issuers", issuers, "--token-file", c.file, "--verb", "subscribe", "--topic", c.filter, "--client-id", c.client}
		args := []string{"sub", c.filter, "--token-file", c.file, "--client-id", c.client}
		if c.group != "" {
			explain[7] = "group"
			explain, args = append(explain, "--group", c.group), append(args, "--group", c.group)
		}
		want := 0
		if c.refusal != "" {
			want = 1
		}
		said := ran(t, "", explain...)
		if said.code != want || (c.refusal == "TOKEN_EXPIRED" || c.refusal == "UNAUTHENTICATED") && !strings.Contains(said.out.String(), c.refusal) {
			t.Errorf("%v: explain ends with %d: %s %s", c, said.code, said.out.String(), said.err.String())
		}
		sub := start(t, nil, with(edges, args...)...)
		if c.refusal == "" {
			sub.says("subscribed to")
			sub.cancel()
			sub.wait()
			continue
		}
		if code := sub.wait(); code != 1 || !strings.Contains(sub.err.String(), c.refusal) {
			t.Errorf("%v: sub ends with %d: %s", c, code, sub.err.String())
		}
	}
	if none := ran(t, "", with(edges, "sub", "room/7/chat")...); none.code != 1 || !strings.Contains(none.err.String(), "UNAUTHENTICATED") {
		t.Errorf("without a token: exit code %d, %s", none.code, none.err.String())
	}
	sub := start(t, nil, with(edges, "sub", "room/+/chat", "--token-file", good, "--client-id", "ann-1", "--count", "1")...)
	sub.says("subscribed to")
	must(t, "", with(routers, "pub", "room/7/chat", "hello")...)
	if code := sub.wait(); code != 0 || !strings.HasSuffix(sub.out.String(), "\thello\n") {
		t.Errorf("exit code %d: %q %s", code, sub.out.String(), sub.err.String())
	}
	if out := must(t, "", with(routers, "doctor", "--token-file", token("doctor", map[string]any{"pm_sub": []string{"room/+", "+"}}))...); !strings.Contains(out, "at the last of 1 edge") {
		t.Errorf("doctor prints %s", out)
	}
	if bad := ran(t, "", with(routers, "doctor")...); bad.code != 1 || !strings.Contains(bad.out.String(), "--token-file") {
		t.Errorf("doctor without a token ends with %d: %s", bad.code, bad.out.String())
	}
}
