package server

import (
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/testca"
)

// A password that changes in its file is the one of the next connection, in the pool and beside it.
func TestThePasswordIsThatOfTheFileByNow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pgpass")
	write := func(line string) {
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("*:*:*:pushmesh:old\n")
	cfg := Config{URL: "postgres://pushmesh@127.0.0.1/pushmesh?passfile=" + file, Pool: Pool{}.withDefaults()}
	pool, err := poolConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Config: cfg, conns: pool.ConnConfig.Copy()}
	for _, step := range []struct{ line, want string }{
		// none: what it knew
		{"*:*:*:pushmesh:old\n", "old"}, {"*:*:*:pushmesh:n\\:w\n", "n:w"}, {"", "old"},
	} {
		write(step.line)
		c := pool.ConnConfig.Copy()
		if err := pool.BeforeConnect(t.Context(), c); err != nil || c.Password != step.want {
			t.Errorf("%q: the pool connects with %q, %v", step.line, c.Password, err)
		}
		if c := s.fresh(); c.Password != step.want {
			t.Errorf("%q: a connection has %q", step.line, c.Password)
		}
	}
}

// Where the URL is in a file, its role and password are those of the file by now, and the server is
// the one that it was.
func TestTheRoleIsThatOfTheFileByNow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const first = "postgres://one:a@127.0.0.1/pushmesh" //nolint:gosec // nobody has this password
	cfg := Config{URL: first, URLFile: file, Pool: Pool{}.withDefaults()}
	pool, err := poolConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		first + "\n":                              "one:a@127.0.0.1",
		"postgres://two:b@127.0.0.1/pushmesh\n":   "two:b@127.0.0.1",
		"postgres://two:b@elsewhere/pushmesh\r\n": "two:b@127.0.0.1",
		"":               "one:a@127.0.0.1",
		"postgres://%zz": "one:a@127.0.0.1",
	} {
		write(text)
		c := pool.ConnConfig.Copy()
		if err := pool.BeforeConnect(t.Context(), c); err != nil || c.User+":"+c.Password+"@"+c.Host != want {
			t.Errorf("%q: it connects as %s:%s@%s, want %s", text, c.User, c.Password, c.Host, want)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	c := pool.ConnConfig.Copy()
	if err := pool.BeforeConnect(t.Context(), c); err != nil || c.User != "one" {
		t.Errorf("without the file it connects as %s, %v", c.User, err)
	}
}

// Certificates that are renewed in their files are those of the next connection.
func TestTheCertificateIsThatOfTheFileByNow(t *testing.T) {
	dir := t.TempDir()
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, text []byte) {
		if err := os.WriteFile(file(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.pem", ca.PEM())
	serial := func() *big.Int {
		t.Helper()
		cert, key, err := ca.Issue(time.Now().Add(time.Hour), "store")
		if err != nil {
			t.Fatal(err)
		}
		write("cert.pem", cert)
		write("key.pem", key)
		block, _ := pem.Decode(cert)
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return parsed.SerialNumber
	}
	shown := func(c *pgx.ConnConfig) *big.Int {
		t.Helper()
		parsed, err := x509.ParseCertificate(c.TLSConfig.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return parsed.SerialNumber
	}
	first := serial()
	cfg := Config{URL: "postgres://pushmesh@127.0.0.1/pushmesh?sslmode=verify-full&sslrootcert=" + file("ca.pem") + "&sslcert=" + file("cert.pem") + "&sslkey=" + file("key.pem"), Pool: Pool{}.withDefaults()}
	pool, err := poolConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Config: cfg, conns: pool.ConnConfig.Copy()}
	if got := shown(s.fresh()); got.Cmp(first) != 0 {
		t.Fatalf("it shows certificate %v, want %v", got, first)
	}
	second := serial()
	if got := shown(s.fresh()); got.Cmp(second) != 0 {
		t.Errorf("after a renewal it shows certificate %v, want %v", got, second)
	}
	write("cert.pem", nil) // while it is written
	if got := shown(s.fresh()); got.Cmp(first) != 0 {
		t.Errorf("with half a file it shows certificate %v, want that of the start", got)
	}
}
