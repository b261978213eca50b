package revocation

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/newest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const second = 1_000_000

func page(version uint64, all ...*pushmeshv1.Revocation) *meshv1.StoreServiceListRevocationsResponse {
	return &meshv1.StoreServiceListRevocationsResponse{Version: version, Revocations: all}
}

// A user's tokens are void that were issued until the second in which they were revoked, or do not
// say when; a token's user and issuer make no difference to its own.
func TestWhatARevocationIsOf(t *testing.T) {
	l := NewList(3,
		&pushmeshv1.Revocation{User: "ann", At: 100*second + 5, Until: 200 * second, Reason: "left"},
		&pushmeshv1.Revocation{Issuer: "i", TokenId: "1", At: 100 * second, Until: 200 * second},
	)
	for what, c := range map[string]struct {
		token Token
		now   uint64
		want  string // "": it is good
	}{
		"issued before":           {Token{User: "ann", Issued: 99}, 150 * second, "revoked: the user's tokens are revoked: left"},
		"in the same second":      {Token{User: "ann", Issued: 100}, 150 * second, "revoked: the user's tokens are revoked: left"},
		"after it":                {Token{User: "ann", Issued: 101}, 150 * second, ""},
		"without iat":             {Token{User: "ann"}, 150 * second, "revoked: the user's tokens are revoked: left"},
		"once that is over":       {Token{User: "ann"}, 200 * second, ""},
		"another user":            {Token{User: "bob", Issued: 1}, 150 * second, ""},
		"the token":               {Token{User: "bob", Issued: 199, Key: KeyOf("i", "1")}, 150 * second, "revoked: the token is revoked"},
		"of another issuer":       {Token{User: "bob", Key: KeyOf("j", "1")}, 150 * second, ""},
		"another cut of the name": {Token{User: "bob", Key: KeyOf("", "i1")}, 150 * second, ""},
		"the token, once over":    {Token{User: "bob", Key: KeyOf("i", "1")}, 200 * second, ""},
	} {
		got := ""
		if why := l.Refuses(c.token, c.now); why != nil {
			if got = why.Message; why.Code != wirev1.Code_CODE_UNAUTHENTICATED {
				t.Errorf("%s: %v", what, why)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if why := (*List)(nil).Refuses(Token{User: "ann"}, 0); why != nil {
		t.Error(why)
	}
}

// A token that was issued at about the time when its user's were revoked is refused for some
// seconds only: a client comes back with another one.
func TestATokenOfAboutThatTime(t *testing.T) {
	const at = 100*second + 700_000
	l := NewList(3,
		&pushmeshv1.Revocation{User: "ann", At: at, Until: 200 * second},
		&pushmeshv1.Revocation{User: "short", At: at, Until: at + second},
		&pushmeshv1.Revocation{Issuer: "i", TokenId: "1", At: at, Until: 200 * second},
	)
	for what, c := range map[string]struct {
		token Token
		now   uint64
		want  wirev1.Code
	}{
		"of that second":               {Token{User: "ann", Issued: 100}, at, wirev1.Code_CODE_UNAVAILABLE},
		"some seconds later":           {Token{User: "ann", Issued: 100}, at + closeFor - 1, wirev1.Code_CODE_UNAVAILABLE},
		"for good":                     {Token{User: "ann", Issued: 100}, at + closeFor, wirev1.Code_CODE_UNAUTHENTICATED},
		"by a clock that is behind":    {Token{User: "ann", Issued: 96}, at, wirev1.Code_CODE_UNAVAILABLE},
		"too old":                      {Token{User: "ann", Issued: 95}, at, wirev1.Code_CODE_UNAUTHENTICATED},
		"without iat":                  {Token{User: "ann"}, at, wirev1.Code_CODE_UNAUTHENTICATED},
		"after it":                     {Token{User: "ann", Issued: 101}, at, wirev1.Code_CODE_OK},
		"one that is revoked itself":   {Token{User: "ann", Issued: 100, Key: KeyOf("i", "1")}, at, wirev1.Code_CODE_UNAUTHENTICATED},
		"a later one, revoked itself":  {Token{User: "ann", Issued: 101, Key: KeyOf("i", "1")}, at, wirev1.Code_CODE_UNAUTHENTICATED},
		"another user's, revoked":      {Token{User: "bob", Issued: 100, Key: KeyOf("i", "1")}, at, wirev1.Code_CODE_UNAUTHENTICATED},
		"once the user's are good":     {Token{User: "short", Issued: 100}, at + second, wirev1.Code_CODE_OK},
		"while the user's are revoked": {Token{User: "short", Issued: 100}, at + second - 1, wirev1.Code_CODE_UNAVAILABLE},
	} {
		why := l.Admits(c.token, c.now)
		if got := code.Of(why); why == nil && c.want != wirev1.Code_CODE_OK || why != nil && (got != c.want || (why.RetryAfter > 0) != (c.want == wirev1.Code_CODE_UNAVAILABLE)) {
			t.Errorf("%s: %v, want %v", what, why, c.want)
		}
		if (l.Refuses(c.token, c.now) == nil) != (why == nil) {
			t.Errorf("%s: a live connection is looked at otherwise", what)
		}
	}
}

// What counts of a token is taken from whom it proved.
func TestOfAPrincipal(t *testing.T) {
	who := &identity.Principal{User: "ann", Issued: time.Unix(7, 999), Proof: identity.Proof{Issuer: "i", TokenID: "1"}}
	if got := Of(who); got != (Token{User: "ann", Key: KeyOf("i", "1"), Issued: 7}) {
		t.Errorf("%+v", got)
	}
	for at, want := range map[time.Time]uint32{{}: 0, time.Unix(0, 0): 1, time.Unix(1<<40, 0): 1<<32 - 1} {
		if got := Of(&identity.Principal{User: "ann", Issued: at}); got.Issued != want || got.Key != 0 {
			t.Errorf("issued %v: %+v", at, got)
		}
	}
}

// However changes come, in whatever pages, a list refuses what the last change of each name says,
// and lists that were there before stay as they were.
func TestAListIsTheLastOfEachName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l *List
		model := map[string]entry{}
		now, version := uint64(1000*second), uint64(1)
		type old struct {
			list *List
			what map[string]bool
		}
		refused := func(l *List) map[string]bool {
			all := map[string]bool{}
			for i := range 6 {
				name := fmt.Sprint("n", i)
				all["u"+name] = l.Refuses(Token{User: name}, now) != nil
				all["t"+name] = l.Refuses(Token{Key: KeyOf("i", name)}, now) != nil
			}
			return all
		}
		var before []old
		for range rapid.IntRange(1, 20).Draw(t, "pages") {
			p := page(0)
			for range rapid.IntRange(0, 400).Draw(t, "changes") {
				version++
				name := fmt.Sprint("n", rapid.IntRange(0, 5).Draw(t, "name"))
				r := &pushmeshv1.Revocation{User: name, At: now, Until: now + second*uint64(rapid.IntRange(0, 3).Draw(t, "until")), Version: version}
				key := "u" + name
				if rapid.Bool().Draw(t, "token") {
					r.User, r.Issuer, r.TokenId, key = "", "i", name, "t"+name
				}
				model[key] = entry{until: r.Until}
				if rapid.IntRange(0, 3).Draw(t, "restored") == 0 {
					p.Restored = append(p.Restored, uint32(len(p.Revocations)))
					model[key] = entry{}
				}
				p.Revocations = append(p.Revocations, r)
			}
			if p.Version = version; rapid.IntRange(0, 9).Draw(t, "anew") == 0 {
				p.Anew, model = true, map[string]entry{}
				for i, r := range p.Revocations {
					key := "u" + r.User
					if r.User == "" {
						key = "t" + r.TokenId
					}
					model[key] = entry{until: r.Until}
					for _, place := range p.Restored {
						if int(place) == i {
							model[key] = entry{}
						}
					}
				}
			}
			l = l.with(p, now)
			if rapid.Bool().Draw(t, "settle") {
				settled, over := *l, func(e entry) bool { return e.until <= now }
				settled.users, settled.tokens = l.users.Settled(over), l.tokens.Settled(over)
				l = &settled
			}
			for key, is := range refused(l) {
				if want := model[key].until > now; is != want {
					t.Fatalf("%s: refused %v, want %v", key, is, want)
				}
			}
			kept := 0
			for _, e := range model {
				if e.until > now {
					kept++
				}
			}
			if n := l.Len(); l.Version() != version || n < kept || n > len(model) {
				t.Fatalf("version %d of %d, %d revocations of %d", l.Version(), version, n, kept)
			}
			before = append(before, old{l, refused(l)})
		}
		for i, b := range before {
			for key, is := range refused(b.list) {
				if is != b.what[key] {
					t.Fatalf("list %d has changed: %s", i, key)
				}
			}
		}
	})
}

