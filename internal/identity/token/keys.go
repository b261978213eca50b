package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
)

// Bounds of what an issuer gives as its keys.
const (
	MaxKeySet = 256 << 10 // bytes
	MaxKeys   = 64
)

// Bounds of a key: shorter ones of RSA are weak, longer ones take long, and a secret must be as
// long as what SHA-256 makes of it.
const (
	minRSA, maxRSA = 2048, 8192 // bits
	minSecret      = 32         // bytes
)

// sameID is the most keys of one id and algorithm, those without an id counted in: a token is tried
// with each.
const sameID = 4

// algorithms are those that tokens may be signed with; "none" is not one, and never will be.
var algorithms = map[string]jwa.SignatureAlgorithm{
	"RS256": jwa.RS256(), "PS256": jwa.PS256(), "ES256": jwa.ES256(), "EdDSA": jwa.EdDSA(), hs256: jwa.HS256(),
}

const hs256 = "HS256"

// key verifies signatures of one algorithm, which it pins: what a token's header says has to be the
// same.
type key struct {
	id    string // as tokens name it; "" where they do not
	alg   string
	raw   any    // *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey, or a secret as []byte
	print string // tells it from every other key
}

func newKey(id, alg string, raw any, material []byte) *key {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %s", len(id), id, alg, material))
	return &key{id: id, alg: alg, raw: raw, print: hex.EncodeToString(sum[:])}
}

// verify reports whether the key has signed a token.
func (k *key) verify(token string) bool {
	_, err := jws.VerifyCompactFast(k.raw, []byte(token), algorithms[k.alg])
	return err == nil
}

// keySet is the keys of an issuer at one time. It does not change.
type keySet struct {
	keys   []*key
	prints map[string]bool
}

// newKeySet makes a set of keys; unused is how many others there were.
func newKeySet(keys []*key, unused int) (*keySet, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("there is no key in it that tokens may be signed with (%d others)", unused)
	}
	s := &keySet{prints: map[string]bool{}}
	for _, k := range keys {
		if !s.prints[k.print] {
			s.prints[k.print] = true
			s.keys = append(s.keys, k)
		}
	}
	for _, k := range s.keys {
		// a token of one more would be refused, or not, by where its key stands in the set
		if len(s.find(k.alg, k.id)) > sameID {
			return nil, fmt.Errorf("it has more than %d keys of %s that have one id, or none: give each an id of its own (kid)", sameID, k.alg)
		}
	}
	return s, nil
}

// find returns the keys that may have signed a token: of its algorithm, with its key's id. Keys
// without an id are for tokens of any. A token that names none is taken where one key is left.
func (s *keySet) find(alg, id string) (found []*key) {
	for _, k := range s.keys {
		if k.alg == alg && (id == "" || k.id == "" || k.id == id) {
			found = append(found, k)
		}
	}
	if id == "" && len(found) > 1 && slices.ContainsFunc(found, func(k *key) bool { return k.id != "" }) {
		return nil
	}
	return found
}

// algorithmOf is the algorithm of a key: the one that it names itself, or the one of its type among
// those that are allowed. "": there is none.
func algorithmOf(raw any, named string, allowed []string) string {
	var fit []string
	switch raw := raw.(type) {
	case *rsa.PublicKey:
		if bits := raw.N.BitLen(); bits >= minRSA && bits <= maxRSA {
			fit = []string{"RS256", "PS256"}
		}
	case *ecdsa.PublicKey:
		if raw.Curve == elliptic.P256() {
			fit = []string{"ES256"}
		}
	case ed25519.PublicKey:
		fit = []string{"EdDSA"}
	}
	for _, alg := range fit {
		if slices.Contains(allowed, alg) && (named == "" || named == alg) {
			return alg
		}
	}
	return ""
}

