package ca

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// What init and issue make is what a tier starts with.
func TestTheCommandsMakeWhatATierTakes(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	stdio := cmdline.IO{Out: &out}
	issue := &Issue{Dir: dir, Tier: "store", ID: "store-1", Days: 30}
	if err := issue.Run(stdio); err == nil || !strings.Contains(err.Error(), "pushmesh ca init "+dir) {
		t.Errorf("without a CA: %v", err)
	}
	if err := (&Init{Dir: dir}).Run(stdio); err != nil {
		t.Fatal(err)
	}
	if err := issue.Run(stdio); err != nil {
		t.Fatal(err)
	}
	if !tierauth.Lasts(filepath.Join(dir, "store-1.pem"), filepath.Join(dir, "store-1.key"), filepath.Join(dir, "ca.pem"), tierauth.Wanted{Tier: tierauth.Store, Days: 30}) {
		t.Error("no store would start with it")
	}
	if !strings.Contains(out.String(), "store-1.key") {
		t.Errorf("it does not say what it made: %s", out.String())
	}
	if err := issue.Run(stdio); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("again: %v", err)
	}
	for _, name := range []string{"ca", "..", "a/b"} {
		if err := (&Issue{Dir: dir, Client: name, Days: 1, Force: true}).Run(stdio); err == nil || cmdline.ExitCode(err) != 2 {
			t.Errorf("a backend called %q: %v", name, err)
		}
	}
}

// ca revoke makes the list that tiers read, and says what is wrong with a file.
func TestRevokeMakesTheList(t *testing.T) {
	dir := t.TempDir()
	stdio := cmdline.IO{Out: &bytes.Buffer{}}
	for _, run := range []interface{ Run(cmdline.IO) error }{
		&Init{Dir: dir}, &Issue{Dir: dir, Tier: "edge", ID: "e", Days: 3}, &Revoke{Dir: dir, Cert: []string{filepath.Join(dir, "e.pem")}},
	} {
		if err := run.Run(stdio); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadFile(filepath.Join(dir, tierauth.CACRL))
	if err != nil || !strings.Contains(string(list), "X509 CRL") {
		t.Errorf("%s, %v", list, err)
	}
	for _, file := range []string{filepath.Join(dir, "e.key"), filepath.Join(dir, "nobody.pem")} {
		if err := (&Revoke{Dir: dir, Cert: []string{file}}).Run(stdio); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// ca mesh makes what is missing and leaves what is good.
func TestWhatIsMissingIsMade(t *testing.T) {
	dir := t.TempDir()
	run := func(days int, nodes ...string) error {
		return (&Mesh{Dir: dir, Node: nodes, Days: days}).Run(cmdline.IO{Out: &bytes.Buffer{}})
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if err := run(30, "store=store-1"); err != nil {
		t.Fatal(err)
	}
	ca, first := read("ca/ca.pem"), read("store-1/store-1.pem")
	if read("store-1/ca.pem") != ca {
		t.Error("the node does not know the CA")
	}
	if err := run(30, "store=store-1", "nats=nats"); err != nil {
		t.Fatal(err)
	}
	if read("ca/ca.pem") != ca || read("store-1/store-1.pem") != first {
		t.Error("what was good is made anew")
	}
	read("nats/nats.key")
	if err := run(300, "store=store-1"); err != nil { // 30 days are less than a third
		t.Fatal(err)
	}
	if read("store-1/store-1.pem") == first {
		t.Error("what ends soon stays")
	}
	second := read("store-1/store-1.pem")
	if err := os.RemoveAll(filepath.Join(dir, "ca")); err != nil {
		t.Fatal(err)
	}
	if err := run(300, "store=store-1"); err != nil {
		t.Fatal(err)
	}
	if read("store-1/store-1.pem") == second || read("store-1/ca.pem") == ca {
		t.Error("a new CA leaves the old certificates")
	}
	for _, node := range []string{"store", "king=a", "store=../a", "store=ca", "store=", "server=", "nats=n@", "server=db@db,"} {
		if err := run(1, node); err == nil || cmdline.ExitCode(err) != 2 {
			t.Errorf("%s: %v", node, err)
		}
	}
	// Nodes have a folder each: the second would take the place of the first.
	if err := run(1, "store=n1", "edge=n1"); err == nil || cmdline.ExitCode(err) != 2 || !strings.Contains(err.Error(), "n1") {
		t.Errorf("two nodes of one name: %v", err)
	}
	if err := (&Mesh{Dir: dir, Node: []string{"store=a"}, Owner: "me", Days: 1}).Run(cmdline.IO{}); err == nil || !strings.Contains(err.Error(), "UID:GID") {
		t.Errorf("owner: %v", err)
	}
}

// A server that is no node has a certificate for its hosts, and is no tier; another host is another
// certificate.
func TestServersHaveHosts(t *testing.T) {
	dir := t.TempDir()
	leaf := func(nodes ...string) *x509.Certificate {
		t.Helper()
		if err := (&Mesh{Dir: dir, Node: nodes, Days: 30}).Run(cmdline.IO{Out: &bytes.Buffer{}}); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "db", "db.pem"), filepath.Join(dir, "db", "db.key"))
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	first := leaf("server=db")
	if first.VerifyHostname("db") != nil || len(first.DNSNames) != 1 {
		t.Errorf("names: %v", first.DNSNames)
	}
	if again := leaf("server=db"); !again.Equal(first) {
		t.Error("what was good is made anew")
	}
	second := leaf("server=db@db,127.0.0.1")
	if second.Equal(first) || second.VerifyHostname("127.0.0.1") != nil || second.VerifyHostname("db") != nil {
		t.Errorf("names: %v %v", second.DNSNames, second.IPAddresses)
	}
	// the certificate of another kind of the same name is no such one
	third := leaf("nats=db@db,127.0.0.1")
	if third.VerifyHostname(tierauth.NATS.Name()) != nil {
		t.Errorf("names: %v", third.DNSNames)
	}
}
