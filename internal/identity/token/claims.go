package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/features"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// grantClaims are the claims that hold filters.
var grantClaims = [...]struct {
	name string
	verb identity.Verb
}{
	{"pm_sub", identity.Subscribe},
	{"pm_pub", identity.Publish},
	{"pm_claim", identity.Claim},
	{"pm_group", identity.Group},
}

// known are the claims that begin with pm_ and mean something.
var known = []string{"pm_client", "pm_sub", "pm_pub", "pm_claim", "pm_group", "pm_profile"}

// maxAudiences is the most values of aud, maxClients that of pm_client.
const (
	maxAudiences = 16
	maxClients   = 16
)

// latest is the last second that a claim may name: the end of the year 9999.
const latest = 253402300799

// bad refuses a token for good.
func bad(format string, args ...any) *code.Error {
	return code.New(wirev1.Code_CODE_UNAUTHENTICATED, fmt.Sprintf(format, args...))
}

func expired() *code.Error {
	return code.New(wirev1.Code_CODE_TOKEN_EXPIRED, "the token's time is over (exp): get a new one")
}

// checkTimes finds whether a token is for now, give or take leeway, and until when it holds.
func checkTimes(claims map[string]json.RawMessage, now time.Time, leeway time.Duration) (notBefore, expires time.Time, why *code.Error) {
	refuse := func(why *code.Error) (time.Time, time.Time, *code.Error) { return time.Time{}, time.Time{}, why }
	exp, there, err := instant(claims, "exp")
	if err != nil {
		return refuse(bad("the token: %v", err))
	}
	if !there {
		return refuse(bad("the token has no exp: it must say when it ends"))
	}
	if expires = exp.Add(leeway); expires.Unix() > latest { // no year of five digits
		expires = time.Unix(latest, 0)
	}
	if !now.Before(expires) {
		return refuse(expired())
	}
	for _, name := range []string{"nbf", "iat"} {
		at, there, err := instant(claims, name)
		if err != nil {
			return refuse(bad("the token: %v", err))
		}
		if there && now.Add(leeway).Before(at) {
			return refuse(bad("the token's %s is in the future: compare the clocks of the issuer and of this host", name))
		}
		if there && name == "nbf" {
			notBefore = at.Add(-leeway)
		}
	}
	return notBefore, expires, nil
}

// instant is a claim that is seconds since 1970.
func instant(claims map[string]json.RawMessage, name string) (at time.Time, there bool, err error) {
	raw, there := claims[name]
	if !there {
		return at, false, nil
	}
	var seconds float64
	if c := raw[0]; c < '0' || c > '9' || json.Unmarshal(raw, &seconds) != nil || seconds > latest {
		return at, true, fmt.Errorf("%s must be a number of seconds since 1970", name)
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), true, nil
}

// checkAudience finds whether a token is meant for one of the audiences.
func checkAudience(claims map[string]json.RawMessage, audiences []string) error {
	aud, err := texts(claims, "aud", maxAudiences)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(aud, func(one string) bool { return slices.Contains(audiences, one) }) {
		return errors.New("aud does not name this mesh: ask the issuer for a token with the audience of the issuers file")
	}
	return nil
}

// principal makes of claims what they say about the user; prefix is put before its name.
func principal(claims map[string]json.RawMessage, prefix string) (*identity.Principal, error) {
	for name := range claims {
		if len(name) >= 3 && name[:3] == "pm_" && !slices.Contains(known, name) {
			// a misspelled pm_client would leave a bound away
			return nil, fmt.Errorf("a claim begins with pm_ and is none of %v", known)
		}
	}
	p := &identity.Principal{}
	sub, err := text(claims, "sub")
	if err != nil {
		return nil, err
	}
	if sub == "" {
		return nil, errors.New("sub is missing or empty")
	}
	p.User = prefix + sub
	if p.Proof.TokenID, err = text(claims, "jti"); err != nil {
		return nil, err
	}
	if at, there, err := instant(claims, "iat"); there && err == nil {
		p.Issued = at
	}
	if p.Clients, err = texts(claims, "pm_client", maxClients); err != nil {
		return nil, err
	}
	if _, there := claims["pm_client"]; there && len(p.Clients) == 0 {
		return nil, errors.New("pm_client is empty: leave it out to allow every client id")
	}
	if p.Grants, err = grantsOf(claims); err != nil {
		return nil, err
	}
	if p.Profile, err = profile(claims); err != nil {
		return nil, err
	}
	return p, p.Check()
}

func grantsOf(claims map[string]json.RawMessage) (*identity.Grants, error) {
	var rules []identity.Rule
	for _, claim := range grantClaims {
		filters, err := texts(claims, claim.name, identity.MaxRules)
		if err != nil {
			return nil, err
		}
		for i, filter := range filters {
			rules = append(rules, identity.Rule{Verb: claim.verb, Filter: filter, Source: fmt.Sprintf("%s[%d]", claim.name, i)})
		}
	}
	return identity.NewGrants(rules)
}

func profile(claims map[string]json.RawMessage) (map[string]float64, error) {
	raw, there := claims["pm_profile"]
	if !there {
		return nil, nil
	}
	var numbers map[string]*float64
	if raw[0] != '{' || json.Unmarshal(raw, &numbers) != nil {
		return nil, errors.New("pm_profile must be an object of numbers")
	}
	p := make(map[string]float64, len(numbers))
	for name, n := range numbers {
		if n == nil {
			return nil, errors.New("pm_profile must be an object of numbers")
		}
		p[name] = *n
	}
	if err := features.Check(p, nil, 0); err != nil {
		return nil, errors.New("pm_profile has a name or a number that a profile can't have")
	}
	return p, nil
}
