package testca

import (
	"crypto/x509"
	"testing"
)

func TestIssuedIsTrusted(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.Certificate("edge.example", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"edge.example", "127.0.0.1"} {
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: a.Pool()}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: "other.example", Roots: a.Pool()}); err == nil {
		t.Error("it is good for a name that it does not have")
	}
}
