// Package principals is what an event loop knows of who its connections belong to: the user, what
// the user may do, and until when. Tokens are checked off the loop (package gate); the loop has the
// rights that came of it, and never the token.
//
// A connection has one entry of 48 bytes and its user's name. Rights that are alike are one
// identity.Grants in the whole process.
package principals

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/revocation"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Door says who may come in. Its methods never block.
type Door interface {
	// Identify finds who a client is. known: that is clear at once, and who or why says it. Else it
	// is answered by exchange.Identified.
	Identify(conn exchange.Conn, s Shown) (who *identity.Principal, why *code.Error, known bool)
	// Asks reports whether clients without a token are to be identified, too.
	Asks() bool
	// Nameless is a refusal of a client that shows no token; nil: it is let in, and belongs to the
	// client id that it says, as where there is no Door.
	Nameless() *code.Error
}

// Shown is what a client says of itself.
type Shown struct {
	// From is the client's address; "": it counts for none.
	From                     string
	Token, ClientID, Session string
	// Cookie is the header of a browser's request for WebSocket, where it may count.
	Cookie string
}

// Brought is what a client has shown before its Hello: in the request that its connection began
// with.
type Brought struct{ Token, Cookie string }

// Delivery is what principals need of the loop's connections.
type Delivery interface {
	// Greet goes on with a Hello whose token was found good.
	Greet(c exchange.Conn, m *wirev1.Hello)
	// Close closes a connection with an Error.
	Close(c exchange.Conn, why *code.Error)
	// Refreshed answers a RefreshToken, and has the connection's timers ask EndsAt again;
	// RefuseRequest answers one with an Error.
	Refreshed(c exchange.Conn, m *wirev1.Refreshed)
	RefuseRequest(c exchange.Conn, ref uint32, why *code.Error)
	// Client is the client id that a connection says; the rest is not looked at.
	Client(slot uint32) (clientID, user string, backend, is bool)
	// OpenConn is the connection in a slot, and whether it is open.
	OpenConn(slot uint32) (at exchange.Conn, open bool)
	// Slots is how many slots there are; some are empty.
	Slots() uint32
	// LoseClaims takes back what a connection, as owner, waits for in lines and watches, where that
	// is denied now.
	LoseClaims(c exchange.Conn, owner string, denied func(resource string) bool)
	// Subscriptions is how many a connection has, alone and in groups. EndIf ends one that is
	// denied with a reason, and says so: the last of its kind may take its place. group is "" for
	// one alone.
	Subscriptions(c exchange.Conn) (alone, shared int)
	EndIf(c exchange.Conn, shared bool, i int, denied func(id uint32, filter, group string) (why string)) (ended bool)
	// Watches is of how many topics a connection is told who is there, and EndWatchIf is EndIf for
	// one of them.
	Watches(c exchange.Conn) int
	EndWatchIf(c exchange.Conn, i int, denied func(id uint32, filter, group string) (why string)) (ended bool)
}

// Config of a Table.
type Config struct {
	// TicketsByTLS has no ticket be good that comes without the TLS between tiers.
	TicketsByTLS bool
	// Redeem reports whether what Hello shows is a ticket that is good, at a Unix time in
	// microseconds; it must not block. nil: none is.
	Redeem func(ticket []byte, now uint64) bool
	// TLSOnly refuses a Hello without TLS, but with a ticket.
	TLSOnly bool
	// Door is nil where tokens are not taken: then every client belongs to the client id that it
	// says.
	Door Door
	// KeepExpired has a connection whose token has ended stay until it ends by itself. Grace is how
	// long one stays otherwise.
	KeepExpired bool
	Grace       time.Duration
	// Revoked says which tokens are void before they end; nil: none is.
	Revoked Revocations
	// Teams say what users are granted beside their tokens; nil: nothing.
	Teams Teams
	// Namespaces say what clients may not do, whatever they are granted; it must not block. nil:
	// nothing of that.
	Namespaces func() *policy.Table
	// KeepIssuers has Issuer be known.
	KeepIssuers bool
}

