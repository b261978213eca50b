package edge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// An edge starts with those who sign tokens, or on somebody's word that everybody may come in.
func TestAnEdgeIsOpenOnlyWhereThatIsSaid(t *testing.T) {
	for want, s := range map[string]Settings{
		"(--issuers FILE)":          {},
		"(--connect-hook URL)":      {},
		"--open lets everybody in":  {Open: true, ConnectHook: "https://x"},
		"does not go with":          {ConnectHook: "https://x", ClientsWithoutToken: "warn"},
		"--webhook-secret-file":     {Issuers: "x", WebhookSecrets: "y"},
		"users, who are not known":  {Open: true, PermissionHook: "https://x"},
		"--permission-hook-timeout": {Issuers: "x", PermissionHook: "https://x", PermissionHookTimeout: time.Hour},
		"--connect-hook-timeout":    {ConnectHook: "https://x", ConnectHookTimeout: time.Hour},
		"--connect-hook-in-flight":  {ConnectHook: "https://x", ConnectHookInFlight: -1},
		"give one of them":          {Open: true, Issuers: "x"},
		"needs --issuers":           {Open: true, ClientsWithoutToken: "warn"},
		"--token-grace need":        {Open: true, TokenGrace: time.Second},
		"needs --token-expiry":      {Issuers: "x", TokenExpiry: untilReconnect, TokenGrace: time.Second},
		"--token-grace":             {Issuers: "x", TokenGrace: -time.Second},
		"--clients-without-token":   {Issuers: "x", ClientsWithoutToken: "maybe"},
		"--token-expiry \"never\"":  {Issuers: "x", TokenExpiry: "never"},
		"--token-workers":           {Issuers: "x", TokenWorkers: -1},
		"--token-cache":             {Issuers: "x", TokenCache: 1},
		"--outbound-allow":          {Issuers: "x", OutboundAllow: []string{"everywhere"}},
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, s := range []Settings{{Issuers: "x"}, {ConnectHook: "https://x"}, {Issuers: "x", ConnectHook: "https://x"}, {Issuers: "x", PermissionHook: "https://x", WebhookSecrets: "x"}, {ConnectHook: "https://x", PermissionHook: "https://y"}, {ConnectHook: "https://x", TokenGrace: time.Second}} {
		s = s.withDefaults()
		s.PlainTiers = true
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
	if _, err := New(t.Context(), Settings{Flags: tierauth.Flags{PlainTiers: true}, ConnectHook: "file:///x", Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "--connect-hook:") {
		t.Errorf("a URL that is not called: %v", err)
	}
	file := filepath.Join(t.TempDir(), "issuers.yaml")
	if err := os.WriteFile(file, []byte("issuers: [{nme: x}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, name := range map[string]string{"--issuers:": "/nowhere", "nme": file} {
		if _, err := New(t.Context(), Settings{Flags: tierauth.Flags{PlainTiers: true}, Issuers: name, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
