package backends

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	hashSize   = sha256.Size
	secretSize = 32
	keyIDSize  = 8
	// KeyPrefix is what API keys begin with, and no JWT does.
	KeyPrefix = "pmk_"
)

// Key is an API key as the file has it: who reads the file can't call with it.
type Key struct {
	ID      string `yaml:"id"`
	SHA256  string `yaml:"sha256"` // of the secret's 32 bytes, in hexadecimal
	Created Stamp  `yaml:"created,omitempty"`
	Expires Stamp  `yaml:"expires,omitempty"`
}

// Stamp is a time that may be missing, RFC 3339 in the file.
type Stamp struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Stamp) UnmarshalText(text []byte) (err error) {
	s.Time, err = time.Parse(time.RFC3339, string(text))
	if err != nil {
		return fmt.Errorf("%.40q is not a time like 2030-01-31T00:00:00Z", text)
	}
	return nil
}

// NewKey makes a key, and the text that calls with it. That is not to be had again.
func NewKey(now, expires time.Time) (k Key, text string, err error) {
	var random [keyIDSize + secretSize]byte
	if _, err := rand.Read(random[:]); err != nil {
		return k, "", err
	}
	secret := random[keyIDSize:]
	sum := sha256.Sum256(secret)
	k = Key{ID: hex.EncodeToString(random[:keyIDSize]), SHA256: hex.EncodeToString(sum[:]), Created: Stamp{now.UTC().Truncate(time.Second)}}
	if !expires.IsZero() {
		k.Expires = Stamp{expires.UTC().Truncate(time.Second)}
	}
	return k, KeyPrefix + k.ID + "_" + base64.RawURLEncoding.EncodeToString(secret), nil
}

// ReadKey reads the text of a key; it does not say whether there is such a one. Its errors hold
// nothing of the text.
func ReadKey(text string) (Proof, error) {
	rest, is := strings.CutPrefix(text, KeyPrefix)
	id, encoded, has := strings.Cut(rest, "_")
	bad := errors.New("the key is not one that pushmesh key create has printed")
	if !is || !has || len(id) != 2*keyIDSize || len(encoded) != base64.RawURLEncoding.EncodedLen(secretSize) {
		return Proof{}, bad
	}
	var secret [secretSize]byte
	if _, err := base64.RawURLEncoding.Strict().Decode(secret[:], []byte(encoded)); err != nil {
		return Proof{}, bad
	}
	return Proof{KeyID: id, hash: sha256.Sum256(secret[:])}, nil
}

func (k *Key) faults() (hash [hashSize]byte, err error) {
	if id, err := hex.DecodeString(k.ID); err != nil || len(id) != keyIDSize || strings.ToLower(k.ID) != k.ID {
		return hash, fmt.Errorf("key %.40q: id must be %d digits of lower-case hexadecimal", k.ID, 2*keyIDSize)
	}
	sum, err := hex.DecodeString(k.SHA256)
	if err != nil || len(sum) != hashSize {
		return hash, fmt.Errorf("key %s: sha256 must be %d digits of hexadecimal (pushmesh key create writes it)", k.ID, 2*hashSize)
	}
	return [hashSize]byte(sum), nil
}