// Table has the principals of one loop's connections, and is used by that loop alone.
type Table struct {
	cfg      Config
	sweep    *sweep // nil: none is under way
	barring  *pass  // likewise
	moving   *pass  // likewise
	delivery Delivery
	jobs     *walk.Jobs
	cost     *walk.Cost
	slots    slab.Slab[entry]
	names    slab.Texts
	grants   grants
	issuers  []string           // by slot, where they are kept
	waiting  map[uint32]waiting // by slot
	brought  map[uint32]Brought // by slot, until Hello
	now      func() (int64, uint64)
	origin   func(slot uint32) string
	extra    func(c exchange.Conn, id uint32, verb identity.Verb) bool
	stats    Stats
}

// Allow says which subscriptions rights need not allow.
func (t *Table) Allow(extra func(c exchange.Conn, id uint32, verb identity.Verb) bool) {
	t.extra = extra
}

// Stats are plain counters; Known is a gauge.
type Stats struct {
	Known     int64  // connections whose user is known
	Nameless  uint64 // clients that came in without a token
	Expired   uint64 // connections closed because their token ended
	Refreshed uint64 // tokens that took the place of others
	Revoked   uint64 // connections closed because their token was revoked
	Lost      uint64 // subscriptions that ended because a new token does not grant them
	Barred    uint64 // subscriptions that ended because of a namespace's rule
	Left      uint64 // subscriptions that ended because no team grants them any more
}

// entry is what a connection has. Its strings are of names.
type entry struct {
	user   string // "": nothing was proven
	ends   uint64 // when the connection is closed, Unix time in microseconds; 0: never
	token  revocation.Key
	grants uint32 // a place in grants
	gen    uint32 // of the connection
	issued uint32 // the token's iat (revocation.Token)
}

// waiting is a request whose token is being checked: a Hello, or a RefreshToken with an id.
type waiting struct {
	conn  exchange.Conn
	hello *wirev1.Hello // nil: a RefreshToken
	id    uint32
	since int64 // in the loop's time
}

// New makes a table. now is the loop's time in nanoseconds, and Unix time in microseconds; origin
// is the address for which a connection counts, "" for none.
func New(cfg Config, d Delivery, jobs *walk.Jobs, cost *walk.Cost, now func() (int64, uint64), origin func(slot uint32) string) *Table {
	return &Table{cfg: cfg, delivery: d, jobs: jobs, cost: cost, now: now, origin: origin, waiting: map[uint32]waiting{}, brought: map[uint32]Brought{}, grants: newGrants()}
}

// Stats so far.
func (t *Table) Stats() Stats { return t.stats }

// Memory is how many bytes lie where the collector does not look.
func (t *Table) Memory() int { return t.slots.Bytes() + t.names.Bytes() }

// Taken is how many names are in use.
func (t *Table) Taken() int { return t.names.Taken() }

// of is a connection's entry; nil: it has none.
func (t *Table) of(slot uint32) *entry {
	if int(slot) >= t.slots.Len() {
		return nil
	}
	e := t.slots.At(int(slot))
	if e.user == "" {
		return nil
	}
	return e
}

// noTokens refuses a token where there is nobody to check it.
var noTokens = code.New(wirev1.Code_CODE_UNSUPPORTED, "this edge checks no tokens (--issuers): token must be empty")

// Hello finds who says Hello: a backend by its ticket, or a client. wait: that is being found out;
// Greet or Close follow. Else the connection goes on, or is closed with why. by is what protects
// it.
func (t *Table) Hello(c exchange.Conn, m *wirev1.Hello, by exchange.Security) (backend, wait bool, why *code.Error) {
	if len(m.GetTicket()) > 0 {
		return true, false, t.redeem(m, by)
	}
	if t.cfg.TLSOnly && by == exchange.Plain {
		return false, false, code.New(wirev1.Code_CODE_UNSUPPORTED, "this edge takes TLS alone")
	}
	b := t.brought[c.Slot]
	delete(t.brought, c.Slot)
	if m.GetToken() == "" {
		m.Token = b.Token
	}
	wait, why = t.client(c, m, b.Cookie)
	return false, wait, why
}

