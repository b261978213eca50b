package token

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/pushmesh/pushmesh/internal/identity"
)

// Issuer is who signs tokens, as the issuers file says it. Fields that are left out have the
// defaults of ReadIssuers.
type Issuer struct {
	Name string `yaml:"name"` // in the mesh, for logs and audit
	URL  string `yaml:"url"`  // what iss must be

	// Where the keys come from: one of these.
	KeysFile   string `yaml:"keys_file"` // a JWK set, or PEM
	JWKSURL    string `yaml:"jwks_url"`
	Discovery  bool   `yaml:"discovery"` // URL/.well-known/openid-configuration names the JWK set
	SecretFile string `yaml:"hs256_secret_file"`

	Audiences  []string `yaml:"audiences"`   // aud must name one of them
	UserPrefix string   `yaml:"user_prefix"` // put before sub
	// the name of another issuer of the same users
	SameUsersAs string        `yaml:"same_users_as"`
	Algorithms  []string      `yaml:"algorithms"`
	Leeway      time.Duration `yaml:"leeway"` // between clocks
	// from one fetch of keys to the next, at least; files: 1 s
	Cooldown      time.Duration `yaml:"cooldown"`
	Refresh       time.Duration `yaml:"refresh"` // the same, at most
	MaxStale      time.Duration `yaml:"max_stale"`
	AllowInsecure bool          `yaml:"allow_insecure"` // http as well as https
}

// Defaults of an Issuer, and the longest that may be set.
const (
	DefaultLeeway   = 30 * time.Second
	DefaultCooldown = 10 * time.Second
	DefaultRefresh  = 10 * time.Minute
	maxLeeway       = 5 * time.Minute
	minCooldown     = time.Second
	maxRefresh      = 24 * time.Hour
)

// maxFile is the most bytes of an issuers file, maxIssuers the most issuers.
const (
	maxFile    = 256 << 10
	maxIssuers = 32
)

// ReadIssuers reads an issuers file, YAML or JSON: a list below "issuers". Fields that are not
// known are errors. Names of files in it are relative to its folder. The error names every fault.
func ReadIssuers(path string) ([]Issuer, error) {
	data, err := ReadFile(path, maxFile)
	if err != nil {
		return nil, err
	}
	return issuersOf(path, data)
}

