package auth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

type fields = map[string]any

// issuer signs tokens that the issuers file at path trusts.
type issuer struct {
	t      *testing.T
	dir    string
	path   string
	key    ed25519.PrivateKey
	tokens int
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	is := &issuer{t: t, dir: t.TempDir(), key: private}
	is.path = is.write("issuers.yaml", "issuers:\n  - name: corp\n    url: https://id.example\n    keys_file: keys.pem\n    audiences: [mesh]\n")
	is.write("keys.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	return is
}

func (is *issuer) write(name, text string) string {
	is.t.Helper()
	path := filepath.Join(is.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		is.t.Fatal(err)
	}
	return path
}

// token is the name of a file with a good token of ann, but for changes.
func (is *issuer) token(changes fields) string {
	is.t.Helper()
	claims := fields{
		"iss": "https://id.example", "aud": "mesh", "sub": "ann", "jti": "17", "exp": time.Now().Add(time.Hour).Unix(),
		"pm_client": []string{"{user}-*"}, "pm_sub": []string{"room/+/chat", "team/{user}/#"}, "pm_pub": "room/7/chat", "pm_profile": fields{"sport": 0.5},
	}
	maps.Copy(claims, changes)
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			is.t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(fields{"alg": "EdDSA", "typ": "JWT"}) + "." + part(claims)
	is.tokens++
	return is.write(fmt.Sprint("token", is.tokens), signed+"."+base64.RawURLEncoding.EncodeToString(ed25519.Sign(is.key, []byte(signed)))+"\n")
}

// explained runs the command and returns what it prints; no part of the token is in it.
func explained(t *testing.T, c Explain) (string, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	err := c.Run(t.Context(), cmdline.IO{In: strings.NewReader(""), Out: &out, Err: &errOut})
	text := out.String() + errOut.String() + fmt.Sprint(err)
	if c.TokenFile != "" && c.TokenFile != "-" {
		token, readErr := os.ReadFile(c.TokenFile)
		if readErr != nil {
			t.Fatal(readErr)
		}
		for part := range strings.SplitSeq(strings.TrimSpace(string(token)), ".") {
			if strings.Contains(text, part) {
				t.Errorf("a part of the token is printed: %s", text)
			}
		}
	}
	return text, err
}

// What a token allows is allowed, by the rule that says so, and what it does not is refused, with
// what there is instead.
func TestExplainTokens(t *testing.T) {
	is := newIssuer(t)
	good := is.token(nil)
	for _, c := range []struct {
		verb, topic, group, client string
		allowed                    bool
		says                       []string
	}{
		{"subscribe", "room/1/chat", "", "", true, []string{"allowed: ann may subscribe to room/1/chat\n  by room/+/chat (pm_sub[0])\n", "proof: issuer corp, key -, token id 17", "expires: ", "in 1h0m", "policy of a namespace"}},
		{"subscribe", "team/ann/x", "", "ann-phone", true, []string{"by team/ann/# (pm_sub[1]: team/{user}/#)", "allowed: client id ann-phone"}},
		{"subscribe", "user/ann/#", "", "", true, []string{"by user/ann/# (built-in: user/{user}/#)"}},
		{"subscribe", "room/1/chat", "", "bob-phone", false, []string{"allowed: ann may", "refused: client id bob-phone, because client ids may be {user}-*"}},
		{"subscribe", "room/#", "", "", false, []string{"refused: no rule allows ann to subscribe to room/#", "nearest: room/+/chat (pm_sub[0])", "rule: team/ann/#", "rule: user/ann/#"}},
		{"subscribe", "news", "", "", false, []string{"no rule for that verb has a topic in common"}},
		{"publish", "room/7/chat", "", "", true, []string{"by room/7/chat (pm_pub[0])"}},
		{"publish", "room/8/chat", "", "", false, []string{"refused: no rule allows ann to publish to room/8/chat"}},
		{"claim", "seat/1", "", "", false, []string{"refused: no rule allows ann to claim seat/1", "there is no rule for that verb"}},
		{"group", "room/1/chat", "workers", "", false, []string{"refused: no rule allows ann to be in group workers for room/1/chat", "allowed: ann may subscribe to room/1/chat"}},
		{"", "", "", "", true, []string{"user: ann", "client ids: {user}-*", "profile: sport=0.5", "may subscribe to room/+/chat (pm_sub[0])", "may publish to room/7/chat (pm_pub[0])"}},
		{"", "", "", "x", false, []string{"refused: client id x"}},
	} {
		text, err := explained(t, Explain{Issuers: is.path, TokenFile: good, Verb: c.verb, Topic: c.topic, Group: c.group, ClientID: c.client})
		if (err == nil) != c.allowed || err != nil && !errors.Is(err, cmdline.ErrReported) {
			t.Errorf("%s %s %s: %v, allowed is %v\n%s", c.verb, c.topic, c.client, err, c.allowed, text)
		}
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s %s %s: no %q in\n%s", c.verb, c.topic, c.client, want, text)
			}
		}
	}
}