// parseKeys reads a JWK set, or PEM.
func parseKeys(data []byte, allowed []string) (*keySet, error) {
	if len(data) > MaxKeySet {
		return nil, fmt.Errorf("it is longer than %d bytes", MaxKeySet)
	}
	if strings.Contains(string(data[:min(len(data), 4096)]), "-----BEGIN ") {
		return parsePEM(data, allowed)
	}
	return parseJWKs(data, allowed)
}

func parseJWKs(data []byte, allowed []string) (*keySet, error) {
	// a set in an array of objects with arrays of certificates
	set, err := Members(data, MaxKeys, 8)
	if err != nil {
		return nil, fmt.Errorf("a JWK set: its members %w", err)
	}
	var each []json.RawMessage
	if raw := set["keys"]; len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &each) != nil {
		return nil, errors.New("it is no JWK set, which has an array of keys")
	}
	if len(each) > MaxKeys {
		return nil, fmt.Errorf("it has %d keys, %d at most", len(each), MaxKeys)
	}
	var keys []*key
	for _, one := range each {
		if k := parseJWK(one, allowed); k != nil {
			keys = append(keys, k)
		}
	}
	return newKeySet(keys, len(each)-len(keys))
}

// parseJWK returns nil for a key that is not for verifying tokens, or of a kind that is not known:
// issuers have such among the others. Secrets and private keys are none that may be there.
func parseJWK(data []byte, allowed []string) *key {
	if len(data) == 0 || data[0] != '{' {
		return nil
	}
	parsed, err := jwk.ParseKey(data)
	if err != nil {
		return nil
	}
	if use, ok := parsed.KeyUsage(); ok && use != "sig" {
		return nil
	}
	if ops, ok := parsed.KeyOps(); ok && !slices.Contains(ops, jwk.KeyOpVerify) {
		return nil
	}
	named := ""
	if alg, ok := parsed.Algorithm(); ok {
		named = alg.String()
	}
	var raw any
	if err := jwk.Export(parsed, &raw); err != nil {
		return nil
	}
	id, _ := parsed.KeyID()
	return publicKey(id, raw, named, allowed)
}

func publicKey(id string, raw any, named string, allowed []string) *key {
	alg := algorithmOf(raw, named, allowed)
	if alg == "" || len(id) > maxName {
		return nil
	}
	der, err := x509.MarshalPKIXPublicKey(raw)
	if err != nil {
		return nil
	}
	return newKey(id, alg, raw, der)
}

func parsePEM(data []byte, allowed []string) (*keySet, error) {
	var keys []*key
	unused := 0
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return newKeySet(keys, unused)
		}
		if strings.Contains(block.Type, "PRIVATE") {
			return nil, errors.New("it holds a private key: give the public one alone")
		}
		if len(keys)+unused == MaxKeys {
			return nil, fmt.Errorf("it has more than %d keys", MaxKeys)
		}
		if k := publicKey("", fromBlock(block), "", allowed); k != nil {
			keys = append(keys, k)
		} else {
			unused++
		}
	}
}

// fromBlock returns nil where there is no public key in a block.
func fromBlock(block *pem.Block) any {
	switch block.Type {
	case "PUBLIC KEY":
		if raw, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			return raw
		}
	case "RSA PUBLIC KEY":
		if raw, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
			return raw
		}
	case "CERTIFICATE":
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			return cert.PublicKey
		}
	}
	return nil
}

// parseSecret reads the secret of HS256 as it is in a file; one newline at its end is left off.
func parseSecret(data []byte) (*keySet, error) {
	secret := []byte(strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"))
	if len(secret) < minSecret {
		return nil, fmt.Errorf("the secret is %d bytes long, it must be %d at least", len(secret), minSecret)
	}
	if strings.HasPrefix(strings.TrimSpace(string(secret)), "-----BEGIN ") {
		return nil, errors.New("the secret is a key in PEM, which others may know: HS256 needs a random secret")
	}
	return newKeySet([]*key{newKey("", hs256, secret, secret)}, 0)
}