// Brought notes what a connection that has just come shows beside its Hello, whose own token goes
// first.
func (t *Table) Brought(slot uint32, b Brought) {
	if b != (Brought{}) {
		t.brought[slot] = b
	}
}

// redeem takes a backend's ticket.
func (t *Table) redeem(m *wirev1.Hello, by exchange.Security) *code.Error {
	_, now := t.now()
	switch {
	case t.cfg.TicketsByTLS && by != exchange.TierTLS:
		return code.New(wirev1.Code_CODE_UNAUTHENTICATED, "between tiers there must be TLS with certificates of both: give the router --mesh-cert, or the edge --plain-tiers")
	case t.cfg.Redeem == nil || !t.cfg.Redeem(m.GetTicket(), now):
		return code.New(wirev1.Code_CODE_UNAUTHENTICATED, "the ticket is not good, or not any more")
	case m.GetToken() != "":
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "a Hello with a ticket has no token")
	}
	return nil
}

func (t *Table) client(c exchange.Conn, m *wirev1.Hello, cookie string) (wait bool, why *code.Error) {
	switch door := t.cfg.Door; {
	case door == nil && m.GetToken() != "":
		return false, noTokens
	case door == nil:
		return false, nil
	case m.GetToken() == "" && !door.Asks():
		if why := door.Nameless(); why != nil {
			return false, why
		}
		t.stats.Nameless++
		return false, nil
	}
	who, why, known := t.identify(c, Shown{Token: m.GetToken(), ClientID: m.GetClientId(), Session: m.GetSession(), Cookie: cookie})
	if known {
		if why == nil {
			why = t.enter(c, m, who)
		}
		return false, why
	}
	m.Token = ""
	t.waiting[c.Slot] = waiting{conn: c, hello: m}
	return true, nil
}

// tokenBytesAsOne is how many bytes of a token are looked up in about the time of one item of a
// walk.
const tokenBytesAsOne = 64

func (t *Table) identify(c exchange.Conn, s Shown) (*identity.Principal, *code.Error, bool) {
	t.cost.Add(1 + len(s.Token)/tokenBytesAsOne)
	s.From = t.origin(c.Slot)
	return t.cfg.Door.Identify(c, s)
}

// enter notes who a connection belongs to, unless its Hello asks for what the token does not allow.
func (t *Table) enter(c exchange.Conn, m *wirev1.Hello, who *identity.Principal) *code.Error {
	if why := t.refuses(who); why != nil {
		return why
	}
	switch {
	case m.GetClientId() == "" && len(who.Clients) > 0:
		return code.New(wirev1.Code_CODE_FORBIDDEN, "Hello names no client_id, and the token's pm_client allows certain ones only")
	case m.GetClientId() != "" && !who.AllowsClient(m.GetClientId()):
		return notThisClient
	}
	if who.Profile != nil {
		m.Profile = who.Profile // the issuer's word goes before the client's
	}
	for t.slots.Len() <= int(c.Slot) {
		t.slots.Take()
	}
	t.set(c, who)
	t.stats.Known++
	return nil
}

var notThisClient = code.New(wirev1.Code_CODE_FORBIDDEN, "the token's pm_client does not allow this client_id")

// set gives a connection the name, the rights and the time of a principal.
func (t *Table) set(c exchange.Conn, who *identity.Principal) {
	e := t.slots.At(int(c.Slot))
	if e.user != who.User {
		t.names.Drop(e.user)
		e.user = t.names.Put(who.User)
	}
	before := e.grants
	e.grants = t.grants.hold(who.Grants, t.teams(who.User))
	t.grants.release(before)
	shown := revocation.Of(who)
	if t.cfg.KeepIssuers {
		for len(t.issuers) <= int(c.Slot) {
			t.issuers = append(t.issuers, "")
		}
		t.issuers[c.Slot] = who.Proof.Issuer
	}
	e.gen, e.token, e.issued, e.ends = c.Gen, shown.Key, shown.Issued, 0
	if !who.Expires.IsZero() && !t.cfg.KeepExpired {
		e.ends = expires(who) - t.early(who) + uint64(t.cfg.Grace.Microseconds())
	}
}

