package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Bounds of a ClaimPolicy's fields.
const (
	MaxClaimHolders = 1000
	MaxClaimWaiting = 100_000
	MinClaimTTL     = time.Second
	MaxClaimTTL     = 366 * 24 * time.Hour
	MaxPriority     = 9

	maxClaimGrace   = 24 * time.Hour
	maxClaimWaitTTL = 24 * time.Hour
	maxClaimOffer   = time.Hour
)

// Defaults of a ClaimPolicy's fields.
const (
	DefaultClaimTTL     = 30 * time.Second
	DefaultClaimMaxTTL  = time.Hour
	DefaultClaimWaiting = 10_000
	DefaultClaimGrace   = 10 * time.Second
	DefaultClaimWaitTTL = 15 * time.Second
	DefaultClaimOffer   = 2 * time.Second
	DefaultPrepare      = time.Second
)

// Claims is how resources of a namespace are claimed, with every default applied. It is never
// changed once made.
type Claims struct {
	Holders, MaxWaiting int
	TTL, MaxTTL         time.Duration
	// MaxHold and MaxWait 0: no limit.
	MaxHold, MaxWait         time.Duration
	Grace, WaitTTL, OfferTTL time.Duration
	// Clients: not backends alone.
	Clients           bool
	MaxClientPriority uint32
	// Prepare is what is asked before a grant; nil: nothing.
	Prepare *Prepare
}

// Prepare is a call before a grant, for the namespace Group.
type Prepare struct {
	Group, URL  string
	Deadline    time.Duration
	Concurrency int
}

func claimsOf(prefix string, p *pushmeshv1.ClaimPolicy) *Claims {
	c := &Claims{
		Holders:           int(orDefault(p.GetHolders(), 1)),
		MaxWaiting:        int(orDefault(p.GetMaxWaiting(), DefaultClaimWaiting)),
		TTL:               p.GetTtl().AsDuration(),
		MaxTTL:            p.GetMaxTtl().AsDuration(),
		MaxHold:           p.GetMaxHold().AsDuration(),
		MaxWait:           p.GetMaxWait().AsDuration(),
		Grace:             duration(p.GetGrace(), DefaultClaimGrace),
		WaitTTL:           duration(p.GetWaitTtl(), DefaultClaimWaitTTL),
		OfferTTL:          duration(p.GetOfferTtl(), DefaultClaimOffer),
		Clients:           p.GetClients(),
		MaxClientPriority: p.GetMaxClientPriority(),
	}
	// Whoever sets one of both alone gets what fits to it.
	c.TTL = cmp.Or(c.TTL, min(DefaultClaimTTL, cmp.Or(c.MaxTTL, DefaultClaimTTL)))
	c.MaxTTL = cmp.Or(c.MaxTTL, max(DefaultClaimMaxTTL, c.TTL))
	if a := p.GetPrepare(); a != nil {
		c.Prepare = &Prepare{Group: prefix, URL: a.GetUrl(), Deadline: duration(a.GetDeadline(), DefaultPrepare), Concurrency: int(orDefault(a.GetConcurrency(), 1))}
	}
	return c
}

func checkClaims(p *pushmeshv1.ClaimPolicy) error {
	errs := []error{
		checkMost("claims.holders", p.GetHolders(), MaxClaimHolders),
		checkMost("claims.max_waiting", p.GetMaxWaiting(), MaxClaimWaiting),
		checkMost("claims.max_client_priority", p.GetMaxClientPriority(), MaxPriority),
		checkDuration("claims.ttl", p.GetTtl(), MinClaimTTL, MaxClaimTTL),
		checkDuration("claims.max_ttl", p.GetMaxTtl(), MinClaimTTL, MaxClaimTTL),
		checkDuration("claims.max_hold", p.GetMaxHold(), MinClaimTTL, MaxClaimTTL),
		checkDuration("claims.max_wait", p.GetMaxWait(), 100*time.Millisecond, MaxClaimTTL),
		checkDuration("claims.grace", p.GetGrace(), 100*time.Millisecond, maxClaimGrace),
		checkDuration("claims.wait_ttl", p.GetWaitTtl(), time.Second, maxClaimWaitTTL),
		checkDuration("claims.offer_ttl", p.GetOfferTtl(), 100*time.Millisecond, maxClaimOffer),
	}
	if ttl, most := p.GetTtl().AsDuration(), p.GetMaxTtl().AsDuration(); most != 0 && ttl > most {
		errs = append(errs, fmt.Errorf("claims.ttl %v is more than claims.max_ttl %v", ttl, most))
	}
	if a := p.GetPrepare(); a != nil {
		errs = append(errs,
			checkDuration("claims.prepare.deadline", a.GetDeadline(), 10*time.Millisecond, time.Minute),
			checkMost("claims.prepare.concurrency", a.GetConcurrency(), 64),
			checkPrepareURL(a.GetUrl()),
		)
	}
	return errors.Join(errs...)
}

// CheckSecrets is a Rule for what is put, and not for what lies in a store: a URL with a user name
// or a password, which everybody who may read namespaces would see.
func CheckSecrets(ns *pushmeshv1.Namespace) error {
	u, err := url.Parse(ns.GetPolicy().GetClaims().GetPrepare().GetUrl())
	if err == nil && u.User != nil {
		return errors.New("claims.prepare.url has a user name or a password: whoever reads the policy would see it; calls can be signed instead (--webhook-secret-file)")
	}
	return nil
}

func checkPrepareURL(raw string) error {
	const want = `claims.prepare.url must be "http://…", "https://…" or "grpc://host:port"`
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || len(raw) > 2048 {
		return errors.New(want)
	}
	switch u.Scheme {
	case "http", "https":
		return nil
	case "grpc":
		if _, port, err := net.SplitHostPort(u.Host); err == nil && port != "" && (u.Path == "" || u.Path == "/") && u.RawQuery == "" {
			return nil
		}
	}
	return errors.New(want)
}
