package tierauth

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A certificate that is on the list of --mesh-crl is refused by who is dialled and by who dials;
// its tier's others are not.
func TestARevokedTierIsOut(t *testing.T) {
	dir := t.TempDir()
	ca, err := NewCA(dir, false)
	need(t, err)
	m := newMesh(t)
	nodes := map[string]*Identity{}
	leave := func(names ...string) {
		t.Helper()
		for _, name := range names {
			cert, err := ReadCertificate(filepath.Join(dir, name+".pem"))
			need(t, err)
			need(t, ca.Revoke(dir, cert))
		}
	}
	// open makes nodes that know the list as it is now.
	open := func() {
		t.Helper()
		for name, tier := range map[string]Tier{"store-1": Store, "store-2": Store, "router-1": Router, "router-2": Router} {
			at := filepath.Join(dir, name)
			if _, err := os.Stat(at + ".pem"); err != nil {
				need(t, ca.Issue(Wanted{Tier: tier, ID: name, Days: 2}, dir, false))
			}
			nodes[name], err = m.open(tier, Flags{MeshCert: at + ".pem", MeshKey: at + ".key", MeshCA: filepath.Join(dir, CACert), MeshCRL: filepath.Join(dir, CACRL)}, nil)
			need(t, err)
		}
	}
	calls := func(from, to string) codes.Code {
		t.Helper()
		return status.Code(owners(t, m.dial(m.serve(nodes[to]), nodes[from].DialOption(Store))))
	}
	need(t, ca.Revoke(dir)) // an empty list
	open()
	for _, from := range []string{"router-1", "router-2"} {
		if got := calls(from, "store-1"); got != codes.Unimplemented {
			t.Errorf("%s before: %v", from, got)
		}
	}
	leave("router-2", "store-2", "router-2")
	open()
	for _, c := range []struct {
		from, to string
		want     codes.Code
	}{{"router-1", "store-1", codes.Unimplemented}, {"router-2", "store-1", codes.Unavailable}, {"router-1", "store-2", codes.Unavailable}} {
		if got := calls(c.from, c.to); got != c.want {
			t.Errorf("%s to %s: %v", c.from, c.to, got)
		}
	}
	if said := m.log.String(); !strings.Contains(said, "is revoked") {
		t.Errorf("the log does not say why: %s", said)
	}
	// Another CA's certificate is not put on the list, and a list of another CA is not added to.
	other, err := NewCA(t.TempDir(), false)
	need(t, err)
	cert, err := ReadCertificate(filepath.Join(dir, "store-1.pem"))
	need(t, err)
	if err := other.Revoke(t.TempDir(), cert); err == nil || !strings.Contains(err.Error(), "was not signed by this CA") {
		t.Errorf("a stranger's certificate: %v", err)
	}
	if err := other.Revoke(dir); err == nil || !strings.Contains(err.Error(), CACRL) {
		t.Errorf("another CA's list: %v", err)
	}
}