// expires is when a principal's token ends, Unix time in microseconds; 0: never.
func expires(who *identity.Principal) uint64 {
	if who.Expires.IsZero() {
		return 0
	}
	return uint64(who.Expires.UnixMicro())
}

// mostEarly is how long before its token's end a connection is closed at most, so that those who
// came together with tokens of the same time do not come back at once.
const mostEarly = time.Minute

// early is chosen by chance, up to a tenth of the time that the token has left, in microseconds.
func (t *Table) early(who *identity.Principal) uint64 {
	_, now := t.now()
	end := uint64(who.Expires.UnixMicro())
	if end <= now {
		return 0
	}
	return rand.Uint64N(min((end-now)/10, uint64(mostEarly.Microseconds())) + 1)
}

// Identified goes on with whoever waited to be identified.
func (t *Table) Identified(e exchange.Identified) (found bool) {
	w, found := t.waiting[e.Conn.Slot]
	if !found || w.conn != e.Conn {
		return false
	}
	delete(t.waiting, e.Conn.Slot)
	why := e.Why
	switch {
	case w.hello == nil:
		t.refreshed(e.Conn, w.id, e.Who, why)
		return true
	case why == nil:
		why = t.enter(e.Conn, w.hello, e.Who)
	}
	if why != nil {
		t.delivery.Close(e.Conn, why)
		return true
	}
	t.delivery.Greet(e.Conn, w.hello)
	return true
}

// Gone gives back what a connection has that is over.
func (t *Table) Gone(slot uint32) {
	delete(t.waiting, slot)
	delete(t.brought, slot)
	if e := t.of(slot); e != nil {
		t.names.Drop(e.user)
		t.grants.release(e.grants)
		*e = entry{}
		t.stats.Known--
	}
}

// User of a connection; "": it has proven none. It is good until the connection is over.
func (t *Table) User(slot uint32) string {
	if e := t.of(slot); e != nil {
		return e.user
	}
	return ""
}

// Issuer is who has signed a connection's token; "": nobody did, or that is not kept.
func (t *Table) Issuer(slot uint32) string {
	if int(slot) >= len(t.issuers) || t.of(slot) == nil {
		return ""
	}
	return t.issuers[slot]
}

// Owner is who a connection with a client id claims for: USER/CLIENT, as no name of a user has a /;
// "": it has proven no user.
func (t *Table) Owner(slot uint32, clientID string) string {
	if user := t.User(slot); user != "" {
		return user + "/" + clientID
	}
	return ""
}

// Rights of a connection; known is false where it has proven no user, and may do what clients may
// that the edge lets in so. They are good until the connection is over.
func (t *Table) Rights(slot uint32) (r identity.Rights, known bool) {
	e := t.of(slot)
	if e == nil {
		return identity.Rights{}, false
	}
	return identity.Rights{User: e.user, Grants: t.grants.at(e.grants)}, true
}

// EndsAt is when a connection is closed because its token has ended, in the loop's time;
// math.MaxInt64: never.
func (t *Table) EndsAt(slot uint32) int64 {
	e := t.of(slot)
	if e == nil || e.ends == 0 {
		return math.MaxInt64
	}
	now, wall := t.now()
	left := int64(e.ends) - int64(wall)
	if left > (math.MaxInt64-now)/int64(time.Microsecond) { // centuries
		return math.MaxInt64
	}
	return now + left*int64(time.Microsecond)
}

// Expired is why it is.
func (t *Table) Expired() *code.Error {
	t.stats.Expired++
	return code.New(wirev1.Code_CODE_TOKEN_EXPIRED, "the token's time is over: connect with a new one, or send RefreshToken in time")
}

// Name is a copy of the user's name, for whoever keeps it.
func (t *Table) Name(slot uint32) string { return strings.Clone(t.User(slot)) }

// Origin tells what this client publishes from what others do.
func (t *Table) Origin(slot uint32, clientID string) uint64 {
	return identity.Origin(t.User(slot), clientID)
}
