package certs

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/testca"
)

// files of two certificates, for a.example and for everything below b.example.
type files struct {
	*testing.T
	ca  *testca.Authority
	dir string
}

func newFiles(t *testing.T) (*files, []Pair) {
	t.Helper()
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	f := &files{t, ca, t.TempDir()}
	return f, []Pair{f.write("a", time.Hour, "a.example"), f.write("b", 2*time.Hour, "*.b.example", "B.example")}
}

func (f *files) write(name string, good time.Duration, names ...string) Pair {
	f.Helper()
	cert, key, err := f.ca.Issue(time.Now().Add(good), names...)
	p := Pair{filepath.Join(f.dir, name+".pem"), filepath.Join(f.dir, name+".key")}
	if err = errors.Join(err, os.WriteFile(p.Cert, cert, 0o600), os.WriteFile(p.Key, key, 0o600)); err != nil {
		f.Fatal(err)
	}
	return p
}

func open(t *testing.T, pairs []Pair) *Keeper {
	t.Helper()
	k, err := Open(Config{Pairs: pairs, Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// given is the first name of the certificate that a client gets.
func given(t *testing.T, k *Keeper, name string) string {
	t.Helper()
	c, err := k.Get(&tls.ClientHelloInfo{
		ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf.DNSNames[0]
}

func TestEachNameHasItsCertificate(t *testing.T) {
	_, pairs := newFiles(t)
	k := open(t, pairs)
	for name, want := range map[string]string{
		"a.example": "a.example", "A.Example.": "a.example", "b.example": "*.b.example", "x.b.example": "*.b.example",
		"x.y.b.example": "a.example", "": "a.example", "other.example": "a.example",
	} {
		if got := given(t, k, name); got != want {
			t.Errorf("%q gets the certificate of %s, want %s", name, got, want)
		}
	}
	if left := time.Until(k.Expires()); left > time.Hour || left < 50*time.Minute {
		t.Errorf("expires in %v, want that of the first", left)
	}
}

func TestNewFilesAreTaken(t *testing.T) {
	f, pairs := newFiles(t)
	k := open(t, pairs)
	k.look()
	f.write("a", time.Hour, "new.example")
	k.look()
	if got := given(t, k, ""); got != "new.example" {
		t.Fatalf("got the certificate of %s", got)
	}
	if taken, failed := k.Reloads(); taken != 1 || failed != 0 {
		t.Fatalf("taken %d times, failed %d times", taken, failed)
	}
}

func TestBadFilesChangeNothing(t *testing.T) {
	for name, spoil := range map[string]func(f *files, p Pair) error{
		"half written":             func(_ *files, p Pair) error { return os.Truncate(p.Cert, 100) },
		"a key of another":         func(f *files, p Pair) error { return os.Rename(f.write("c", time.Hour, "c.example").Key, p.Key) },
		"gone":                     func(_ *files, p Pair) error { return os.Remove(p.Key) },
		"expired before it is new": func(f *files, _ Pair) error { f.write("a", -time.Minute, "a.example"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			f, pairs := newFiles(t)
			k := open(t, pairs)
			if err := spoil(f, pairs[0]); err != nil {
				t.Fatal(err)
			}
			k.look()
			k.look()
			if taken, failed := k.Reloads(); taken != 0 || failed != 1 {
				t.Fatalf("taken %d times, failed %d times: once is enough for the same files", taken, failed)
			}
			if got := given(t, k, ""); got != "a.example" {
				t.Fatalf("got the certificate of %s", got)
			}
			if err := k.Check(); err == nil || !strings.Contains(err.Error(), "the old ones stay: ") {
				t.Fatalf("the check says %v", err)
			}
			if _, err := Open(k.cfg); err == nil {
				t.Fatal("a server starts with it")
			}
			f.write("a", time.Hour, "mended.example")
			k.look()
			if err := k.Check(); err != nil {
				t.Fatal(err)
			}
			if got := given(t, k, ""); got != "mended.example" {
				t.Fatalf("got the certificate of %s", got)
			}
		})
	}
}

func TestAnExpiredCertificateIsReported(t *testing.T) {
	_, pairs := newFiles(t)
	k := open(t, pairs)
	if err := k.Check(); err != nil {
		t.Fatal(err)
	}
	k.now = func() time.Time { return time.Now().Add(61 * time.Minute) }
	if err := k.Check(); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Fatalf("the check says %v", err)
	}
}
