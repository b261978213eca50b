package meshfile_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/meshfile"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/meshfile/meshfiletest"
	"github.com/pushmesh/pushmesh/internal/strictyaml"
)

// Every fault of a file is told at once, each with its line.
func TestFaultsOfAFile(t *testing.T) {
	for text, wants := range map[string][]string{
		"namespace: {}\nteams:\n": {`f:1: there is no section "namespace": did you mean namespaces?; there are models, namespaces, teams, backends`},
		"namespaces:\n  orders:\n    durable: yes\n    retentoin: 7d\n    ack_timeout: 5\n    max_payload: 1KiB\n    overflow: explode\n    claims: {ttl: 1, holders: -1}\n": {
			`f:3: namespaces.orders.durable: "yes" must be true or false`, `f:4: namespaces.orders has no field "retentoin": did you mean retention?`,
			`f:5: namespaces.orders.ack_timeout: "5" is not a duration`, `f:6: namespaces.orders.max_payload: "1KiB" must be a whole number`,
			`f:7: namespaces.orders.overflow: "explode" must be one of default, drop-oldest, conflate, disconnect`,
			`f:8: namespaces.orders.claims.ttl: "1" is not a duration`, `f:8: namespaces.orders.claims.holders: "-1" must be a whole number`,
		},
		"namespaces:\n  a//b:\n    durable: true\n  orders:\n    durable: true\n    retention: 9000h\n    claims:\n      ttl: 1ms\n  orders: {}\n": {
			"f:2: namespaces.a//b: prefix", "f:6: namespaces.orders: retention is 9000h", "f:8: namespaces.orders: claims.ttl is 1ms", "f:9: orders is there twice, first in line 4",
		},
		"namespaces:\n  news:\n    rank:\n      weighted: {weights: {a: x}}\n  old:\n    rank:\n    claims: [a]\n": {
			`f:4: namespaces.news.rank.weighted.weights.a: "x" must be a number`, "f:6: namespaces.old.rank has nothing below it", "f:7: namespaces.old.claims must have lines of the form NAME: VALUE below it",
		},
		"namespaces:\n  news:\n    rank: {expression: {expression: 'features.'}}\n": {"f:3: namespaces.news: rank"},
		"namespaces:\n  p:\n    claims: {prepare: {url: 'http://u:p@x/'}}\n":        {"f:3: namespaces.p: claims.prepare.url has a user name"},
		"namespaces: [orders]\n":                          {"f:1: namespaces must have lines"},
		"namespaces: &a\n  x: {durable: true}\n  y: *a\n": {"f:3: namespaces.y must have lines"},
		"teams:\n  a/b:\n    subscribe: [doc/#]\n  c:\n    subscribe: doc/#\n    members: [ann, ann, 'x/y']\n    name: c\n  d: {group: [x]}\n": {
			"f:2: teams.a/b: the team's name must not", "f:4: teams.c: members: \"ann\" is there twice", "f:4: teams.c: members: \"x/y\"",
			"f:5: teams.c.subscribe: it must be a list", `f:7: teams.c has no field "name"`, "f:8: teams.d: group",
		},
		"models:\n  Clicks: {file: x}\n  good:\n    format: onnx\n    colums: [a]\n  more: {comment: " + strings.Repeat("x", 1025) + ", file: y}\n": {
			"f:2: models.Clicks: model: the name", "f:3: models.good: file is missing", `f:4: models.good.format: "onnx"`, `f:5: models.good has no field "colums": did you mean columns?`, "f:6: models.more: comment has 1025 bytes",
		},
		"backends:\n  a b: {}\n  c:\n    roles: [king]\n    key: pmk_x\n    key_expires: 0s\n    limits: {rate: many, per: 1}\n    tokens: {issuer: corp}\n  d:\n    certificates: [x]\n    key_expires: 90d\n  e: {certificates: [x], tokens: [{issuer: corp}]}\n": {
			"f:2: backends.a b: name must be", `f:3: backends.c: role "king"`, "f:5: backends.c.key must be true or false: keys themselves are never in this file", "f:6: backends.c.key_expires",
			`f:7: backends.c.limits.rate: "many"`, `f:7: backends.c.limits has no field "per"`, "f:8: backends.c.tokens must be a list", "f:9: backends.d: key_expires is for a key",
			`f:12: backends.e: certificate "x" is another`, "f:12: backends.e: tokens: sub must",
		},
		"a: b: c\n":                     {"f: yaml:"},
		"namespaces: {}\nteams:\n":      {"f:2: teams has nothing below it"},
		"teams: {}\n---\nnamespaces:\n": {"f:1: there must be one document"},
	} {
		_, faults := meshfile.Parse([]byte(text))
		err := strictyaml.Join("f", faults)
		if err == nil {
			t.Errorf("%q: no fault", text)
			continue
		}
		got := strings.Split(err.Error(), "\n")
		for _, want := range wants {
			if !slices.ContainsFunc(got, func(one string) bool { return strings.HasPrefix(one, want) }) {
				t.Errorf("%q: lacks %q:\n%s", text, want, err)
			}
		}
	}
}

