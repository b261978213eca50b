package auth

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/identity/token"
)

// What proves a token is told with how old it is, where that can be known.
func TestExplainHowOldTheKeysAre(t *testing.T) {
	is := newIssuer(t)
	file := filepath.Join(is.dir, "keys.pem")
	changed := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
	if err := os.Chtimes(file, changed, changed); err != nil {
		t.Fatal(err)
	}
	text, err := explained(t, Explain{Issuers: is.path, TokenFile: is.token(nil)})
	if err != nil || !strings.Contains(text, "keys: read from "+file+", which was changed 3h0m") {
		t.Errorf("%v: %s", err, text)
	}
	text, err = explained(t, Explain{Issuers: is.path, TokenFile: is.token(nil), FormatFlag: cmdline.FormatFlag{Format: "json"}})
	var a answer
	if err != nil || json.Unmarshal([]byte(strings.TrimSuffix(text, "<nil>")), &a) != nil || a.Keys == nil || a.Keys.From != file || a.Keys.Changed != changed.UTC().Format(time.RFC3339) {
		t.Errorf("%v: %s", err, text)
	}
	if text, err = explained(t, Explain{User: "ann"}); err != nil || strings.Contains(text, "keys: ") {
		t.Errorf("nothing is proven, and %s: %v", text, err)
	}
	issuers := []token.Issuer{{Name: "url", JWKSURL: "https://id.example/keys"}, {Name: "found", URL: "https://id.example", Discovery: true}}
	for name, want := range map[string]string{
		"url": "fetched from https://id.example/keys just now; those of an edge may be older", "found": "fetched from the discovery of https://id.example just now",
	} {
		if got := keysOf(issuers, name).show(time.Now()); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if keysOf(issuers, "other") != nil {
		t.Error("keys of nobody")
	}
}
