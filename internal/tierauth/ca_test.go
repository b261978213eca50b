package tierauth

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What the CA signs is taken by the tiers, and keys are for their owner alone.
func TestACAMakesWhatTiersTake(t *testing.T) {
	dir := t.TempDir()
	_, err := NewCA(dir, false)
	need(t, err)
	ca, err := OpenCA(dir)
	need(t, err)
	for _, tier := range Tiers() {
		w := Wanted{Tier: tier, ID: string(tier) + "-1", Hosts: []string{"host.example", "10.0.0.1"}, Days: 30}
		out := filepath.Join(dir, "certs")
		need(t, ca.Issue(w, out, false))
		file := filepath.Join(out, string(tier)+"-1")
		i, err := Open(Config{Flags: Flags{MeshCert: file + ".pem", MeshKey: file + ".key", MeshCA: filepath.Join(dir, CACert)}, Tier: tier})
		need(t, err)
		leaf := i.First().Leaf
		for _, host := range w.Hosts {
			need(t, leaf.VerifyHostname(host))
		}
		if left := time.Until(leaf.NotAfter); left > 30*24*time.Hour || left < 29*24*time.Hour {
			t.Errorf("%s is good for %v", tier, left)
		}
		mode(t, file+".key")
	}
	mode(t, filepath.Join(dir, CAKey))
}

func mode(t *testing.T, key string) {
	t.Helper()
	if s, err := os.Stat(key); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("%s: mode %v, %v", key, s.Mode(), err)
	}
}

// Certificates of public ports and of backends are for that alone, and nobody gets a tier's name by
// way of them.
func TestPublicCertificatesAreNoTiers(t *testing.T) {
	dir := t.TempDir()
	ca, err := NewCA(dir, false)
	need(t, err)
	for name, w := range map[string]Wanted{
		"edge.example": {Server: true, Hosts: []string{"edge.example"}, Days: 1}, "billing": {Client: "billing", Days: 1},
	} {
		need(t, ca.Issue(w, dir, false))
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"))
		need(t, err)
		want := x509.ExtKeyUsageServerAuth
		if w.Client != "" {
			want = x509.ExtKeyUsageClientAuth
		}
		if u := pair.Leaf.ExtKeyUsage; len(u) != 1 || u[0] != want || Of(pair.Leaf) != "" || pair.Leaf.Subject.CommonName != name {
			t.Errorf("%s: %v, %q", name, u, pair.Leaf.Subject)
		}
	}
	for want, w := range map[string]Wanted{
		"one of --tier":         {Days: 1},
		"one of --tier, --serv": {Tier: Store, ID: "a", Client: "b", Days: 1},
		"--days is 0":           {Tier: Store, ID: "a"},
		"needs --id":            {Tier: Store, Days: 1},
		"needs --host":          {Server: true, Days: 1},
		"has no --host":         {Client: "a", Hosts: []string{"b"}, Days: 1},
		"for tiers alone":       {Server: true, Hosts: []string{"store.PUSHMESH.internal."}, Days: 1},
		"are for tiers alone":   {Client: Router.Name(), Days: 1},
		"tiers alone (--tier)":  {Server: true, Hosts: []string{"*.pushmesh.internal"}, Days: 1},
		"the CA itself ends":    {Client: "late", Days: MaxDays + 0},
	} {
		if want == "the CA itself ends" {
			ca.cert.NotAfter = time.Now().AddDate(1, 0, 0)
		}
		if err := ca.Issue(w, dir, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", w, err, want)
		}
	}
}

// Nothing that is there is lost without --force.
func TestNothingIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenCA(dir); err == nil || !strings.Contains(err.Error(), "pushmesh ca init") {
		t.Errorf("no CA: %v", err)
	}
	ca, err := NewCA(dir, false)
	need(t, err)
	if _, err := NewCA(dir, false); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a second CA: %v", err)
	}
	w := Wanted{Client: "a", Days: 1}
	need(t, ca.Issue(w, dir, false))
	before, err := os.ReadFile(filepath.Join(dir, "a.pem"))
	need(t, err)
	if err := ca.Issue(w, dir, false); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("again: %v", err)
	}
	need(t, ca.Issue(w, dir, true))
	if after, err := os.ReadFile(filepath.Join(dir, "a.pem")); err != nil || string(after) == string(before) {
		t.Errorf("--force: %v", err)
	}
	if _, err := NewCA(dir, true); err != nil {
		t.Error(err)
	}
	need(t, os.Rename(filepath.Join(dir, "a.key"), filepath.Join(dir, CAKey)))
	if _, err := OpenCA(dir); err == nil || !strings.Contains(err.Error(), "not that of") {
		t.Errorf("another's key: %v", err)
	}
}
