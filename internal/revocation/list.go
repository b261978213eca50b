package revocation

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/newest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Token is what of a token counts here.
type Token struct {
	User   string
	Key    Key
	Issued uint32 // its iat, in seconds since 1970; 0: it has none
}

// Of is the token that a principal was proven by.
func Of(who *identity.Principal) Token {
	t := Token{User: who.User, Key: KeyOf(who.Proof.Issuer, who.Proof.TokenID)}
	if !who.Issued.IsZero() {
		// as whole seconds; a time that has no room is after every revocation
		t.Issued = uint32(min(max(who.Issued.Unix(), 1), 1<<32-1))
	}
	return t
}

// List is what is revoked as of a version. It is never changed, and safe for concurrent use.
type List struct {
	version uint64
	users   newest.Map[string, entry]
	tokens  newest.Map[Key, entry]
}

// entry is a revocation; until is 0 where it was restored.
type entry struct {
	at, until uint64 // Unix time in microseconds
	reason    string
}

// Version of a list; nil has none.
func (l *List) Version() uint64 {
	if l == nil {
		return 0
	}
	return l.version
}

// Len is how many revocations a list has; those that are over may count.
func (l *List) Len() int {
	if l == nil {
		return 0
	}
	n := 0
	for _, e := range l.users.All() {
		n += e.counts()
	}
	for _, e := range l.tokens.All() {
		n += e.counts()
	}
	return n
}

func (e entry) counts() int {
	if e.until == 0 {
		return 0
	}
	return 1
}

// NewList is a list of revocations.
func NewList(version uint64, all ...*pushmeshv1.Revocation) *List {
	var none *List
	return none.with(&meshv1.StoreServiceListRevocationsResponse{Version: version, Revocations: all}, 0)
}

// with is the list after a page of changes, without what is over at now (Unix time in
// microseconds). The receiver may be nil.
func (l *List) with(page *meshv1.StoreServiceListRevocationsResponse, now uint64) *List {
	next := &List{version: page.GetVersion()}
	if l != nil && !page.GetAnew() {
		next.users, next.tokens = l.users, l.tokens
	}
	restored := map[uint32]bool{}
	for _, place := range page.GetRestored() {
		restored[place] = true
	}
	users, tokens := map[string]entry{}, map[Key]entry{}
	for i, r := range page.GetRevocations() {
		e := entry{at: r.GetAt(), until: r.GetUntil(), reason: r.GetReason()}
		if restored[uint32(i)] {
			e = entry{}
		}
		if r.GetUser() != "" {
			users[r.GetUser()] = e
		} else if key := KeyOf(r.GetIssuer(), r.GetTokenId()); key != 0 {
			tokens[key] = e
		}
	}
	over := func(e entry) bool { return e.until <= now }
	next.users, next.tokens = next.users.With(users, over), next.tokens.With(tokens, over)
	return next
}

// Refuses says why a token is void at now (Unix time in microseconds); nil: it is not. It looks
// into four maps, and takes no lock.
func (l *List) Refuses(t Token, now uint64) *code.Error {
	if l == nil {
		return nil
	}
	if e, is := l.users.Get(t.User); is && now < e.until && uint64(t.Issued) <= e.at/uint64(time.Second/time.Microsecond) {
		return revoked("the user's tokens are revoked", e.reason)
	}
	if e, is := l.tokens.Get(t.Key); is && now < e.until {
		return revoked("the token is revoked", e.reason)
	}
	return nil
}

// What comes close after the revocation of a user may be a token of afterwards: its iat has whole
// seconds, and the issuer's clock may be behind. Such a one is refused for a while only, so that a
// client comes back with another one rather than give up.
const (
	closeBefore = 5 // seconds by which its iat may be before the revocation
	closeFor    = uint64(10 * time.Second / time.Microsecond)
	closeRetry  = time.Second
)

// Admits says why a token is not taken now, as Refuses does: with a time to come back where the
// user may have a good one by then.
func (l *List) Admits(t Token, now uint64) *code.Error {
	why := l.Refuses(t, now)
	if why == nil {
		return nil
	}
	e, is := l.users.Get(t.User)
	at := e.at / uint64(time.Second/time.Microsecond)
	if !is || now >= min(e.at+closeFor, e.until) || t.Issued == 0 || uint64(t.Issued)+closeBefore <= at || uint64(t.Issued) > at {
		return why
	}
	if one, is := l.tokens.Get(t.Key); is && now < one.until {
		return why
	}
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, closeRetry, why.Message+" (it was issued at about that time: show a newer one)")
}

func revoked(what, reason string) *code.Error {
	if reason != "" {
		what += ": " + reason
	}
	return code.New(wirev1.Code_CODE_UNAUTHENTICATED, "revoked: "+what)
}
