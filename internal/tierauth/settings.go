// Package tierauth is how the tiers of a mesh know each other: each shows a certificate that the
// mesh's CA has signed and that names its tier, and takes nobody else's. What a tier may call is a
// table.
package tierauth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/certs"
)

// Tier is what a certificate says that its owner is.
type Tier string

// The tiers, and who else has a certificate of the mesh.
const (
	Store    Tier = "store"
	Compute  Tier = "compute"
	Router   Tier = "router"
	Edge     Tier = "edge"
	NATS     Tier = "nats"     // servers of NATS
	Operator Tier = "operator" // people with the command pushmesh
)

// Domain ends the names of tiers in certificates. No host is called so.
const Domain = ".pushmesh.internal"

// Tiers are all that a certificate may name.
func Tiers() []Tier { return []Tier{Store, Compute, Router, Edge, NATS, Operator} }

// Name is the DNS name that is in the certificates of a tier, and in none else.
func (t Tier) Name() string { return string(t) + Domain }

// Of says which tier a certificate names; "": none, or several.
func Of(leaf *x509.Certificate) (found Tier) {
	for _, name := range leaf.DNSNames {
		t, ours := strings.CutSuffix(name, Domain)
		switch {
		case !ours:
		case found != "" || !slices.Contains(Tiers(), Tier(t)):
			return ""
		default:
			found = Tier(t)
		}
	}
	return found
}

// Flags are the settings of every tier.
type Flags struct {
	MeshCert   string `name:"mesh-cert" help:"PEM file of the certificate that this process shows to the other tiers and to NATS. Files are read again when they change." see:"between-tiers"`
	MeshKey    string `name:"mesh-key" help:"PEM file of the key of --mesh-cert." see:"between-tiers"`
	MeshCA     string `name:"mesh-ca" help:"PEM file of the certificates that sign those of all tiers and of NATS." see:"between-tiers"`
	MeshCRL    string `name:"mesh-crl" help:"PEM file of lists of revoked certificates, each signed by one of --mesh-ca: who shows a certificate that is on them is refused, and everybody whose list has ended." see:"between-tiers"`
	PlainTiers bool   `name:"plain-tiers" help:"Take connections of other tiers without TLS; without --mesh-cert also make them so. A process starts with --mesh-cert or with this." see:"between-tiers"`
}

// CheckTiers finds what does not go together.
func (f *Flags) CheckTiers() error {
	given := 0
	for _, file := range []string{f.MeshCert, f.MeshKey, f.MeshCA} {
		if file != "" {
			given++
		}
	}
	switch {
	case given == 0 && !f.PlainTiers:
		return errors.New("nothing would protect what the tiers say to each other: give this process a certificate (--mesh-cert, --mesh-key and --mesh-ca; pushmesh ca makes them), or say that plain text is wanted (--plain-tiers)")
	case given != 0 && given != 3:
		return errors.New("--mesh-cert, --mesh-key and --mesh-ca must be given together")
	case given == 0 && f.MeshCRL != "":
		return errors.New("--mesh-crl needs --mesh-ca, whose lists it has")
	}
	return nil
}

// every is how often the files are looked at.
const every = time.Second

// Config says who opens certificates.
type Config struct {
	Flags
	Tier     Tier
	Log      *slog.Logger
	Registry prometheus.Registerer
	// Every is how often the files are looked at; 0: each second.
	Every time.Duration
}

// Open reads the certificate, which must be good for the tier. The identity is nil where there is
// none: it dials and serves without TLS then.
func Open(cfg Config) (*Identity, error) {
	if cfg.MeshCert == "" {
		return nil, nil
	}
	if cfg.Every == 0 {
		cfg.Every = every
	}
	i := &Identity{tier: cfg.Tier, plain: cfg.PlainTiers, log: cfg.Log, loud: newLoud()}
	keeper, err := certs.Open(certs.Config{
		Pairs: []certs.Pair{{Cert: cfg.MeshCert, Key: cfg.MeshKey}}, CA: cfg.MeshCA, Revoked: cfg.MeshCRL, Every: cfg.Every, Log: cfg.Log, Accept: i.accept,
	})
	if err != nil {
		return nil, fmt.Errorf("--mesh-cert: %w", err)
	}
	i.Keeper = keeper
	if cfg.Registry != nil {
		i.register(cfg.Registry)
	}
	return i, nil
}

// accept says what is wrong with a certificate of one's own: better at the start than by whoever is
// called.
func (i *Identity) accept(cert *tls.Certificate, ca *x509.CertPool) error {
	leaf := cert.Leaf
	if is := Of(leaf); is != i.tier {
		return fmt.Errorf("it must have the name %s alone of %s, but has %q: pushmesh ca issue --tier %s makes one", i.tier.Name(), Domain[1:], leaf.DNSNames, i.tier)
	}
	for what, usage := range map[string]x509.ExtKeyUsage{"servers": x509.ExtKeyUsageServerAuth, "clients": x509.ExtKeyUsageClientAuth} {
		if !slices.Contains(leaf.ExtKeyUsage, usage) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
			return fmt.Errorf("it is not for %s (extended key usage)", what)
		}
	}
	between := x509.NewCertPool() // which are sent with it
	for _, der := range cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: ca, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("other tiers won't take it: %w", err)
	}
	return nil
}
