package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	identities "github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// Where everybody has to prove who they are (clients by tokens, backends by keys, tiers by
// certificates) and every door has TLS, the chat is played, and nothing is missing. Who lacks one
// of it has none of the chat.
func TestTheChatIsPlayedWithEveryDoorShut(t *testing.T) {
	t.Parallel()
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key, err := ca.Write(dir, "server", "127.0.0.1")
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	trust := file("ca.pem", string(ca.PEM()))
	is := tokentest.New(t)
	known := filepath.Join(dir, "backends.yaml")
	backend := func(name, role string) string {
		t.Helper()
		_, text, cannot := identities.Create(known, name, []string{role}, time.Now(), time.Time{})
		err = errors.Join(err, cannot)
		return file(name, text)
	}
	player, other := backend("player", "publisher:room/#"), backend("other", "publisher:other/#")
	admin := backend("admin", "operator")
	ann := file("ann", is.Token("ann", map[string]any{"pm_sub": "room/+/chat"}))
	bob := file("bob", is.Token("bob", map[string]any{"pm_sub": "room/+"}))
	if err != nil {
		t.Fatal(err)
	}
	tls := []string{"--tls-cert", cert, "--tls-key", key, "--tls-required"}
	m := procmesh.Start(t, procmesh.Options{
		Edges: 2, Routers: 2, Stores: 2, DB: pgtest.URL(t), TLS: true,
		RouterArgs: append([]string{"--backends", known}, tls...),
		EdgeArgs:   append([]string{"--issuers", is.File(t), "--outbound-allow", "127.0.0.1"}, tls...),
	})
	pushmesh := func(args ...string) (out string, ok bool) {
		t.Helper()
		c := exec.CommandContext(t.Context(), m.Pushmesh, append(args, "--router", strings.Join(m.RouterAddrs, ","))...)
		var both bytes.Buffer
		c.Stdout, c.Stderr = &both, &both
		err := c.Run()
		return both.String(), err == nil
	}
	if out, ok := pushmesh("namespace", "set", "room", "--durable", "--tls-ca", trust, "--router-token-file", admin); !ok {
		t.Fatal(out)
	}
	replay := func(args ...string) (out string, ok bool) {
		t.Helper()
		return pushmesh(append([]string{"replay", filepath.Join("..", "..", "deploy", "sample", "rooms.jsonl.gz"), "--edge", strings.Join(m.EdgeAddrs, ",")}, args...)...)
	}
	out, ok := replay("--tls-ca", trust, "--token-file", ann, "--router-token-file", player)
	if !ok || !strings.Contains(out, " missing=0 ") {
		t.Errorf("it is not played: %s", out)
	}
	for what, c := range map[string]struct {
		args []string
		says string
	}{
		"without TLS":                {[]string{"--token-file", ann, "--router-token-file", player}, "TLS"},
		"another authority":          {[]string{"--tls", "--token-file", ann, "--router-token-file", player}, "certificate"},
		"no token":                   {[]string{"--tls-ca", trust, "--router-token-file", player}, "UNAUTHENTICATED"},
		"a token for another topic":  {[]string{"--tls-ca", trust, "--token-file", bob, "--router-token-file", player}, "FORBIDDEN"},
		"no key":                     {[]string{"--tls-ca", trust, "--token-file", ann}, "UNAUTHENTICATED"},
		"a key for another topic":    {[]string{"--tls-ca", trust, "--token-file", ann, "--router-token-file", other}, "FORBIDDEN"},
		"a client's token as a key":  {[]string{"--tls-ca", trust, "--token-file", ann, "--router-token-file", ann}, "UNAUTHENTICATED"},
		"a backend's key as a token": {[]string{"--tls-ca", trust, "--token-file", player, "--router-token-file", player}, "UNAUTHENTICATED"},
	} {
		out, ok := replay(append(c.args, "--rooms", "1", "--stall", "3s", "--timeout", "20s")...)
		if ok || !strings.Contains(out, c.says) || strings.Contains(out, " missing=0 ") {
			t.Errorf("%s: no %q in %s", what, c.says, out)
		}
	}
}
