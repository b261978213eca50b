package principals

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/revocation"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// void is what is revoked; with why no token is taken.
type void struct {
	list *revocation.List
	why  *code.Error
}

func (v *void) List() *revocation.List { return v.list }
func (v *void) Refuses(t revocation.Token, now uint64) *code.Error {
	if v.why != nil {
		return v.why
	}
	return v.list.Refuses(t, now)
}

// now is the loop's time and Unix time in the tests.
func now() (int64, uint64) { return 0, 3600e6 }

// revoke makes users void, and nobody else.
func (v *void) revoke(users ...string) {
	var all []*pushmeshv1.Revocation
	for _, user := range users {
		all = append(all, &pushmeshv1.Revocation{User: user, At: 3600e6, Until: 7200e6})
	}
	v.list = revocation.NewList(v.list.Version()+1, all...)
}

// open are connections that are closed once.
type open struct {
	Delivery
	t         *testing.T
	conns     map[uint32]exchange.Conn
	closed    map[uint32]*code.Error
	refused   []*code.Error
	refreshed int
	gone      func(slot uint32)
}

// shows is a Door at which everybody is who it says.
type shows struct{ who *identity.Principal }

func (s *shows) Identify(exchange.Conn, Shown) (*identity.Principal, *code.Error, bool) {
	return s.who, nil, true
}
func (*shows) Asks() bool            { return false }
func (*shows) Nameless() *code.Error { return nil }

func (o *open) Client(slot uint32) (string, string, bool, bool) {
	_, is := o.conns[slot]
	return "c", "", false, is
}

func (o *open) OpenConn(slot uint32) (exchange.Conn, bool) {
	c, is := o.conns[slot]
	return c, is
}

func (o *open) Close(c exchange.Conn, why *code.Error) {
	if o.conns[c.Slot] != c {
		o.t.Errorf("%v is closed, and there is %v", c, o.conns[c.Slot])
	}
	delete(o.conns, c.Slot)
	o.closed[c.Slot] = why
	o.gone(c.Slot)
}

func (o *open) RefuseRequest(_ exchange.Conn, _ uint32, why *code.Error) {
	o.refused = append(o.refused, why)
}

func (o *open) LoseClaims(exchange.Conn, string, func(string) bool) {}

func (o *open) Refreshed(exchange.Conn, *wirev1.Refreshed) { o.refreshed++ }

func (o *open) Greet(c exchange.Conn, _ *wirev1.Hello) { o.conns[c.Slot] = c }

// later answers who shows a token once the test says so.
type later struct{ Door }

func (later) Asks() bool { return false }

func (later) Identify(exchange.Conn, Shown) (*identity.Principal, *code.Error, bool) {
	return nil, nil, false
}

type swept struct {
	*open
	jobs  *walk.Jobs
	table *Table
	void  *void
}

func sweeping(t *testing.T, door Door) *swept {
	s := &swept{open: &open{t: t, conns: map[uint32]exchange.Conn{}, closed: map[uint32]*code.Error{}}, jobs: &walk.Jobs{}, void: &void{}}
	s.void.revoke()
	s.table = New(Config{Door: door, Revoked: s.void}, s.open, s.jobs, &walk.Cost{}, now, func(uint32) string { return "" })
	s.open.gone = s.table.Gone
	return s
}

// enter has a client come whose token is its user's name.
func (s *swept) enter(slot uint32, user string) *code.Error {
	c := exchange.Conn{Slot: slot, Gen: slot + 1}
	_, wait, why := s.table.Hello(c, &wirev1.Hello{Token: user}, exchange.Plain)
	if why == nil && !wait {
		s.conns[slot] = c
	}
	return why
}

// sweep does what is to do, and says in how many steps.
func (s *swept) sweep() (steps int) {
	for s.jobs.Step() > 0 {
		steps++
	}
	return steps
}

// Those who are revoked are closed, some slots at a time, and nobody else. What comes while that
// goes on is not taken; what is revoked while it goes on is found among those that it has passed.
func TestASweepClosesThoseWhoAreRevoked(t *testing.T) {
	const n = 10 * slotsSlice
	s := sweeping(t, users{})
	for i := range uint32(n) {
		if why := s.enter(i, fmt.Sprint("user-", i%100)); why != nil {
			t.Fatal(why)
		}
	}
	s.table.Sweep()
	if steps := s.sweep(); steps < n/slotsSlice || len(s.closed) != 0 {
		t.Fatalf("nobody is revoked: %d are closed in %d steps", len(s.closed), steps)
	}
	s.void.revoke("user-7")
	s.table.Sweep()
	s.table.Sweep() // another notice
	for range 5 {
		s.jobs.Step()
	}
	if len(s.closed) == 0 || len(s.closed) >= n/100 {
		t.Fatalf("%d are closed in the midst of it", len(s.closed))
	}
	if why := s.enter(n, "user-7"); code.Of(why) != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Errorf("one who is revoked comes in: %v", why)
	}
	s.void.revoke("user-7", "user-8") // 8 was passed, some times
	s.table.Sweep()
	s.sweep()
	for slot, why := range s.closed {
		if user := slot % 100; why.Code != wirev1.Code_CODE_UNAUTHENTICATED || user != 7 && user != 8 {
			t.Errorf("user %d is closed: %v", user, why)
		}
	}
	closed := 0
	for i := range n {
		if i%100 == 7 || i%100 == 8 {
			closed++
		}
	}
	if len(s.closed) != closed || s.table.Stats().Revoked != uint64(closed) || s.table.sweep != nil {
		t.Errorf("%d are closed, want %d", len(s.closed), closed)
	}
}