// issuersOf is ReadIssuers of a file's content.
func issuersOf(path string, data []byte) ([]Issuer, error) {
	all, err := parseIssuers(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range all {
		for _, name := range []*string{&all[i].KeysFile, &all[i].SecretFile} {
			if *name != "" && !filepath.IsAbs(*name) {
				*name = filepath.Join(filepath.Dir(path), *name)
			}
		}
	}
	return all, nil
}

// ReadFile reads a regular file, or a link to one, of so many bytes at most. Whatever else has a
// name, such as a pipe, might never end.
func ReadFile(path string, most int64) ([]byte, error) {
	// what is put there in between must not block either
	// #nosec G304 -- the operator names it
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", path))
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return data, nil
}

func parseIssuers(data []byte) ([]Issuer, error) {
	var file struct {
		Issuers []Issuer `yaml:"issuers"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("not an issuers file: %w", err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("not an issuers file: there is more than one document in it")
	}
	var said struct {
		Issuers []durations `yaml:"issuers"`
	}
	if err := yaml.Unmarshal(data, &said); err != nil {
		return nil, fmt.Errorf("not an issuers file: %w", err)
	}
	return file.Issuers, prepare(file.Issuers, said.Issuers)
}

// durations are those of an Issuer that have defaults: 0s is one that was set, and nil is not.
type durations struct {
	Leeway   *time.Duration `yaml:"leeway"`
	Cooldown *time.Duration `yaml:"cooldown"`
	Refresh  *time.Duration `yaml:"refresh"`
}

// prepare puts in defaults, and finds every fault.
func prepare(all []Issuer, said []durations) error {
	if len(all) == 0 || len(all) > maxIssuers {
		return fmt.Errorf("there are %d issuers, it must be 1 to %d", len(all), maxIssuers)
	}
	var errs []error
	same := groups(all)
	for i := range all {
		is := &all[i]
		is.fill(said[i])
		label := is.Name
		if label == "" || strings.ContainsFunc(label, unicode.IsControl) {
			label = fmt.Sprint(i + 1)
		}
		for _, err := range is.faults() {
			errs = append(errs, fmt.Errorf("issuer %s: %w", label, err))
		}
		for k := range all[:i] {
			if err := apart(&all[k], is, same); err != nil {
				errs = append(errs, fmt.Errorf("issuer %s: %w", label, err))
			}
		}
		if is.SameUsersAs != "" && !slices.ContainsFunc(all, func(o Issuer) bool { return o.Name == is.SameUsersAs && o.Name != is.Name }) {
			errs = append(errs, fmt.Errorf("issuer %s: same_users_as names no other issuer", label))
		}
	}
	return errors.Join(errs...)
}

func (is *Issuer) fill(said durations) {
	if len(is.Algorithms) == 0 {
		is.Algorithms = []string{"RS256", "PS256", "ES256", "EdDSA"}
		if is.SecretFile != "" {
			is.Algorithms = []string{hs256}
		}
	}
	cooldown := DefaultCooldown
	if is.KeysFile+is.SecretFile != "" { // to read one costs nobody else anything
		cooldown = minCooldown
	}
	if said.Leeway == nil {
		is.Leeway = DefaultLeeway
	}
	if said.Cooldown == nil {
		is.Cooldown = cooldown
	}
	if said.Refresh == nil {
		is.Refresh = DefaultRefresh
	}
}

func (is *Issuer) faults() (errs []error) {
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(is.Name == "" || len(is.Name) > 64, "name must be 1 to 64 bytes long")
	wrong(strings.ContainsFunc(is.Name, unicode.IsControl), "name must not contain control characters")
	wrong(is.URL == "" || len(is.URL) > maxName, "url must be 1 to %d bytes long: it is what iss of its tokens says", maxName)
	sources := 0
	for _, has := range []bool{is.KeysFile != "", is.JWKSURL != "", is.Discovery, is.SecretFile != ""} {
		if has {
			sources++
		}
	}
	wrong(sources != 1, "it needs one of keys_file, jwks_url, discovery and hs256_secret_file, and has %d", sources)
	wrong(len(is.Audiences) == 0 || slices.Contains(is.Audiences, ""), "audiences is missing or has an empty one: without it, tokens for other services would be taken")
	for _, alg := range is.Algorithms {
		_, known := algorithms[alg]
		wrong(!known, "algorithm %q is not supported: it must be RS256, PS256, ES256, EdDSA or HS256", alg)
		wrong(known && (alg == hs256) != (is.SecretFile != ""), "algorithm %s does not go with where the keys come from: HS256 and hs256_secret_file go together", alg)
	}
	wrong(is.UserPrefix != "" && (identity.CheckUser(is.UserPrefix) != nil || len(is.UserPrefix) > 64),
		"user_prefix must be at most 64 bytes long, without /, +, # and control characters, and not begin with $")
	wrong(is.Leeway < 0 || is.Leeway > maxLeeway, "leeway is %v, it must be 0s to %v", is.Leeway, maxLeeway)
	wrong(is.Cooldown < minCooldown || is.Cooldown > is.Refresh, "cooldown is %v, it must be %v to refresh, which is %v", is.Cooldown, minCooldown, is.Refresh)
	wrong(is.Refresh > maxRefresh, "refresh is %v, it must be %v at most", is.Refresh, maxRefresh)
	wrong(is.MaxStale != 0 && is.MaxStale < is.Refresh, "max_stale is %v, it must be refresh, which is %v, at least, or left out", is.MaxStale, is.Refresh)
	if is.JWKSURL != "" {
		if err := is.checkURL(is.JWKSURL); err != nil {
			errs = append(errs, fmt.Errorf("jwks_url %w", err))
		}
	}
	if is.Discovery {
		if err := is.checkURL(is.URL); err != nil {
			errs = append(errs, fmt.Errorf("url, with discovery, %w", err))
		}
		wrong(strings.Contains(is.URL, "?"), "url, with discovery, must have no query: a path is put after it")
	}
	return errs
}

// checkURL finds what speaks against fetching a URL.
func (is *Issuer) checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		return errors.New("must be an absolute URL without a user and a fragment")
	case u.Scheme != "https" && (u.Scheme != "http" || !is.AllowInsecure):
		return errors.New("must begin with https:// (allow_insecure: true allows http://)")
	}
	return nil
}

// groups tells of each issuer, by its name, the group of the same users that it is in.
func groups(all []Issuer) map[string]int {
	of := map[string]int{}
	for i, is := range all {
		of[is.Name] = i
	}
	for _, is := range all {
		into, known := of[is.SameUsersAs]
		if !known {
			continue
		}
		from := of[is.Name]
		for name, group := range of {
			if group == from {
				of[name] = into
			}
		}
	}
	return of
}

// apart finds whether one of two issuers could make tokens for users of the other; same are the
// groups of issuers whose users are the same.
func apart(a, b *Issuer, same map[string]int) error {
	switch {
	case a.Name == b.Name:
		return errors.New("there are two of this name")
	case a.URL == b.URL:
		return fmt.Errorf("issuer %s has the same url", a.Name)
	case same[a.Name] == same[b.Name]:
		return nil
	case strings.HasPrefix(a.UserPrefix, b.UserPrefix) || strings.HasPrefix(b.UserPrefix, a.UserPrefix):
		return fmt.Errorf("it could name users of issuer %s: give both a user_prefix of which none begins like the other, or set same_users_as", a.Name)
	}
	return nil
}
