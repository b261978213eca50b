// Package tokentest is an issuer of tokens for tests: it serves its keys on loopback, and signs
// whatever it is told to.
package tokentest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Audience of the tokens.
const Audience = "pushmesh"

// Issuer signs with ES256. It is safe for concurrent use.
type Issuer struct {
	URL string // is iss, and where the keys are

	mu      sync.Mutex
	keys    []*ecdsa.PrivateKey // the last one signs
	fetches atomic.Int64
}

// New makes an issuer with one key. Its server ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	is, end := Open()
	t.Cleanup(end)
	return is
}

// Open is New without a test; end ends its server.
func Open() (is *Issuer, end func()) {
	is = &Issuer{}
	is.Rotate()
	server := httptest.NewServer(is)
	is.URL = server.URL
	return is, server.Close
}

// Rotate has another key sign from now on. The ones before are served until Forget.
func (is *Issuer) Rotate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // there is no randomness
	}
	is.mu.Lock()
	defer is.mu.Unlock()
	is.keys = append(is.keys, key)
}

// Forget serves the last key alone.
func (is *Issuer) Forget() {
	is.mu.Lock()
	defer is.mu.Unlock()
	for i := range len(is.keys) - 1 {
		is.keys[i] = nil
	}
}

// Fetches is how often the keys were asked for.
func (is *Issuer) Fetches() int64 { return is.fetches.Load() }

// ServeHTTP answers with the JWK set, and says where it is (OpenID Connect Discovery).
func (is *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/.well-known/openid-configuration" {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": is.URL, "jwks_uri": is.URL + "/keys"})
		return
	}
	is.fetches.Add(1)
	is.mu.Lock()
	defer is.mu.Unlock()
	var all []map[string]any
	for i, key := range is.keys {
		if key == nil {
			continue
		}
		point, err := key.PublicKey.Bytes()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		all = append(all, map[string]any{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": kid(i), "x": b64(point[1:33]), "y": b64(point[33:]),
		})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": all})
}

func kid(i int) string { return fmt.Sprint("key-", i) }

func b64(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// Token of a user, good for an hour. Claims take the place of those that it has by default, or are
// added; nil values take them away.
func (is *Issuer) Token(user string, claims map[string]any) string {
	now := time.Now().Unix()
	all := map[string]any{"iss": is.URL, "aud": Audience, "sub": user, "iat": now, "exp": now + 3600}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	is.mu.Lock()
	defer is.mu.Unlock()
	last := len(is.keys) - 1
	text := b64(encode(map[string]any{"alg": "ES256", "typ": "JWT", "kid": kid(last)})) + "." + b64(encode(all))
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, is.keys[last], sum[:])
	if err != nil {
		panic(err)
	}
	var signature [64]byte
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + b64(signature[:])
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // a test's claims
	}
	return data
}

// File writes an issuers file with this issuer alone. The keys' address must be listed in
// --outbound-allow.
func (is *Issuer) File(t testing.TB) string {
	t.Helper()
	file, err := is.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Write writes it into a folder. Its keys are found by discovery.
func (is *Issuer) Write(folder string) (file string, err error) {
	file = filepath.Join(folder, "issuers.yaml")
	text := fmt.Sprintf("issuers:\n- name: test\n  url: %s\n  discovery: true\n  allow_insecure: true\n  audiences: [%s]\n  cooldown: 1s\n", is.URL, Audience)
	return file, os.WriteFile(file, []byte(text), 0o600)
}
