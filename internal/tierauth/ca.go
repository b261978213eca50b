package tierauth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Files of a CA's folder.
const (
	CACert = "ca.pem"
	CAKey  = "ca.key"
	CACRL  = "ca.crl"
)

// caDays is how long a CA is good for.
const caDays = 3650

// skew is how much earlier than now certificates begin: clocks differ.
const skew = 5 * time.Minute

// CA signs certificates, ECDSA with P-256.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a CA and its files in a folder, which is made where it is not there. Files that are
// there are an error, unless force is set.
func NewCA(folder string, force bool) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	of, err := template("pushmesh CA", caDays)
	if err != nil {
		return nil, err
	}
	of.IsCA, of.BasicConstraintsValid, of.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	of.MaxPathLenZero = true
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	if err := write(of, of, key, key, filepath.Join(folder, CACert), filepath.Join(folder, CAKey), force); err != nil {
		return nil, err
	}
	return OpenCA(folder)
}

// OpenCA reads the files of NewCA.
func OpenCA(folder string) (*CA, error) {
	cert, err := os.ReadFile(filepath.Join(folder, CACert))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: make a CA with pushmesh ca init %s", err, folder)
	}
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(filepath.Join(folder, CAKey))
	if err != nil {
		return nil, err
	}
	ca := &CA{}
	if block, _ := pem.Decode(cert); block == nil {
		err = errors.New("there is no PEM in it")
	} else {
		ca.cert, err = x509.ParseCertificate(block.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, CACert), err)
	}
	parsed, err := parseKey(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, CAKey), err)
	}
	if ca.key = parsed; !ca.key.PublicKey.Equal(ca.cert.PublicKey) {
		return nil, fmt.Errorf("%s: the key is not that of %s", filepath.Join(folder, CAKey), CACert)
	}
	return ca, nil
}

func parseKey(file []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(file)
	if block == nil {
		return nil, errors.New("there is no PEM in it")
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := any.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("it is no ECDSA key")
	}
	return key, nil
}

// Wanted is a certificate to be made. Of Tier, Server and Client one is set.
type Wanted struct {
	// Tier is that of a node, which ID names, for its calls and for who calls it. A server may have
	// an ID as well, which names its files.
	Tier Tier
	ID   string
	// Server has the certificate show hosts to the world: of an edge's or a router's public port.
	Server bool
	// Client is the name of a backend.
	Client string
	// Hosts are names and addresses of a server.
	Hosts []string
	Days  int
}

// MaxDays bounds Wanted.Days.
const MaxDays = 3650

// Check finds what does not go together.
func (w Wanted) Check() error {
	kinds := 0
	for _, set := range []bool{w.Tier != "", w.Server, w.Client != ""} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return errors.New("say whose the certificate is: one of --tier, --server and --client")
	}
	if w.Days < 1 || w.Days > MaxDays {
		return fmt.Errorf("--days is %d, must be 1 to %d", w.Days, MaxDays)
	}
	if w.Tier != "" && w.ID == "" {
		return errors.New("--tier needs --id: the name of the node")
	}
	if w.Server && len(w.Hosts) == 0 {
		return errors.New("--server needs --host: the names that clients connect to")
	}
	if w.Client != "" && len(w.Hosts) > 0 {
		return errors.New("--client has no --host: nobody connects to it")
	}
	for _, name := range append([]string{w.Client}, w.Hosts...) {
		// whoever has such a name is a tier
		if strings.HasSuffix(strings.ToLower(strings.TrimSuffix(name, ".")), Domain) || strings.HasPrefix(name, "*.") && strings.HasSuffix(Domain, name[1:]) {
			return fmt.Errorf("%q: names in %s are for tiers alone (--tier)", name, Domain[1:])
		}
	}
	return nil
}

// Name is what the certificate's files are called, without .pem and .key.
func (w Wanted) Name() string {
	switch {
	case w.ID != "":
		return w.ID
	case w.Client != "":
		return w.Client
	}
	return strings.ReplaceAll(strings.ReplaceAll(w.Hosts[0], "*", "_"), ":", "_")
}

// Issue makes a certificate and its key, as the files NAME.pem and NAME.key of a folder, which is
// made where it is not there. Files that are there are an error, unless force is set: then each is
// replaced at once, the key first.
func (ca *CA) Issue(w Wanted, folder string, force bool) error {
	if err := w.Check(); err != nil {
		return err
	}
	of, err := template(w.Name(), w.Days)
	if err != nil {
		return err
	}
	if of.NotAfter.After(ca.cert.NotAfter) {
		return fmt.Errorf("--days %d: the CA itself ends at %s", w.Days, ca.cert.NotAfter.Format(time.DateOnly))
	}
	of.KeyUsage = x509.KeyUsageDigitalSignature
	if w.Tier != "" || w.Server {
		of.ExtKeyUsage = append(of.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if w.Tier != "" || w.Client != "" {
		of.ExtKeyUsage = append(of.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if w.Tier != "" {
		of.DNSNames = []string{w.Tier.Name()}
	}
	for _, host := range w.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			of.IPAddresses = append(of.IPAddresses, ip)
		} else {
			of.DNSNames = append(of.DNSNames, host)
		}
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	file := filepath.Join(folder, w.Name())
	return write(of, ca.cert, private, ca.key, file+".pem", file+".key", force)
}

func template(name string, days int) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: now.AddDate(0, 0, days),
	}, nil
}

// write signs a certificate and makes the files.
func write(of, by *x509.Certificate, private, signer *ecdsa.PrivateKey, certFile, keyFile string, force bool) error {
	der, err := x509.CreateCertificate(rand.Reader, of, by, &private.PublicKey, signer)
	if err != nil {
		return err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	if !force {
		for _, file := range []string{keyFile, certFile} {
			if _, err := os.Lstat(file); err == nil {
				return fmt.Errorf("%s is there already: --force replaces it", file)
			}
		}
	}
	if err := place(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600); err != nil {
		return err
	}
	return place(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// place puts a whole file in its place at once.
func place(name string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
