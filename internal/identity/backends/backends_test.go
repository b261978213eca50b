package backends

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

var corp = []token.Issuer{{Name: "corp", UserPrefix: "corp:"}}

// blank is what no role begins with.
const blank = " "

const sum = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func TestRoles(t *testing.T) {
	for text, ok := range map[string]bool{
		"publisher:orders/#": true, "consumer:#": true, "claimant:seat/+": true, "auditor": true, "operator": true, "consumer:$dead/#": true,
		"publisher": false, "publisher:": false, "publisher:a//b": false, "auditor:x": false, "operator:#": false, "admin": false, "": false, "Operator": false, blank + "auditor": false,
	} {
		r, err := ParseRole(text)
		if (err == nil) != ok || ok && r.String() != text {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
}

func TestMay(t *testing.T) {
	s, err := Parse([]byte(`{"backends": [
		{"name": "p", "roles": ["publisher:orders/#", "publisher:a", "publisher:a/+/#", "consumer:#"]},
		{"name": "o", "roles": ["operator"]}, {"name": "none"}]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		kind   Kind
		filter string
		want   bool
	}{
		{"p", Publisher, "orders", true},
		{"p", Publisher, "orders/1", true},
		{"p", Publisher, "ordersx", false},
		{"p", Publisher, "+/1", false},
		{"p", Publisher, "a/#", true}, // by two roles together
		{"p", Publisher, "#", false},
		{"p", Claimant, "orders/1", false},
		{"p", Consumer, "x/y", true},
		{"p", Consumer, "#", true},
		{"p", Consumer, "$dead/x", false}, // as # does not match it
		{"o", Publisher, "$dead/x", true},
		{"o", Claimant, "x", true},
		{"none", Publisher, "x", false},
	} {
		if got := s.names[c.name].May(c.kind, c.filter); got != c.want {
			t.Errorf("%s %v %s: %v", c.name, c.kind, c.filter, got)
		}
	}
	if !s.names["o"].Has(Auditor) || s.names["p"].Has(Auditor) || !s.names["p"].Has(Auditor|Consumer) || s.names["none"].Has(Consumer) {
		t.Error("roles are not told apart")
	}
	if err := s.names["p"].Refuse(Publisher, "b"); code.Of(err) != wirev1.Code_CODE_FORBIDDEN || !strings.Contains(err.Error(), "publisher:orders/#") {
		t.Errorf("a refusal does not tell the roles: %v", err)
	}
}

func TestFaultsOfTheFile(t *testing.T) {
	for text, want := range map[string]string{
		`x: 1`: "not found", `backends: {}`: "not a backends file", "backends: []\n---\nbackends: []": "more than one document",
		`backends: [{name: ""}]`:                                                                      "name must be",
		`backends: [{name: "a b"}]`:                                                                   "name must be",
		`backends: [{name: a}, {name: a}]`:                                                            "two of this name",
		`backends: [{name: a, role: [auditor]}]`:                                                      "not found",
		`backends: [{name: a, roles: [publisher]}]`:                                                   "needs a filter",
		`backends: [{name: a, limits: {rate: -1}}]`:                                                   "limits.rate",
		`backends: [{name: a, keys: [{id: x, sha256: y}]}]`:                                           "hexadecimal",
		`backends: [{name: a, keys: [{id: 0011223344556677}]}]`:                                       "sha256 must be",
		`backends: [{name: a, keys: [{id: "0011223344556677", sha256: ` + sum + `, expires: soon}]}]`: "not a time",
		`backends: [{name: a, keys: [{id: "0011223344556677", sha256: ` + sum + `}]}, {name: b, keys: [{id: "0011223344556677", sha256: ` + sum + `}]}]`: "two keys",
		`backends: [{name: a, certificates: [x]}, {name: b, certificates: [x]}]`:                                                                         "another backend's",
		`backends: [{name: a, tokens: [{issuer: other, sub: x}]}]`:                                                                                       "none of those in the issuers file",
		`backends: [{name: a, tokens: [{issuer: corp, sub: x}]}, {name: b, tokens: [{issuer: corp, sub: x}]}]`:                                           "two tokens",
		`backends: [{name: a, tokens: [{issuer: corp}]}]`:                                                                                                "sub must be",
	} {
		if _, err := Parse([]byte(text), corp); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if s, err := Parse(nil, nil); err != nil || s.Len() != 0 {
		t.Errorf("an empty file: %v", err)
	}
}

func TestFind(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "backends.yaml")
	_, forever, err := Create(path, "a", []string{"auditor"}, now, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	_, hour, err := Create(path, "a", nil, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(append(data, "    certificates: [orders.example, 'spiffe://x/orders']\n    tokens: [{issuer: corp, sub: svc}]\n"...), corp)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	key := func(text string) Proof {
		p, err := ReadKey(text)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	forged := key(forever)
	forged.KeyID = key(hour).KeyID
	for name, c := range map[string]struct {
		p    Proof
		at   time.Time
		want wirev1.Code
	}{
		"key":                {key(forever), now, wirev1.Code_CODE_OK},
		"key with an end":    {key(hour), now, wirev1.Code_CODE_OK},
		"key that has ended": {key(hour), now.Add(time.Hour), wirev1.Code_CODE_TOKEN_EXPIRED},
		"another's id":       {forged, now, wirev1.Code_CODE_UNAUTHENTICATED},
		"certificate":        {Proof{Certificate: []string{"nobody", "orders.example"}}, now, wirev1.Code_CODE_OK},
		"other certificate":  {Proof{Certificate: []string{"ORDERS.example", "example"}}, now, wirev1.Code_CODE_UNAUTHENTICATED},
		"nothing":            {Proof{}, now, wirev1.Code_CODE_UNAUTHENTICATED},
		"token":              {Proof{Token: Subject{"corp", "corp:svc"}, Expires: now.Add(1)}, now, wirev1.Code_CODE_OK},
		"token that ended":   {Proof{Token: Subject{"corp", "corp:svc"}, Expires: now}, now, wirev1.Code_CODE_TOKEN_EXPIRED},
		"another's token":    {Proof{Token: Subject{"corp", "svc"}}, now, wirev1.Code_CODE_UNAUTHENTICATED},
	} {
		who, _, err := s.Find(&c.p, c.at)
		if code.Of(err) != c.want || (err == nil) != (who != nil) {
			t.Errorf("%s: %v, %v", name, who, err)
		}
	}
	if n := s.Ending(now, now.Add(2*time.Hour)); n != 1 {
		t.Errorf("%d keys end, want 1", n)
	}
}

func TestKeysAreKeptWell(t *testing.T) {
	path := filepath.Join(t.TempDir(), "backends.yaml")
	if err := os.WriteFile(path, []byte("# ours\nbackends:\n  - name: a # first\n    roles: [auditor]\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	k, text, err := Create(link, "a", nil, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Create(path, "a", []string{"operator"}, now, time.Time{}); err == nil {
		t.Error("a key of a backend that is there brought a role")
	}
	if _, _, err := Create(path, "b", nil, now, time.Time{}); err == nil {
		t.Error("a backend without a role was made")
	}
	if _, _, err := Create(path, "b", []string{"publisher:b/#", "consumer:c"}, now, time.Time{}); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link is gone: %v", err)
	}
	for _, want := range []string{"# ours", "# first", k.ID, "2030-01-01T01:00:00Z"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%q is missing in\n%s", want, data)
		}
	}
	if secret := text[strings.LastIndex(text, k.ID)+len(k.ID)+1:]; strings.Contains(string(data), secret) {
		t.Errorf("the secret is in the file:\n%s", data)
	}
	all, err := List(path)
	if err != nil || len(all) != 2 || all[0].Backend != "a" || all[0].ID != k.ID || all[1].Backend != "b" {
		t.Errorf("%v, %v", all, err)
	}
	if err := Revoke(path, k.ID); err != nil {
		t.Error(err)
	}
	if err := Revoke(path, k.ID); err == nil {
		t.Error("a key was revoked twice")
	}
	if all, _ := List(path); len(all) != 1 {
		t.Errorf("%v is left", all)
	}
	if _, err := Read(path, nil); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("%v is left behind, %v", left, err)
	}
}

func TestBadKeys(t *testing.T) {
	_, good, err := NewKey(time.Now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKey(good); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "pmk_", good[1:], good + "x", good[:len(good)-1], strings.Replace(good, "pmk_", "PMK_", 1), good[:len(good)-3] + "\r\nx", "pmk_x_y"} {
		if _, err := ReadKey(bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) && len(bad) > 8 {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// world is a Keeper whose clock and looks a test has in hand.
type world struct {
	*Keeper
	path string
	at   time.Time
}

func keeper(t *testing.T, file string) *world {
	t.Helper()
	w := &world{path: filepath.Join(t.TempDir(), "f"), at: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.write(t, file)
	k, err := Open(Config{Path: w.path, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	k.now = func() time.Time { return w.at }
	w.Keeper = k
	return w
}

func (w *world) write(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(w.path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAChangeOfTheFileEndsCalls(t *testing.T) {
	const before = `backends: [{name: a, roles: [auditor, 'publisher:x'], certificates: [c]}]`
	for file, want := range map[string]wirev1.Code{
		before: wirev1.Code_CODE_OK,
		`backends: [{name: a, roles: ['publisher:x', auditor, 'publisher:y'], certificates: [c]}]`: wirev1.Code_CODE_OK,
		`backends: [{name: a, roles: [operator], certificates: [c]}]`:                              wirev1.Code_CODE_OK,
		`backends: [{name: a, roles: [auditor], certificates: [c]}]`:                               wirev1.Code_CODE_FORBIDDEN,
		`backends: [{name: a, roles: [auditor, 'publisher:x'], certificates: [d]}]`:                wirev1.Code_CODE_UNAUTHENTICATED,
		`backends: [{name: b, roles: [auditor, 'publisher:x'], certificates: [c]}]`:                wirev1.Code_CODE_UNAUTHENTICATED,
		``:             wirev1.Code_CODE_UNAUTHENTICATED,
		`backends: {}`: wirev1.Code_CODE_OK, // a broken file changes nothing
	} {
		w := keeper(t, before)
		var got []error
		c, release, err := w.Hold(&Proof{Certificate: []string{"c"}}, func(err error) { got = append(got, err) })
		if err != nil {
			t.Fatal(err)
		}
		w.write(t, file)
		w.look()
		w.look()
		if want == wirev1.Code_CODE_OK && len(got) != 0 || want != wirev1.Code_CODE_OK && (len(got) != 1 || code.Of(got[0]) != want) {
			t.Errorf("%s: the call ended with %v, want %v", file, got, want)
		}
		if broken := file == `backends: {}`; (w.Check() != nil) != broken || broken && w.Stats(0).Failed != 1 {
			t.Errorf("%s: health says %v", file, w.Check())
		}
		if strings.Contains(file, "publisher:y") && !c.Who().May(Publisher, "y") {
			t.Error("a new role is not had")
		}
		release()
		if n := w.Stats(0).Held; n != 0 {
			t.Errorf("%d calls are held", n)
		}
		w.write(t, before)
		w.look()
		w.look()
		if err := w.Check(); err != nil {
			t.Errorf("%s: once it is good again: %v", file, err)
		}
	}
}

func TestACallEndsWithItsKey(t *testing.T) {
	w := keeper(t, "")
	_, text, err := Create(w.path, "a", []string{"auditor"}, w.at, w.at.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	w.look()
	w.look()
	p, err := ReadKey(text)
	if err != nil {
		t.Fatal(err)
	}
	var got error
	if _, _, err := w.Hold(&p, func(err error) { got = err }); err != nil {
		t.Fatal(err)
	}
	w.at = w.at.Add(time.Minute - 1)
	if w.look(); got != nil {
		t.Fatalf("it ended early: %v", got)
	}
	w.at = w.at.Add(1)
	if w.look(); code.Of(got) != wirev1.Code_CODE_TOKEN_EXPIRED {
		t.Fatalf("it ended with %v", got)
	}
	if _, err := w.Find(&p); code.Of(err) != wirev1.Code_CODE_TOKEN_EXPIRED {
		t.Errorf("a new call: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"backends": [{"name": "a", "roles": ["publisher:x/#"], "keys": [{"id": "0011223344556677", "sha256": "` + sum + `", "expires": "2030-01-01T00:00:00Z"}]}]}`))
	f.Add([]byte("backends:\n- name: a\n  certificates: [b]\n  tokens: [{issuer: corp, sub: s}]\n  limits: {rate: 1, in_flight: 2}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data, corp)
		if err != nil {
			return
		}
		for name, who := range s.names {
			if who.Name != name || checkName(name) != nil {
				t.Errorf("the name %q", name)
			}
			for _, r := range who.Roles {
				if !who.Has(r.Kind) || r.Kind < Auditor && !who.May(r.Kind, r.Filter) {
					t.Errorf("%s has not its role %v", name, r)
				}
			}
		}
		for id, k := range s.keys {
			if who, _, err := s.Find(&Proof{KeyID: id, hash: k.hash}, time.Time{}); err != nil && code.Of(err) != wirev1.Code_CODE_TOKEN_EXPIRED || err == nil && s.names[who.Name] != who {
				t.Errorf("key %s: %v", id, err)
			}
		}
	})
}

// BenchmarkMay is what the roles of a publisher cost each message: with one role, and with the most
// that there may be, the last of which has the topic.
func BenchmarkMay(b *testing.B) {
	for name, n := range map[string]int{"one role": 1, "most roles": maxOfEach} {
		b.Run(name, func(b *testing.B) {
			who := &Identity{has: Publisher}
			for i := range n {
				who.Roles = append(who.Roles, Role{Publisher, fmt.Sprintf("orders/%d/#", n-1-i)})
			}
			b.ReportAllocs()
			for b.Loop() {
				if !who.May(Publisher, "orders/0/created") {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkFind is what finding out who a key is of costs each call.
func BenchmarkFind(b *testing.B) {
	path := filepath.Join(b.TempDir(), "f")
	_, text, err := Create(path, "a", []string{"auditor"}, time.Now(), time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := Read(path, nil)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		p, err := ReadKey(text)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := s.Find(&p, now); err != nil {
			b.Fatal(err)
		}
	}
}
