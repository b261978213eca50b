package revocation

import (
	"maps"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
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
	// What changed lately, and what did before that: a change copies the first, which is small.
	recent, settled entries
}

type entries struct {
	users  map[string]entry
	tokens map[Key]entry
}

// entry is a revocation; until is 0 where it was restored.
type entry struct {
	at, until uint64 // Unix time in microseconds
	reason    string
}

// settleAt is how many recent changes become a part of what is settled.
const settleAt = 1024

func newEntries() entries { return entries{users: map[string]entry{}, tokens: map[Key]entry{}} }

func (e *entries) clone() entries {
	return entries{users: maps.Clone(e.users), tokens: maps.Clone(e.tokens)}
}

func (e *entries) n() int { return len(e.users) + len(e.tokens) }

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
	for _, part := range []*entries{&l.recent, &l.settled} {
		for user, e := range part.users {
			if _, again := l.recent.users[user]; e.until != 0 && (part == &l.recent || !again) {
				n++
			}
		}
		for key, e := range part.tokens {
			if _, again := l.recent.tokens[key]; e.until != 0 && (part == &l.recent || !again) {
				n++
			}
		}
	}
	return n
}

// NewList is a list of revocations.
func NewList(version uint64, all ...*pushmeshv1.Revocation) *List {
	var none *List
	return none.with(&meshv1.StoreServiceListRevocationsResponse{Version: version, Revocations: all}, 0)
}

// with is the list after a page of changes, without what is over at now (Unix time in
// microseconds). The receiver may be nil.
func (l *List) with(page *meshv1.StoreServiceListRevocationsResponse, now uint64) *List {
	next := &List{version: page.GetVersion(), recent: newEntries(), settled: newEntries()}
	if l != nil && !page.GetAnew() {
		next.settled = l.settled
		if next.recent = l.recent; len(page.GetRevocations()) > 0 {
			next.recent = l.recent.clone()
		}
	}
	restored := map[uint32]bool{}
	for _, place := range page.GetRestored() {
		restored[place] = true
	}
	for i, r := range page.GetRevocations() {
		e := entry{at: r.GetAt(), until: r.GetUntil(), reason: r.GetReason()}
		if restored[uint32(i)] {
			e = entry{}
		}
		next.put(r, e)
	}
	if next.recent.n() >= settleAt {
		next.settle(now)
	}
	return next
}

func (l *List) put(r *pushmeshv1.Revocation, e entry) {
	if r.GetUser() != "" {
		l.recent.users[r.GetUser()] = e
	} else if key := KeyOf(r.GetIssuer(), r.GetTokenId()); key != 0 {
		l.recent.tokens[key] = e
	}
}

// settle makes what is recent a part of the rest, and lets go of what is over.
func (l *List) settle(now uint64) {
	all := l.settled.clone()
	maps.Copy(all.users, l.recent.users)
	maps.Copy(all.tokens, l.recent.tokens)
	maps.DeleteFunc(all.users, func(_ string, e entry) bool { return e.until <= now })
	maps.DeleteFunc(all.tokens, func(_ Key, e entry) bool { return e.until <= now })
	l.settled, l.recent = all, newEntries()
}

// Refuses says why a token is void at now (Unix time in microseconds); nil: it is not. It looks
// into four maps, and takes no lock.
func (l *List) Refuses(t Token, now uint64) *code.Error {
	if l == nil {
		return nil
	}
	if e, is := l.user(t.User); is && now < e.until && uint64(t.Issued) <= e.at/uint64(time.Second/time.Microsecond) {
		return revoked("the user's tokens are revoked", e.reason)
	}
	if e, is := l.token(t.Key); is && now < e.until {
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
	e, is := l.user(t.User)
	at := e.at / uint64(time.Second/time.Microsecond)
	if !is || now >= min(e.at+closeFor, e.until) || t.Issued == 0 || uint64(t.Issued)+closeBefore <= at || uint64(t.Issued) > at {
		return why
	}
	if one, is := l.token(t.Key); is && now < one.until {
		return why
	}
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, closeRetry, why.Message+" (it was issued at about that time: show a newer one)")
}

func (l *List) user(name string) (entry, bool) {
	if e, is := l.recent.users[name]; is {
		return e, true
	}
	e, is := l.settled.users[name]
	return e, is
}

func (l *List) token(key Key) (entry, bool) {
	if key == 0 {
		return entry{}, false
	}
	if e, is := l.recent.tokens[key]; is {
		return e, true
	}
	e, is := l.settled.tokens[key]
	return e, is
}

func revoked(what, reason string) *code.Error {
	if reason != "" {
		what += ": " + reason
	}
	return code.New(wirev1.Code_CODE_UNAUTHENTICATED, "revoked: "+what)
}
