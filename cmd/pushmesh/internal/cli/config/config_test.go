package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// check finds every fault of a file, its names and its values.
func TestCheckFindsEveryFault(t *testing.T) {
	var out bytes.Buffer
	err := (&Check{File: write(t, "edge.yaml", "listn: :7400\nhttp: nowhere\nlog-level: loud\n"), Tier: "edge"}).Run(cmdline.IO{Out: &out})
	if err == nil || !strings.Contains(err.Error(), "edge.yaml:1: there is no setting \"listn\": did you mean listen?") || !strings.Contains(err.Error(), "loud") {
		t.Errorf("%v", err)
	}
	err = (&Check{File: write(t, "edge.yaml", "http: nowhere\n"), Tier: "edge"}).Run(cmdline.IO{Out: &out})
	for _, want := range []string{"--http", "--open", "--plain-tiers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not %q: %v", want, err)
		}
	}
	if err := (&Check{File: write(t, "edge.yaml", "open: true\nplain-tiers: true\n"), Tier: "edge"}).Run(cmdline.IO{Out: &out}); err != nil || out.String() != "no fault\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	if err := (&Check{File: "/nowhere", Tier: "king"}).Run(cmdline.IO{Out: &out}); err == nil || !strings.Contains(err.Error(), `no tier "king"`) {
		t.Error(err)
	}
}

// What print prints is a file that says the same, but for the secrets, which it hides.
func TestPrintSaysTheSame(t *testing.T) {
	secret := write(t, "db", "postgres://store:hunter2@db/pushmesh\n")
	t.Setenv("PUSHMESH_NATS", "nats://u:hunter3@n1:4222,nats://n2:4222,tls://hunter4@n3:4222,u:hunter5@n4")
	var out bytes.Buffer
	p := &Print{Tier: "store", Config: write(t, "store.yaml", "plain-tiers: true\nwriters: 4\n"), Changed: true, Flags: []string{"--", "--db-file", secret, "--grace=30s"}}
	if err := p.Run(cmdline.IO{Out: &out}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"nats: nats://(hidden)@n1:4222,nats://n2:4222,tls://(hidden)@n3:4222,(hidden)@n4 # PUSHMESH_NATS\n", "writers: 4 # " + p.Config + ":2\n", "plain-tiers: true # " + p.Config + ":1\n", "grace: 30s # --grace\n", "db-file: " + secret + " # --db-file\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "hunter") || strings.Contains(out.String(), "listen") || strings.Contains(out.String(), "db:") {
		t.Errorf("it shows what it should not:\n%s", out.String())
	}
	out.Reset()
	if err := (&Print{Tier: "compute", Flags: []string{"--plain-tiers"}}).Run(cmdline.IO{Out: &out}); err != nil {
		t.Fatal(err)
	}
	again := write(t, "compute.yaml", out.String())
	if err := (&Check{File: again, Tier: "compute"}).Run(cmdline.IO{Out: &out}); err != nil {
		t.Errorf("what it prints is no file of settings: %v", err)
	}
	both := &Print{Tier: "store", Flags: []string{"--plain-tiers", "--db", "sqlite:x", "--db-file", secret}}
	if err := both.Run(cmdline.IO{Out: &out}); err == nil || !strings.Contains(err.Error(), "--db and --db-file exclude each other") {
		t.Error(err)
	}
}

// The examples of this repository have no fault but files that are not here.
func TestExamplesHaveNoFault(t *testing.T) {
	for _, tier := range []string{"edge", "router", "store", "compute"} {
		text, err := os.ReadFile("../../../../../deploy/examples/" + tier + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		secret := write(t, "db", "postgres://store@db/pushmesh\n")
		path := write(t, tier+".yaml", strings.ReplaceAll(string(text), "/etc/pushmesh/db", secret))
		if err := (&Check{File: path, Tier: tier}).Run(cmdline.IO{Out: &bytes.Buffer{}}); err != nil {
			t.Errorf("%s: %v", tier, err)
		}
	}
}
