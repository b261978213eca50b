package backends

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a backends file.
const (
	MaxFile      = 1 << 20 // bytes
	MaxBackends  = 4096
	maxOfEach    = 64 // roles, keys, certificates and tokens of one identity
	maxNameBytes = 64
	maxSubject   = 255
	maxLimit     = 100_000_000
)

// Entry is an identity as the file has it.
type Entry struct {
	Name         string         `yaml:"name"`
	Roles        []string       `yaml:"roles"`
	Keys         []Key          `yaml:"keys"`
	Certificates []string       `yaml:"certificates"`
	Tokens       []TokenSubject `yaml:"tokens"`
	Limits       Limits         `yaml:"limits"`
}

// TokenSubject is whose tokens are an identity's, as the file has it.
type TokenSubject struct {
	Issuer string `yaml:"issuer"`
	Sub    string `yaml:"sub"`
}

// Set is what a backends file says. It does not change.
type Set struct {
	names   map[string]*Identity
	keys    map[string]*known
	certs   map[string]*Identity
	tokens  map[Subject]*Identity
	entries []Entry // in the file's order
}

// known is a key and whose it is.
type known struct {
	hash    [hashSize]byte
	expires time.Time
	of      *Identity
}

// Read reads a backends file, YAML or JSON: a list below "backends". Fields that are not known are
// errors. issuers are those whose tokens are taken, by name. The error names every fault.
func Read(path string, issuers []token.Issuer) (*Set, error) {
	data, err := token.ReadFile(path, MaxFile)
	if err != nil {
		return nil, err
	}
	s, err := Parse(data, issuers)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Parse is Read of a file's content.
func Parse(data []byte, issuers []token.Issuer) (*Set, error) {
	entries, err := decode(data)
	if err != nil {
		return nil, err
	}
	if len(entries) > MaxBackends {
		return nil, fmt.Errorf("there are %d backends, %d at most", len(entries), MaxBackends)
	}
	s := newSet(entries)
	var errs []error
	for n := range entries {
		e := &entries[n]
		label := e.Name
		if checkName(label) != nil {
			label = fmt.Sprint(n + 1)
		}
		for _, err := range s.add(e, issuers) {
			errs = append(errs, fmt.Errorf("backend %s: %w", label, err))
		}
	}
	return s, errors.Join(errs...)
}

func newSet(entries []Entry) *Set {
	return &Set{names: map[string]*Identity{}, keys: map[string]*known{}, certs: map[string]*Identity{}, tokens: map[Subject]*Identity{}, entries: entries}
}

// Check finds the faults of each of the entries that would be in one file. Which issuers a router
// has is not known: every one will do.
func Check(entries []Entry) (faults [][]error) {
	s := newSet(entries)
	for n := range entries {
		var issuers []token.Issuer
		for _, t := range entries[n].Tokens {
			issuers = append(issuers, token.Issuer{Name: t.Issuer})
		}
		faults = append(faults, s.add(&entries[n], issuers))
	}
	return faults
}

func decode(data []byte) ([]Entry, error) {
	var file struct {
		Backends []Entry `yaml:"backends"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("not a backends file: %w", err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a backends file: there is more than one document in it")
	}
	return file.Backends, nil
}

func checkName(name string) error {
	bad := func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar }
	if name == "" || len(name) > maxNameBytes || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("name must be 1 to %d bytes long, without spaces and control characters", maxNameBytes)
	}
	return nil
}

// add takes an identity in, and finds every fault of it.
func (s *Set) add(e *Entry, issuers []token.Issuer) (errs []error) {
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if err := checkName(e.Name); err != nil {
		errs = append(errs, err)
	}
	wrong(s.names[e.Name] != nil, "there are two of this name")
	who := &Identity{Name: e.Name, Limits: e.Limits, caller: producers + e.Name}
	s.names[e.Name] = who
	for what, n := range map[string]int{"roles": len(e.Roles), "keys": len(e.Keys), "certificates": len(e.Certificates), "tokens": len(e.Tokens)} {
		wrong(n > maxOfEach, "%s has %d entries, %d at most", what, n, maxOfEach)
	}
	for _, text := range e.Roles {
		r, err := ParseRole(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		who.Roles = append(who.Roles, r)
		who.has |= r.Kind
	}
	wrong(e.Limits.Rate < 0 || e.Limits.Rate > maxLimit, "limits.rate is %d, it must be 1 to %d, or left out", e.Limits.Rate, maxLimit)
	wrong(e.Limits.InFlight < 0 || e.Limits.InFlight > maxLimit, "limits.in_flight is %d, it must be 1 to %d, or left out", e.Limits.InFlight, maxLimit)
	for n := range e.Keys {
		k := &e.Keys[n]
		hash, err := k.faults()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		wrong(s.keys[k.ID] != nil, "there are two keys with the id %s", k.ID)
		s.keys[k.ID] = &known{hash: hash, expires: k.Expires.Time, of: who}
	}
	for _, name := range e.Certificates {
		wrong(name == "" || len(name) > maxSubject, "a name of a certificate must be 1 to %d bytes long", maxSubject)
		other := s.certs[name]
		wrong(other != nil && other != who, "certificate %q is another backend's as well", name)
		s.certs[name] = who
	}
	for _, t := range e.Tokens {
		subject, err := t.of(issuers)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		wrong(s.tokens[subject] != nil, "there are two tokens of issuer %s with the sub %q", t.Issuer, t.Sub)
		s.tokens[subject] = who
	}
	return errs
}

func (t *TokenSubject) of(issuers []token.Issuer) (Subject, error) {
	if t.Sub == "" || len(t.Sub) > maxSubject {
		return Subject{}, fmt.Errorf("tokens: sub must be 1 to %d bytes long", maxSubject)
	}
	n := slices.IndexFunc(issuers, func(is token.Issuer) bool { return is.Name == t.Issuer })
	if n < 0 {
		return Subject{}, fmt.Errorf("tokens: issuer %q is none of those in the issuers file (--issuers)", t.Issuer)
	}
	user := issuers[n].UserPrefix + t.Sub
	if err := identity.CheckUser(user); err != nil {
		return Subject{}, fmt.Errorf("tokens: a token of sub %.100q is never taken: %w", t.Sub, err)
	}
	return Subject{Issuer: t.Issuer, Sub: user}, nil
}

// Len is how many identities there are.
func (s *Set) Len() int { return len(s.names) }

// Ending counts the keys that end between two times.
func (s *Set) Ending(from, until time.Time) (n int) {
	for _, k := range s.keys {
		if !k.expires.IsZero() && k.expires.After(from) && !k.expires.After(until) {
			n++
		}
	}
	return n
}

func unauthenticated(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_UNAUTHENTICATED, fmt.Sprintf(format, args...))
}

// Find returns who a proof is of at a time, and until when; zero: for good. Its error is
// UNAUTHENTICATED or TOKEN_EXPIRED.
func (s *Set) Find(p *Proof, now time.Time) (who *Identity, until time.Time, err error) {
	switch {
	case p.KeyID != "":
		k := s.keys[p.KeyID]
		if k == nil || subtle.ConstantTimeCompare(k.hash[:], p.hash[:]) == 0 {
			return nil, until, unauthenticated("the key is not known, or was revoked: pushmesh key list shows those that there are")
		}
		who, until = k.of, k.expires
	case p.Token.Issuer != "":
		if who = s.tokens[p.Token]; who == nil {
			return nil, until, unauthenticated("no backend has tokens of issuer %s for sub %.100q: add it to the backends file", p.Token.Issuer, p.Token.Sub)
		}
		until = p.Expires
	default:
		for _, name := range p.Certificate {
			if who = s.certs[name]; who != nil {
				break
			}
		}
		if who == nil {
			return nil, until, unauthenticated("no backend has a certificate of the names %.200q: add one of them to the backends file", p.Certificate)
		}
	}
	if !until.IsZero() && !now.Before(until) {
		return nil, until, code.New(wirev1.Code_CODE_TOKEN_EXPIRED, fmt.Sprintf("the %s has ended: make a new one", p.Kind()))
	}
	return who, until, nil
}
