package procmesh

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// root of the repository.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.work")); missing == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.work above the test's folder: ", err)
	return ""
}

// NewCA makes the CA, which replaces the one before for Certificate, and which nobody else is told
// of but by TrustCAs.
func (m *Mesh) NewCA(t testing.TB) {
	t.Helper()
	if _, err := tierauth.NewCA(m.Certificates, true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.trusted()); err != nil {
		m.TrustCAs(t)
	}
}

// trusted is the file of the CAs that all believe.
func (m *Mesh) trusted() string { return filepath.Join(m.Certificates, "trusted.pem") }

// CAs is what all believe now, and the present CA's certificate.
func (m *Mesh) CAs(t testing.TB) (trusted, present []byte) {
	t.Helper()
	present, err := os.ReadFile(filepath.Join(m.Certificates, tierauth.CACert))
	if err == nil {
		trusted, err = os.ReadFile(m.trusted())
	}
	if err != nil {
		t.Fatal(err)
	}
	return trusted, present
}

// TrustCAs has all believe the present CA, beside others, and NATS read its files again.
func (m *Mesh) TrustCAs(t testing.TB, others ...byte) {
	t.Helper()
	present, err := os.ReadFile(filepath.Join(m.Certificates, tierauth.CACert))
	if err == nil {
		err = os.WriteFile(m.trusted()+".new", append(others, present...), 0o600)
	}
	if err == nil {
		err = os.Rename(m.trusted()+".new", m.trusted())
	}
	if err != nil {
		t.Fatal(err)
	}
	m.ReloadNATS()
}

// Certificate makes a node's, or replaces it.
func (m *Mesh) Certificate(tier, name string) (cert, key, ca string, err error) {
	authority, err := tierauth.OpenCA(m.Certificates)
	if err == nil {
		err = authority.Issue(tierauth.Wanted{Tier: tierauth.Tier(tier), ID: name, Days: 1}, m.Certificates, true)
	}
	file := filepath.Join(m.Certificates, name)
	return file + ".pem", file + ".key", m.trusted(), err
}

// noViolations fails the test where NATS refused a tier a subject: what a tier needs is missing in
// its permissions then.
func (m *Mesh) noViolations(t testing.TB) {
	for _, p := range m.NATSs {
		for line := range strings.Lines(p.Tail(1 << 20)) {
			if strings.Contains(line, " Violation - ") {
				t.Errorf("%s: %s", p.Name, line)
			}
		}
	}
}

// ReloadNATS has its servers read their files again.
func (m *Mesh) ReloadNATS() {
	for _, p := range m.NATSs {
		p.Signal(syscall.SIGHUP)
	}
}
