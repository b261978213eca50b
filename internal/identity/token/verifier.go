// Package token tells who somebody is by a signed token (a JWT) of an issuer that the mesh trusts.
package token

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Options of a Verifier; zero fields have defaults.
type Options struct {
	// Guard makes the connections to issuers: to public addresses, and to those that it lists. Nil,
	// which is for tests and tools: Client makes them, to whatever address.
	Guard       *outbound.Guard
	Client      *http.Client // where there is no Guard; its redirects are not followed
	Log         *slog.Logger
	Concurrency int // tokens that are checked at a time; a worker for each processor
	Waiting     int // callers that wait for their turn; 1,024
	CacheBytes  int // of tokens that were found good; 16 MiB
	// Registry gets the metrics, whose names begin with pushmesh_TIER_; nil: there are none.
	Registry prometheus.Registerer
	Tier     string
}

// overloadedFor is when a caller that found no room may try again.
const overloadedFor = time.Second

// maxWait is how long a caller waits for its turn, whatever its context says.
const maxWait = 5 * time.Second

// Verifier checks tokens of some issuers. It is a lifecycle.Part, which owns a goroutine for each
// issuer, and safe for concurrent use. It may wait, and computes for up to a millisecond: it is not
// for an event loop.
type Verifier struct {
	issuers atomic.Pointer[map[string]*keyring] // by URL; each map stays as it is
	file    reloading
	fetch   func(context.Context, *Issuer) (*keySet, error)
	log     *slog.Logger
	cache   *cache
	room    chan struct{}
	waiting atomic.Int64
	most    int64
	group   *lifecycle.Group
	end     func() // closes the connections to issuers
	metrics *metrics
}

// New makes a Verifier of issuers as ReadIssuers returns them. Until Start, and until the keys of
// an issuer were fetched, its tokens are refused with UNAVAILABLE.
func New(issuers []Issuer, o Options) *Verifier {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	client, end := o.client()
	v := &Verifier{
		end: end, log: o.Log, cache: newCache(orElse(o.CacheBytes, 16<<20)),
		room: make(chan struct{}, orElse(o.Concurrency, runtime.GOMAXPROCS(0))), most: int64(orElse(o.Waiting, 1024)),
	}
	v.metrics = newMetrics(v, &o)
	v.fetch = func(ctx context.Context, is *Issuer) (*keySet, error) {
		set, err := fetchKeys(ctx, is, client)
		v.metrics.fetched(is.Name, err)
		return set, err
	}
	rings := map[string]*keyring{}
	for _, is := range issuers {
		rings[is.URL] = v.keyring(is)
	}
	v.issuers.Store(&rings)
	return v
}

func (v *Verifier) keyring(is Issuer) *keyring {
	return newKeyring(&is, func(ctx context.Context) (*keySet, error) { return v.fetch(ctx, &is) }, v.log)
}

