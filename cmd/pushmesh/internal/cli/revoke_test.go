package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
)

// Operators revoke a user's tokens, see what is revoked, and take it back.
func TestTokensAreRevoked(t *testing.T) {
	t.Parallel()
	is := tokentest.New(t)
	edges, routers := startGuarded(t, is.File(t))
	file := filepath.Join(t.TempDir(), "ann.jwt")
	if err := os.WriteFile(file, []byte(is.Token("ann", map[string]any{"pm_sub": "room/#", "jti": "1", "iat": 1_000_000_000})), 0o600); err != nil {
		t.Fatal(err)
	}
	ann := start(t, nil, with(edges, "sub", "room/1", "--token-file", file)...)
	ann.says("subscribed to")
	auth := func(args ...string) string {
		t.Helper()
		return must(t, "", with(routers, append([]string{"auth"}, args...)...)...)
	}
	if out := auth("revoke", "--user", "ann", "--reason", "left us", "--for", "2d"); !strings.HasPrefix(out, "revoked until 2") {
		t.Errorf("revoke prints %q", out)
	}
	if ann.wait(); ann.code == 0 || !strings.Contains(ann.err.String(), "UNAUTHENTICATED: revoked: the user's tokens are revoked: left us") {
		t.Errorf("ann: exit code %d, %q", ann.code, ann.err.String())
	}
	auth("revoke", "--issuer", "test", "--jti", "7")
	lines := strings.Split(auth("revocations"), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "USER") || !strings.HasPrefix(lines[1], "ann ") || !strings.HasSuffix(lines[1], "left us") || !strings.Contains(lines[2], "test") {
		t.Errorf("revocations prints %q", lines)
	}
	if out := auth("revocations", "--format", "json", "--limit", "1"); !strings.Contains(out, `"user":"ann"`) || strings.Contains(out, "jti") {
		t.Errorf("revocations --format json prints %q", out)
	}
	for _, whose := range [][]string{{"--user", "ann"}, {"--issuer", "test", "--jti", "7"}} {
		if out := auth(append([]string{"restore"}, whose...)...); out != "restored\n" {
			t.Errorf("restore prints %q", out)
		}
	}
	if out := auth("revocations"); strings.Count(out, "\n") != 1 {
		t.Errorf("revocations prints %q after all were restored", out)
	}
	for want, args := range map[string][]string{
		"NOT_FOUND":             {"restore", "--user", "ann"},
		"either --user":         {"revoke"},
		"not both":              {"revoke", "--user", "ann", "--jti", "7"},
		"400 days at most":      {"revoke", "--user", "ann", "--for", "401d"},
		"must be above 0":       {"revoke", "--user", "ann", "--for", "0s"},
		"--limit is below":      {"revocations", "--limit=-1"},
		"reason must be UTF-8":  {"revoke", "--user", "ann", "--reason", "a\nb"},
		"its jti, both":         {"restore", "--issuer", "test"},
		"must not contain /, +": {"revoke", "--user", "a/b"},
	} {
		c := start(t, nil, with(routers, append([]string{"auth"}, args...)...)...)
		if c.wait(); c.code == 0 || !strings.Contains(c.err.String(), want) {
			t.Errorf("%q: exit code %d, %q, want %q", args, c.code, c.err.String(), want)
		}
	}
}
