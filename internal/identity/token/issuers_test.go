package token

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Issuers of the same users may be any number: who says so of one of them says so of all.
func TestSameUsersAs(t *testing.T) {
	for _, c := range []struct{ name, same, says string }{
		{"two others name one", " a a", ""},
		{"each names the next", "b c ", ""},
		{"each names the one before", " a b", ""},
		{"in a circle", "b c a", ""},
		{"one is not of them", " a ", "issuer c: it could name users of issuer a"},
		{"none is named", "  ", "issuer b: it could name users of issuer a"},
		{"oneself", "a a a", "issuer a: same_users_as names no other issuer"},
		{"nobody", "x a a", "issuer a: same_users_as names no other issuer"},
	} {
		same := strings.Split(c.same, " ")
		var all []fields
		for i, name := range []string{"a", "b", "c"} {
			all = append(all, fields{"name": name, "url": "https://" + name, "keys_file": "k", "audiences": []string{"m"}, "same_users_as": same[i]})
		}
		_, err := parseIssuers(jsonOf(fields{"issuers": all}))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

const yamlFile = `
# who signs tokens
issuers:
  - name: staff
    url: https://staff.example/
    jwks_url: https://staff.example/keys?v=1
    audiences: [mesh]
    user_prefix: "staff:"
    algorithms: [ES256]
    leeway: 0s
    cooldown: 1s
    refresh: 1m
    max_stale: 24h
  - {name: app, url: urn:app, hs256_secret_file: secrets/app, audiences: [mesh, "other mesh"], user_prefix: "app:"}
  - {name: dev, url: "http://dev:8080/realms/x", discovery: true, allow_insecure: true, audiences: [mesh], user_prefix: "dev:"}
  - {name: old, url: urn:old, keys_file: /etc/keys.pem, audiences: [mesh], same_users_as: staff, user_prefix: "staff:"}
`

const jsonFile = `{"issuers": [
	{"name": "staff", "url": "https://staff.example/", "jwks_url": "https://staff.example/keys?v=1", "audiences": ["mesh"], "user_prefix": "staff:",
	 "algorithms": ["ES256"], "leeway": "0s", "cooldown": "1s", "refresh": "1m", "max_stale": "24h"},
	{"name": "app", "url": "urn:app", "hs256_secret_file": "secrets/app", "audiences": ["mesh", "other mesh"], "user_prefix": "app:"},
	{"name": "dev", "url": "http://dev:8080/realms/x", "discovery": true, "allow_insecure": true, "audiences": ["mesh"], "user_prefix": "dev:"},
	{"name": "old", "url": "urn:old", "keys_file": "/etc/keys.pem", "audiences": ["mesh"], "same_users_as": "staff", "user_prefix": "staff:"}
]}`

// An issuers file may be YAML or JSON; names in it are of its folder, and 0s is 0, not the default.
func TestReadIssuers(t *testing.T) {
	dir := t.TempDir()
	all := []string{"RS256", "PS256", "ES256", "EdDSA"}
	want := []Issuer{
		{
			Name: "staff", URL: "https://staff.example/", JWKSURL: "https://staff.example/keys?v=1", Audiences: []string{"mesh"}, UserPrefix: "staff:",
			Algorithms: []string{"ES256"}, Cooldown: time.Second, Refresh: time.Minute, MaxStale: 24 * time.Hour,
		},
		{
			Name: "app", URL: "urn:app", SecretFile: filepath.Join(dir, "secrets/app"), Audiences: []string{"mesh", "other mesh"}, UserPrefix: "app:",
			Algorithms: []string{"HS256"}, Leeway: DefaultLeeway, Cooldown: time.Second, Refresh: DefaultRefresh,
		},
		{
			Name: "dev", URL: "http://dev:8080/realms/x", Discovery: true, AllowInsecure: true, Audiences: []string{"mesh"}, UserPrefix: "dev:",
			Algorithms: all, Leeway: DefaultLeeway, Cooldown: DefaultCooldown, Refresh: DefaultRefresh,
		},
		{
			Name: "old", URL: "urn:old", KeysFile: "/etc/keys.pem", Audiences: []string{"mesh"}, UserPrefix: "staff:", SameUsersAs: "staff",
			Algorithms: all, Leeway: DefaultLeeway, Cooldown: time.Second, Refresh: DefaultRefresh,
		},
	}
	for name, text := range map[string]string{"issuers.yaml": yamlFile, "issuers.json": jsonFile} {
		path := filepath.Join(dir, name)
		write(t, path, []byte(text))
		got, err := ReadIssuers(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("%s:\n%+v, want\n%+v", name, got[i], want[i])
			}
		}
	}
	if _, err := ReadIssuers(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
	write(t, filepath.Join(dir, "large"), make([]byte, maxFile+1))
	if _, err := ReadIssuers(filepath.Join(dir, "large")); err == nil || !strings.Contains(err.Error(), "longer than 262144 bytes") {
		t.Errorf("a large file: %v", err)
	}
}

// Each wrong value has one sentence, which names the issuer and what the value must be.
func TestWrongIssuers(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		name    string
		changes fields
		says    string
	}{
		{"no name", fields{"name": nil}, "issuer 1: name must be 1 to 64 bytes long"},
		{"long name", fields{"name": long}, "name must be 1 to 64 bytes long"},
		{"name of two lines", fields{"name": "a\nb"}, "name must not contain control characters"},
		{"no url", fields{"url": nil}, "issuer a: url must be 1 to 255 bytes long"},
		{"long url", fields{"url": long}, "url must be 1 to 255 bytes long"},
		{"no keys", fields{"keys_file": nil}, "one of keys_file, jwks_url, discovery and hs256_secret_file, and has 0"},
		{"two sources of keys", fields{"jwks_url": "https://a"}, "and has 2"},
		{"no audience", fields{"audiences": nil}, "audiences is missing"},
		{"empty audience", fields{"audiences": []string{"a", ""}}, "has an empty one"},
		{"none", fields{"algorithms": []string{"none"}}, `algorithm "none" is not supported: it must be`},
		{"HS256 with keys", fields{"algorithms": []string{"ES256", "HS256"}}, "algorithm HS256 does not go with"},
		{"ES256 with a secret", fields{"keys_file": nil, "hs256_secret_file": "s", "algorithms": []string{"ES256"}}, "algorithm ES256 does not go with"},
		{"prefix with a level", fields{"user_prefix": "a/"}, "user_prefix"},
		{"prefix with a control character", fields{"user_prefix": "a\u0001"}, "user_prefix"},
		{"prefix with $", fields{"user_prefix": "$a"}, "user_prefix"},
		{"long prefix", fields{"user_prefix": strings.Repeat("x", 65)}, "user_prefix must be at most 64 bytes long"},
		{"leeway", fields{"leeway": "6m"}, "leeway is 6m0s, it must be 0s to 5m0s"},
		{"leeway below 0", fields{"leeway": "-1s"}, "leeway is -1s, it must be"},
		{"leeway without a unit", fields{"leeway": 30}, "not an issuers file"},
		{"cooldown", fields{"cooldown": "100ms"}, "cooldown is 100ms, it must be 1s to refresh"},
		{"cooldown of 0", fields{"cooldown": "0s"}, "cooldown is 0s, it must be 1s to refresh"},
		{"cooldown above refresh", fields{"cooldown": "2m", "refresh": "1m"}, "cooldown is 2m0s, it must be 1s to refresh, which is 1m0s"},
		{"refresh", fields{"refresh": "25h"}, "refresh is 25h0m0s, it must be 24h0m0s at most"},
		{"max_stale", fields{"max_stale": "1m"}, "max_stale is 1m0s, it must be refresh, which is 10m0s, at least"},
		{"max_stale below 0", fields{"max_stale": "-1h"}, "max_stale is -1h0m0s"},
		{"http", fields{"keys_file": nil, "jwks_url": "http://a"}, "jwks_url must begin with https://"},
		{"file", fields{"keys_file": nil, "jwks_url": "file:///a", "allow_insecure": true}, "jwks_url must"},
		{"password", fields{"keys_file": nil, "jwks_url": "https://u:" + "s3cr3t@a"}, "jwks_url must be an absolute URL without a user"},
		{"discovery without a host", fields{"keys_file": nil, "discovery": true, "url": "urn:a"}, "url, with discovery, must be an absolute URL"},
		{"discovery with a query", fields{"keys_file": nil, "discovery": true, "url": "https://a/?x=1"}, "url, with discovery, must have no query"},
		{"unknown field", fields{"audience": "m"}, "field audience not found"},
		{"text for a list", fields{"audiences": fields{"a": 1}}, "not an issuers file"},
	} {
		issuer := fields{"name": "a", "url": "https://a", "keys_file": "k", "audiences": []string{"m"}}
		for name, value := range c.changes {
			if issuer[name] = value; value == nil {
				delete(issuer, name)
			}
		}
		_, err := parseIssuers(jsonOf(fields{"issuers": []fields{issuer}}))
		switch {
		case err == nil || !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		case strings.Contains(err.Error(), "s3cr3t"):
			t.Errorf("%s: %v", c.name, err)
		case !strings.Contains(err.Error(), "not an issuers file") && strings.Count(err.Error(), "\n") != 0:
			t.Errorf("%s: one fault has more than one sentence: %v", c.name, err)
		}
	}
	for name, c := range map[string]struct{ text, says string }{
		"empty":         {"", "not an issuers file"},
		"null":          {"issuers:", "there are 0 issuers, it must be 1 to 32"},
		"none":          {"issuers: []", "there are 0 issuers"},
		"33":            {"issuers: [" + strings.Repeat("{},", 33) + "]", "there are 33 issuers"},
		"another field": {"issuer: []", "field issuer not found"},
		"two documents": {"issuers: []\n---\nissuers: []", "more than one document"},
		"field twice":   {"issuers: [{name: a, name: b}]", "already"},
		"one name":      {"issuers: [{name: a, url: u, keys_file: k, audiences: [m]}, {name: a, url: v, keys_file: k, audiences: [m]}]", "two of this name"},
		"one url":       {"issuers: [{name: a, url: u, keys_file: k, audiences: [m]}, {name: b, url: u, keys_file: k, audiences: [m], same_users_as: a}]", "issuer a has the same url"},
		"prefix":        {"issuers: [{name: a, url: u, keys_file: k, audiences: [m], user_prefix: a}, {name: b, url: v, keys_file: k, audiences: [m], user_prefix: ab}]", "could name users of issuer a"},
	} {
		if _, err := parseIssuers([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// Every fault is told at once.
func TestAllFaultsAreTold(t *testing.T) {
	_, err := parseIssuers([]byte(`issuers: [{name: a, url: u, audiences: [m], leeway: 1h}, {name: b, keys_file: k}]`))
	for _, says := range []string{"issuer a: it needs one of", "issuer a: leeway", "issuer b: url", "issuer b: audiences", "issuer b: it could name"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: nothing of %q", err, says)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 5 {
		t.Errorf("%d faults:\n%v", n, err)
	}
}