// Very many changes are settled: a change copies the recent ones alone.
func TestWhatIsRecentStaysSmall(t *testing.T) {
	var l *List
	for i := range 10 * newest.SettleAt {
		l = l.with(page(uint64(i), &pushmeshv1.Revocation{User: fmt.Sprint(i), At: 1, Until: 10 * second}), second)
		if l.users.Recent() >= newest.SettleAt {
			t.Fatalf("%d are recent", l.users.Recent())
		}
	}
	if l.Len() != 10*newest.SettleAt {
		t.Errorf("%d of %d", l.Len(), 10*newest.SettleAt)
	}
	// What is over goes with the next that settle.
	for i := range newest.SettleAt {
		l = l.with(page(uint64(i), &pushmeshv1.Revocation{User: fmt.Sprint("late-", i), At: 1, Until: 30 * second}), 20*second)
	}
	if n := l.Len(); n != newest.SettleAt {
		t.Errorf("%d are left, want %d", n, newest.SettleAt)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("ann", "", "", "left", uint64(0))
	f.Add("", "i", "1", "", uint64(5))
	f.Add("", "i\x00", "1", "\x80", uint64(1)<<63)
	f.Fuzz(func(t *testing.T, user, issuer, id, reason string, until uint64) {
		now := time.Unix(1000, 0)
		r := &pushmeshv1.Revocation{User: user, Issuer: issuer, TokenId: id, Reason: reason, Until: until}
		if Check(r, now) != nil {
			return
		}
		if (user == "") != (issuer != "" && id != "") || r.Until <= uint64(now.UnixMicro()) || r.Until > uint64(now.Add(MaxTime).UnixMicro()) {
			t.Fatalf("%v is good", r)
		}
		// and does what it says
		token := Token{User: user, Key: KeyOf(issuer, id)}
		if why := NewList(1, r).Refuses(token, uint64(now.UnixMicro())); code.Of(why) != wirev1.Code_CODE_UNAUTHENTICATED {
			t.Fatalf("%v refuses nothing", r)
		}
	})
}
