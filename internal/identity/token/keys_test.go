package token

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func public(key any) []byte { return block("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(key))) }

func certificate(t *testing.T) []byte {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "id"}, NotAfter: time.Now().Add(time.Hour)}
	return block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, c, c, ecKey.Public(), ecKey)))
}

var every = []string{"RS256", "PS256", "ES256", "EdDSA"}

// Files of keys are PEM or a JWK set; the error says what is wrong with one that can't be used.
func TestKeysFiles(t *testing.T) {
	private := block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(ecKey)))
	set := func(keys ...fields) []byte { return jsonOf(fields{"keys": keys}) }
	var five [][]byte
	for range sameID + 1 {
		five = append(five, public(must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Public()))
	}
	weak := must(rsa.GenerateKey(rand.Reader, 1024))
	for _, c := range []struct {
		name string
		data []byte
		algs string // of the keys that it has
		says string
	}{
		{"public key", public(ecKey.Public()), "ES256", ""},
		{"after a comment, with CRLF", append([]byte("our keys\r\n"), bytes.ReplaceAll(public(ecKey.Public()), []byte("\n"), []byte("\r\n"))...), "ES256", ""},
		{"PKCS #1", block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)), "RS256", ""},
		{"certificate", certificate(t), "ES256", ""},
		{"several", append(public(edKey.Public()), public(rsaKey().Public())...), "EdDSA RS256", ""},
		{"one of another kind among them", append(block("DH PARAMETERS", []byte("x")), public(ecKey.Public())...), "ES256", ""},
		{"private key", append(public(ecKey.Public()), private...), "", "holds a private key"},
		{"private key of EC", block("EC PRIVATE KEY", []byte("x")), "", "holds a private key"},
		{"weak RSA", public(weak.Public()), "", "no key in it that tokens may be signed with (1 others)"},
		{"broken", block("PUBLIC KEY", []byte("x")), "", "no key in it"},
		{"cut off", public(ecKey.Public())[:60], "", "no key in it"},
		{"65 keys", bytes.Repeat(public(ecKey.Public()), MaxKeys+1), "", "more than 64 keys"},
		{"five that a token can't tell apart", bytes.Join(five, nil), "", "more than 4 keys of ES256"},
		{"JWK set", set(jwkOf(ecKey.Public(), "e", nil), jwkOf(edKey.Public(), "d", nil)), "ES256 EdDSA", ""},
		{"a key of another use among them", set(jwkOf(ecKey.Public(), "e", nil), jwkOf(ecNext.Public(), "x", fields{"use": "enc"})), "ES256", ""},
		{"one JWK", jsonOf(jwkOf(ecKey.Public(), "e", nil)), "", "no JWK set"},
		{"private JWK", set(jwkOf(ecKey, "e", nil)), "", "no key in it that tokens may be signed with (1 others)"},
		{"secret", set(jwkOf(secret, "e", nil)), "", "no key in it"},
		{"five of one id", set(fiveOf("e")...), "", "more than 4 keys of ES256"},
		{"empty", nil, "", "one JSON object"},
		{"large", bytes.Repeat([]byte(" "), MaxKeySet+1), "", "longer than 262144 bytes"},
	} {
		got, err := parseKeys(c.data, every)
		var algs []string
		if got != nil {
			for _, k := range got.keys {
				algs = append(algs, k.alg)
			}
		}
		if strings.Join(algs, " ") != c.algs || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v %v, want %q %q", c.name, algs, err, c.algs, c.says)
		}
	}
}

func fiveOf(id string) (keys []fields) {
	for range sameID + 1 {
		keys = append(keys, jwkOf(must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Public(), id, nil))
	}
	return keys
}

func TestSecretFiles(t *testing.T) {
	for _, c := range []struct{ name, data, secret, says string }{
		{"as it is", string(secret), string(secret), ""},
		{"a newline at its end", string(secret) + "\n", string(secret), ""},
		{"CRLF at its end", string(secret) + "\r\n", string(secret), ""},
		{"one newline alone is left off", string(secret) + "\n\n", string(secret) + "\n", ""},
		{"binary", strings.Repeat("\x00\xff", 16), strings.Repeat("\x00\xff", 16), ""},
		{"short", string(secret[1:]) + "\n", "", "the secret is 31 bytes long, it must be 32 at least"},
		{"empty", "", "", "the secret is 0 bytes long"},
		{"PEM", string(public(ecKey.Public())), "", "the secret is a key in PEM"},
		{"PEM after a space", "\n " + string(public(ecKey.Public())), "", "the secret is a key in PEM"},
	} {
		got, err := parseSecret([]byte(c.data))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || err == nil && string(got.keys[0].raw.([]byte)) != c.secret {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A token is tried with the key of its id, however many others of its algorithm there are before.
func TestTheKeyOfTheIDIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []fields
		for i := range 40 {
			keys = append(keys, jwkOf(ecNext.Public(), fmt.Sprint(i), nil))
		}
		w := &web{}
		w.serve(append(keys, jwkOf(ecKey.Public(), "last", nil))...)
		v := begin(t, w, issuersFile, Options{})
		wants(t, v, "last", sign("ES256", ecKey, header("ES256", "last", nil), good(nil)), isOK, "")
		wants(t, v, "without its id", sign("ES256", ecKey, fields{"alg": "ES256"}, good(nil)), unauthenticated, "no key")
	})
}

// Whatever an issuer or a file gives as keys, those that are taken are public ones of an algorithm
// that is allowed, and tokens are tried with few.
func FuzzKeys(f *testing.F) {
	f.Add(jsonOf(fields{"keys": []fields{jwkOf(ecKey.Public(), "e", nil), jwkOf(edKey.Public(), "d", nil), jwkOf(rsaKey().Public(), "r", fields{"alg": "PS256"})}}))
	f.Add(jsonOf(fields{"keys": []fields{jwkOf(ecKey, "e", nil), jwkOf(secret, "s", nil)}}))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},{"kty":"RSA","n":"AQAB","e":"AA"},{"kty":"OKP","crv":"X25519","x":"AA"}]}`))
	f.Add(append(public(ecKey.Public()), public(rsaKey().Public())...))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := parseKeys(data, every)
		if err != nil {
			return
		}
		if len(set.keys) == 0 || len(set.keys) > MaxKeys {
			t.Fatalf("%d keys", len(set.keys))
		}
		for _, k := range set.keys {
			if algorithmOf(k.raw, k.alg, every) != k.alg {
				t.Fatalf("a key of %T for %s", k.raw, k.alg)
			}
			if n := len(set.find(k.alg, k.id)); n > sameID || n == 0 && k.id != "" {
				t.Fatalf("a token of a key is tried with %d", n)
			}
			if k.verify("e30.e30.AAAA") {
				t.Fatal("a signature of three bytes is good")
			}
		}
		if !json.Valid(data) && !strings.Contains(string(data), "-----BEGIN ") {
			t.Fatal("neither JSON nor PEM")
		}
	})
}