// A token that is not good is refused with what is wrong, and nothing of who it says it is of.
func TestExplainWhyATokenIsRefused(t *testing.T) {
	is, other := newIssuer(t), newIssuer(t)
	for _, c := range []struct {
		file string
		says []string
	}{
		{is.token(fields{"exp": time.Now().Add(-time.Hour).Unix()}), []string{"TOKEN_EXPIRED", "exp"}},
		{is.token(fields{"aud": "else"}), []string{"UNAUTHENTICATED", "aud does not name this mesh"}},
		{is.token(fields{"iss": "https://else.example"}), []string{"UNAUTHENTICATED", "iss"}},
		{is.token(fields{"pm_admin": true}), []string{"UNAUTHENTICATED", "begins with pm_"}},
		{is.token(fields{"pm_sub": "room/{id}"}), []string{"UNAUTHENTICATED", "pm_sub[0]"}},
		{other.token(nil), []string{"UNAUTHENTICATED", "signature"}},
		{is.write("words", "no token"), nil},
		{is.write("garbage", "garbage"), []string{"UNAUTHENTICATED", "three parts"}},
	} {
		for _, format := range []string{"text", "json"} {
			e := Explain{Issuers: is.path, TokenFile: c.file, Verb: "subscribe", Topic: "room/1/chat"}
			e.Format = format
			var out bytes.Buffer
			err := e.Run(t.Context(), cmdline.IO{Out: &out, Err: &out})
			if c.says == nil {
				if cmdline.ExitCode(err) != 2 {
					t.Errorf("a file that is no token: %v", err)
				}
				continue
			}
			if cmdline.ExitCode(err) != 1 || strings.Contains(out.String(), "room/") || strings.Contains(out.String(), "ann") {
				t.Errorf("%v\n%s", err, out.String())
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in %s", want, out.String())
				}
			}
			var a answer
			if format == "json" && (json.Unmarshal(out.Bytes(), &a) != nil || a.Allowed || a.Refusal == nil) {
				t.Errorf("as JSON: %s", out.String())
			}
		}
	}
}

// Where the keys can't be had nothing is known about the token: that is no refusal, and the reason
// is told.
func TestExplainWithoutKeys(t *testing.T) {
	is := newIssuer(t)
	good := is.token(nil)
	if err := os.Remove(filepath.Join(is.dir, "keys.pem")); err != nil {
		t.Fatal(err)
	}
	text, err := explained(t, Explain{Issuers: is.path, TokenFile: good})
	if err == nil || errors.Is(err, cmdline.ErrReported) || cmdline.ExitCode(err) != 1 || !strings.Contains(err.Error(), "UNAVAILABLE") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(text, "the keys of issuer corp: open ") {
		t.Errorf("no reason in %s", text)
	}
}

// Rules can be tried without a token, and what it says as JSON is what it says as text.
func TestExplainUsers(t *testing.T) {
	e := Explain{User: "ann", Grant: []string{"group=workers/jobs/#", "subscribe=jobs/x,y", "subscribe=jobs/#"}, Verb: "group", Group: "workers", Topic: "jobs/7"}
	e.Format = "json"
	var out bytes.Buffer
	if err := e.Run(t.Context(), cmdline.IO{Out: &out}); err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	if !a.Allowed || a.User != "ann" || len(a.Checks) != 2 || a.Checks[0].By[0] != (rule{"group", "workers/jobs/#", "workers/jobs/#", "--grant[0]"}) || a.Checks[1].By[0].Source != "--grant[2]" {
		t.Errorf("%s", out.String())
	}
	e.Group, e.Format = "others", "text"
	if text, err := explained(t, e); !errors.Is(err, cmdline.ErrReported) || !strings.Contains(text, "no rule allows ann to be in group others for jobs/7") {
		t.Errorf("%v %s", err, text)
	}
	e = Explain{User: "ann", Grant: []string{"subscribe=a/+", "subscribe=a/b/+", "subscribe=c/#", "subscribe=+/b/#"}, Verb: "subscribe", Topic: "a/b/#"}
	if text, _ := explained(t, e); !strings.Contains(text, "by +/b/# (--grant[3])") {
		t.Errorf("%s", text)
	}
	e.Grant = e.Grant[:3]
	if text, _ := explained(t, e); !strings.Contains(text, "nearest: a/b/+ (--grant[1])") {
		t.Errorf("%s", text)
	}
}

func TestExplainWrongUsage(t *testing.T) {
	is := newIssuer(t)
	good := is.token(nil)
	for want, e := range map[string]Explain{
		"either --token-file":            {},
		"either --token-file (":          {User: "ann", TokenFile: good, Issuers: is.path},
		"needs --issuers":                {TokenFile: good},
		"--grant is for --user":          {TokenFile: good, Issuers: is.path, Grant: []string{"publish=x"}},
		"--issuers is for":               {User: "ann", Issuers: is.path},
		"--verb and --topic need":        {User: "ann", Verb: "publish"},
		"--verb and --topic":             {User: "ann", Topic: "x"},
		"--verb group and --group":       {User: "ann", Verb: "group", Topic: "x"},
		"--verb group and":               {User: "ann", Verb: "publish", Topic: "x", Group: "g"},
		"must not contain /":             {User: "ann", Verb: "group", Topic: "x", Group: "g/h"},
		"--topic: ":                      {User: "ann", Verb: "publish", Topic: "a//b"},
		"--client-id has 65":             {User: "ann", ClientID: strings.Repeat("x", 65)},
		"--user: the user's name":        {User: "a/b"},
		"must be VERB=FILTER":            {User: "ann", Grant: []string{"publish"}},
		"it must be VERB=FILTER":         {User: "ann", Grant: []string{"read=x"}},
		"--grant[0]: ":                   {User: "ann", Grant: []string{"publish=a//b"}},
		"--issuers: ":                    {TokenFile: good, Issuers: is.path + "x"},
		"not an issuers file":            {TokenFile: good, Issuers: good},
		"--token-file: ":                 {TokenFile: is.dir, Issuers: is.path},
		"standard input has no token in": {TokenFile: "-", Issuers: is.path},
	} {
		err := e.Run(t.Context(), cmdline.IO{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
		if cmdline.ExitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