// A user that would be in too many teams is told before the mesh refuses it.
func TestMembersOfTooManyTeams(t *testing.T) {
	text := "teams:\n"
	for _, name := range strings.Split("abcdefghi", "") {
		text += "  " + name + ": {members: [ann]}\n"
	}
	_, faults := meshfile.Parse([]byte(text))
	if err := strictyaml.Join("f", faults); err == nil || err.Error() != `f:10: teams.i: members: "ann" would be in more than 8 teams` {
		t.Error(err)
	}
}

// A word for an enum, and what JSON calls it, are the same; a duration of 0 is the default.
func TestWaysToWriteAPolicy(t *testing.T) {
	short, faults := meshfile.Parse([]byte("namespaces:\n  a: {overflow: drop-oldest, client_subscribe: none, retention: 0s, rank: {rest: skip, weighted: {}}}\n"))
	long, more := meshfile.Parse([]byte("namespaces:\n  a: {overflow: OVERFLOW_DROP_OLDEST, client_subscribe: CLIENT_SUBSCRIBE_NONE, rank: {rest: REST_SKIP, weighted: {}}}\n"))
	if len(faults)+len(more) > 0 || !proto.Equal(short.Namespaces[0].Namespace, long.Namespaces[0].Namespace) {
		t.Errorf("%v %v: %v, %v", faults, more, short.Namespaces, long.Namespaces)
	}
}

// What a file says is what is read of what is written of it.
func TestFilesAreReadAsTheyAreWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := meshfiletest.File(t)
		text, err := f.Write()
		if err != nil {
			t.Fatal(err)
		}
		got, faults := meshfile.Parse(text)
		if len(faults) > 0 {
			t.Fatalf("%v\n%s", strictyaml.Join("f", faults), text)
		}
		if again, err := got.Write(); err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%v:\n%s\n%s", err, text, again)
		}
		for i := range f.Namespaces {
			if !proto.Equal(f.Namespaces[i].Namespace, got.Namespaces[i].Namespace) {
				t.Fatalf("%v is read as %v from\n%s", f.Namespaces[i].Namespace, got.Namespaces[i].Namespace, text)
			}
		}
		for i := range f.Teams {
			if !proto.Equal(f.Teams[i].Team, got.Teams[i].Team) || !slices.Equal(f.Teams[i].Members, got.Teams[i].Members) || f.Teams[i].Managed != got.Teams[i].Managed {
				t.Fatalf("%v is read as %v from\n%s", f.Teams[i], got.Teams[i], text)
			}
		}
	})
}

// FuzzParse looks for files that end the reader, or that it takes for something else once they are
// written again.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("../../../../deploy/examples/mesh.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("namespaces:\n  a: {claims: {}, rank: {weighted: {weights: {'1': 1e3}, now: 2030-01-01T00:00:00Z}}}\nteams: {b: {members: []}}\n"))
	f.Add([]byte("backends: {a: {roles: ['consumer:#'], tokens: [{issuer: x, sub: y}], limits: {rate: 1}, key: true}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		one, faults := meshfile.Parse(data)
		if len(faults) > 0 {
			return
		}
		text, err := one.Write()
		if err != nil {
			t.Fatal(err)
		}
		two, faults := meshfile.Parse(text)
		if len(faults) > 0 {
			t.Fatalf("%v\n%s", strictyaml.Join("f", faults), text)
		}
		if again, err := two.Write(); err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%v:\n%s\n%s", err, text, again)
		}
	})
}