// A token that is revoked while it is checked is not taken, whatever the check says: the sweep did
// not see its connection.
func TestATokenThatIsRevokedWhileItIsChecked(t *testing.T) {
	s := sweeping(t, later{})
	c := exchange.Conn{Slot: 1, Gen: 1}
	if _, wait, why := s.table.Hello(c, &wirev1.Hello{Token: "t"}, exchange.Plain); !wait || why != nil {
		t.Fatal(wait, why)
	}
	s.conns[1] = c
	s.void.revoke("ann")
	s.table.Sweep()
	s.sweep()
	if len(s.closed) != 0 {
		t.Fatal("whose token is checked has no user yet")
	}
	s.table.Identified(exchange.Identified{Conn: c, Who: &identity.Principal{User: "ann"}})
	if why := s.closed[1]; why == nil || why.Code != wirev1.Code_CODE_UNAUTHENTICATED || s.table.User(1) != "" {
		t.Errorf("%v, and the user is %q", why, s.table.User(1))
	}
}

// A refresh with a revoked token is refused, and leaves the connection; with another token it is
// that one which counts.
func TestARefreshToARevokedToken(t *testing.T) {
	door := &shows{}
	s := sweeping(t, door)
	id := func(jti string) *identity.Principal {
		return &identity.Principal{User: "ann", Proof: identity.Proof{Issuer: "i", TokenID: jti}}
	}
	door.who = id("1")
	if why := s.enter(0, "t"); why != nil {
		t.Fatal(why)
	}
	s.void.list = revocation.NewList(9, &pushmeshv1.Revocation{Issuer: "i", TokenId: "2", At: 3600e6, Until: 7200e6})
	door.who = id("2")
	s.table.Refresh(s.conns[0], &wirev1.RefreshToken{Id: 5, Token: "t"})
	if len(s.refused) != 1 || s.refused[0].Code != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Errorf("refused: %v", s.refused)
	}
	door.who = id("3")
	s.table.Refresh(s.conns[0], &wirev1.RefreshToken{Id: 6, Token: "t"})
	s.void.list = revocation.NewList(10, &pushmeshv1.Revocation{Issuer: "i", TokenId: "1", At: 3600e6, Until: 7200e6})
	s.table.Sweep()
	s.sweep()
	if len(s.closed) != 0 || s.refreshed != 1 {
		t.Errorf("closed by the token that it does not go by any more: %v, refreshed %d times", s.closed, s.refreshed)
	}
	s.void.list = revocation.NewList(11, &pushmeshv1.Revocation{Issuer: "i", TokenId: "3", At: 3600e6, Until: 7200e6})
	s.table.Sweep()
	s.sweep()
	if s.closed[0] == nil {
		t.Error("the token that it was refreshed to is revoked, and it stays")
	}
}

// While it is not known what is revoked nobody comes in, and nobody is closed.
func TestNobodyIsClosedForWantOfTheList(t *testing.T) {
	s := sweeping(t, users{})
	if why := s.enter(0, "ann"); why != nil {
		t.Fatal(why)
	}
	s.void.why = code.New(wirev1.Code_CODE_UNAVAILABLE, "not known")
	s.table.Sweep()
	s.sweep()
	if why := s.enter(1, "ann"); code.Of(why) != wirev1.Code_CODE_UNAVAILABLE || len(s.closed) != 0 {
		t.Errorf("%v, %d closed", why, len(s.closed))
	}
}

// BenchmarkSweep looks at 100,000 connections, of whom nobody is revoked, while 100,000 others are.
func BenchmarkSweep(b *testing.B) {
	const n = 100_000
	all := make([]*pushmeshv1.Revocation, n)
	for i := range all {
		all[i] = &pushmeshv1.Revocation{User: fmt.Sprint("gone-", i), At: 3600e6, Until: 7200e6}
	}
	s := sweeping(nil, users{})
	s.void.list = revocation.NewList(1, all...)
	for i := range uint32(n) {
		if why := s.enter(i, fmt.Sprint("user-", i)); why != nil {
			b.Fatal(why)
		}
	}
	for b.Loop() {
		s.table.Sweep()
		s.sweep()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/connection")
}