// client is what fetches keys; end closes its unused connections.
func (o *Options) client() (c *http.Client, end func()) {
	if o.Guard != nil {
		return o.Guard.Client(fetchIdle)
	}
	c = &http.Client{}
	if o.Client != nil {
		*c = *o.Client
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, c.CloseIdleConnections
}

func orElse(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// Start begins to fetch keys, and does not wait for them.
func (v *Verifier) Start(context.Context) error {
	v.group = lifecycle.NewGroup(context.Background())
	for _, keys := range *v.issuers.Load() {
		v.group.Go("issuer "+keys.issuer.Name, keys.run)
	}
	if v.file.path != "" {
		v.group.Go("issuers file", v.watch)
	}
	return nil
}

// Stop ends the fetching, and closes the connections to issuers.
func (v *Verifier) Stop(ctx context.Context) error {
	defer v.end()
	if v.group == nil {
		return nil
	}
	return v.group.Stop(ctx)
}

// Verify returns who a token is of. Its error is a *code.Error: UNAUTHENTICATED and TOKEN_EXPIRED
// refuse the token for good, UNAVAILABLE (the issuer's keys can't be had now, or are fetched again)
// and OVERLOADED (no turn until ctx ended, or too many wait) say when to try again. Errors hold
// nothing of the token.
//
// What is returned is shared with others who showed the same token, and must not be changed.
func (v *Verifier) Verify(ctx context.Context, token string) (*identity.Principal, error) {
	who, result, why := v.verify(ctx, token)
	if why != nil {
		v.metrics.refused(why)
		return nil, why
	}
	v.metrics.shown(result)
	return who, nil
}

func (v *Verifier) verify(ctx context.Context, token string) (who *identity.Principal, result string, why *code.Error) {
	if len(token) > MaxToken {
		return nil, "", bad("the token is %d bytes long, %d at most", len(token), MaxToken)
	}
	now := time.Now()
	hash := tokenHash(sha256.Sum256([]byte(token)))
	if who = v.cache.get(hash, now); who != nil {
		return who, resultCached, nil
	}
	found, why := v.check(ctx, token, hash, now)
	if why != nil {
		return nil, "", why
	}
	v.cache.put(hash, found, len(token))
	return found.who, resultOK, nil
}

// Known is who a token is of that was found good before, and still is; nil where Verify is to find
// that out. It hashes the token and takes a lock for a moment, and does not wait.
func (v *Verifier) Known(token string) *identity.Principal {
	if len(token) > MaxToken {
		return nil
	}
	who := v.cache.get(sha256.Sum256([]byte(token)), time.Now())
	if who != nil {
		v.metrics.wasKnown()
	}
	return who
}

// enter waits for a turn.
func (v *Verifier) enter(ctx context.Context) *code.Error {
	select {
	case v.room <- struct{}{}:
		return nil
	default:
	}
	busy := code.Retry(wirev1.Code_CODE_OVERLOADED, overloadedFor, "too many tokens are checked at this time")
	if v.waiting.Add(1) > v.most {
		v.waiting.Add(-1)
		return busy
	}
	defer v.waiting.Add(-1)
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case v.room <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	return busy
}

func (v *Verifier) leave() { <-v.room }

// check finds who has signed a token, and waits once for the issuer's keys if it has to.
func (v *Verifier) check(ctx context.Context, token string, hash tokenHash, now time.Time) (*verified, *code.Error) {
	p, who, keys, why := v.read(ctx, token, now)
	if why != nil {
		return nil, why
	}
	for waited := false; ; {
		have := keys.current.Load()
		signer, why := v.signer(ctx, token, &p, keys.usable(have, now))
		switch {
		case why != nil:
			return nil, why
		case signer != nil && !time.Now().Before(who.Expires): // while its caller waited
			return nil, expired()
		case signer != nil:
			who.Proof.Issuer, who.Proof.KeyID = keys.issuer.Name, signer.id
			return &verified{who: who, keys: keys, print: signer.print}, nil
		}
		keys.miss(hash, now)
		others := func() bool { return keys.current.Load() != have } // which were not tried
		if others() {
			continue
		}
		// without a turn: who waits for an issuer keeps nobody else from being checked
		if waited || keys.asInFile(have) || !keys.await(ctx) && !others() {
			return nil, keys.refuse(have, hash, &p, now)
		}
		waited = true
	}
}

// read reads a token and checks all but its signature.
func (v *Verifier) read(ctx context.Context, token string, now time.Time) (p parsed, who *identity.Principal, keys *keyring, why *code.Error) {
	if why = v.enter(ctx); why != nil {
		return
	}
	defer v.leave()
	p, err := parse(token)
	if err != nil {
		return p, nil, nil, bad("%v", err)
	}
	issuer, err := text(p.claims, "iss")
	if keys = (*v.issuers.Load())[issuer]; keys == nil || err != nil {
		return p, nil, nil, bad("the token's iss is not an issuer that this mesh trusts")
	}
	if err := allowed(p.alg, keys.issuer); err != nil {
		return p, nil, nil, bad("%v", err)
	}
	who, why = keys.issuer.principal(p, now)
	return p, who, keys, why
}

func allowed(alg string, is *Issuer) error {
	for _, one := range is.Algorithms {
		if one == alg {
			return nil
		}
	}
	return fmt.Errorf("the token's alg is not one that issuer %s may use: %v", is.Name, is.Algorithms)
}

// principal checks the claims of a token of the issuer.
func (is *Issuer) principal(p parsed, now time.Time) (*identity.Principal, *code.Error) {
	if err := checkAudience(p.claims, is.Audiences); err != nil {
		return nil, bad("the token: %v", err)
	}
	notBefore, expires, why := checkTimes(p.claims, now, is.Leeway)
	if why != nil {
		return nil, why
	}
	who, err := principal(p.claims, is.UserPrefix)
	if err != nil {
		return nil, bad("the token: %v", err)
	}
	who.NotBefore, who.Expires = notBefore, expires
	return who, nil
}

// signer finds the key of a set that has signed a token; nil: none has.
func (v *Verifier) signer(ctx context.Context, token string, p *parsed, set *keySet) (*key, *code.Error) {
	if set == nil {
		return nil, nil
	}
	may := set.find(p.alg, p.keyID)
	if len(may) == 0 {
		return nil, nil
	}
	if why := v.enter(ctx); why != nil {
		return nil, why
	}
	defer v.leave()
	for _, k := range may {
		if k.verify(token) {
			return k, nil
		}
	}
	return nil, nil
}
