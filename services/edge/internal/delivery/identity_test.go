package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
)

// door knows tokens by name, some of them at once, the others when the test says.
type door struct {
	w        *world
	of       map[string]*identity.Principal
	later    map[string]bool
	asked    []exchange.Conn
	tokens   []string
	nameless *code.Error
}

func (d *door) Asks() bool { return false }

func (d *door) Identify(conn exchange.Conn, s principals.Shown) (*identity.Principal, *code.Error, bool) {
	token := s.Token
	if d.later[token] {
		d.asked, d.tokens = append(d.asked, conn), append(d.tokens, token)
		return nil, nil, false
	}
	who, why := d.find(token)
	return who, why, true
}

func (d *door) find(token string) (*identity.Principal, *code.Error) {
	if who := d.of[token]; who != nil {
		return who, nil
	}
	return nil, code.New(wirev1.Code_CODE_UNAUTHENTICATED, "the token is bad")
}

func (d *door) Nameless() *code.Error { return d.nameless }

// answer answers the first one that waits.
func (d *door) answer() {
	conn, token := d.asked[0], d.tokens[0]
	d.asked, d.tokens = d.asked[1:], d.tokens[1:]
	who, why := d.find(token)
	d.w.h.Event(exchange.Identified{Conn: conn, Who: who, Why: why})
	d.w.settle()
}

// guarded is a world in which tokens are the names of users.
func guarded(t tester, cfg principals.Config) (*world, *door) {
	w := newWorld(t, Limits{})
	d := &door{w: w, of: map[string]*identity.Principal{}, later: map[string]bool{}, nameless: code.New(wirev1.Code_CODE_UNAUTHENTICATED, "no token")}
	cfg.Door = d
	w.lets(cfg)
	return w, d
}

// knows has a token be of a user with grants, such as "subscribe:room/#", for an hour.
func (d *door) knows(token, user string, rules ...string) *identity.Principal {
	d.w.t.Helper()
	var all []identity.Rule
	for _, text := range rules {
		name, filter, _ := strings.Cut(text, ":")
		verb, ok := identity.ParseVerb(name)
		if !ok {
			d.w.t.Fatal(name)
		}
		all = append(all, identity.Rule{Verb: verb, Filter: filter})
	}
	g, err := identity.NewGrants(all)
	if err != nil {
		d.w.t.Fatal(err)
	}
	p := &identity.Principal{User: user, Grants: g, Expires: d.w.clock().Add(time.Hour)}
	d.of[token] = p
	return p
}

func (w *world) clock() time.Time { return time.UnixMicro(int64(w.h.wall)) }

// hello says Hello with a token.
func (w *world) hello(m *wirev1.Hello) *client {
	c := w.dial()
	m.Version = 1
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, m)
	return c
}

func (c *client) refresh(id uint32, token string) {
	c.send(wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{Id: id, Token: token})
}

// nobodysNames fails where something is left of who was here.
func (w *world) nobodysNames(clients ...*client) {
	w.t.Helper()
	for _, c := range clients {
		if !c.ended {
			w.h.Gone(c.slot)
		}
	}
	w.settle()
	if s, n := w.h.Stats().Principals, w.h.InUse()["names"]; s.Known != 0 || n != 0 {
		w.t.Fatalf("%d users are known and %d names kept of connections that are gone", s.Known, n)
	}
}

func TestWhoComesIn(t *testing.T) {
	w, d := guarded(t, principals.Config{})
	d.knows("t", "ann")
	d.knows("phones", "ann").Clients = []string{"{user}-*"}
	for _, c := range []struct {
		hello *wirev1.Hello
		want  string
	}{
		{&wirev1.Hello{Token: "t", ClientId: "any"}, "Welcome"},
		{&wirev1.Hello{Token: "t"}, "Welcome"},
		{&wirev1.Hello{}, "Error UNAUTHENTICATED ref=0"},
		{&wirev1.Hello{Token: "forged"}, "Error UNAUTHENTICATED ref=0"},
		{&wirev1.Hello{Token: "phones", ClientId: "ann-phone"}, "Welcome"},
		{&wirev1.Hello{Token: "phones", ClientId: "bob-phone"}, "Error FORBIDDEN ref=0"},
		{&wirev1.Hello{Token: "phones"}, "Error FORBIDDEN ref=0"},
	} {
		for _, later := range []bool{false, true} {
			d.later = map[string]bool{c.hello.GetToken(): later && c.hello.GetToken() != ""}
			got := w.hello(c.hello)
			if len(d.asked) > 0 {
				got.expect()
				d.answer()
				got.take()
			}
			got.expect(c.want)
			w.nobodysNames(got)
		}
	}
	d.nameless = nil // both kinds are let in
	d.later = nil
	c := w.hello(&wirev1.Hello{ClientId: "ann", Session: "s"})
	c.expect("Welcome")
	if !w.mesh.Session("client:ann", "s").Held {
		t.Error("who shows no token has the session of its client id no more")
	}
	if n := w.h.Stats().Principals.Nameless; n != 1 {
		t.Errorf("%d without a token are counted", n)
	}
	// Where nobody checks tokens they are refused, as nobody must believe that they were.
	plain := newWorld(t, Limits{})
	plain.hello(&wirev1.Hello{Token: "t"}).expect("Error UNSUPPORTED ref=0")
}

// What has the name of its user is nobody else's: sessions, claims, what is published.
func TestNamesAreTheirUsers(t *testing.T) {
	w, d := guarded(t, principals.Config{})
	for _, user := range []string{"ann", "bob"} {
		d.knows(user, user, "subscribe:room/#", "claim:seat/#", "publish:open/#")
	}
	ann := w.connect(&wirev1.Hello{Token: "ann", ClientId: "phone", Session: "s"})
	bob := w.connect(&wirev1.Hello{Token: "bob", ClientId: "phone", Session: "s"})
	ann.expect()
	for _, user := range []string{"ann", "bob"} {
		if !w.mesh.Session(user, "s").Held {
			t.Errorf("%s has no session", user)
		}
	}
	if w.mesh.Session("client:phone", "s").Held {
		t.Error("a client id has a session")
	}
	bob.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 1, Topic: "open/x"})
	bob.expect("Published 1")
	if p := w.mesh.Published[0]; p.GetUser() != "bob" || p.GetClientId() != "phone" {
		t.Errorf("published as %q, %q", p.GetUser(), p.GetClientId())
	}
	if got := w.h.clientOf(bob.slot); got != "bob" {
		t.Errorf("what bob has kept counts for %q", got)
	}
	// by user, and not by a client id that looks like one
	n := -1
	w.h.Event(exchange.Disconnect{User: "client:phone", Reply: func(c int) { n = c }})
	w.settle()
	if n != 0 {
		t.Errorf("%d users are taken for the client id that they say", n)
	}
	w.h.Event(exchange.Disconnect{User: "ann", Reason: "banned", Reply: func(c int) { n = c }})
	w.settle()
	ann.take()
	ann.expect("Error CANCELLED ref=0")
	if bob.expect(); n != 1 {
		t.Errorf("%d connections of ann", n)
	}
	again := w.hello(&wirev1.Hello{Version: 1, Token: "bob", ClientId: "tablet", Session: "s"})
	again.expect("Welcome resumed")
	bob.take()
	bob.expect("Error SESSION_TAKEN_OVER ref=0")
	w.nobodysNames(ann, bob, again)
}

func TestClaimsAreTheirUsers(t *testing.T) {
	w := claimWorld(t)
	d := &door{w: w, of: map[string]*identity.Principal{}}
	w.lets(principals.Config{Door: d})
	d.knows("t", "ann", "claim:seat/+")
	c := w.connect(&wirev1.Hello{Token: "t", ClientId: "phone"})
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	c.expect("ClaimState 1 seat/1 GRANTED token=1")
	if owner := w.mesh.Claims.Asked[0].GetOwner(); owner != "ann/phone" {
		t.Errorf("the owner is %q", owner)
	}
	c.claim(&wirev1.Claim{Id: 2, Resource: "seat/a/b"})
	c.expect("Error FORBIDDEN ref=2")
	w.nobodysNames(c)
}

// Each verb, for what is granted, wider, narrower and another's.
func TestWhatIsNotGrantedIsForbidden(t *testing.T) {
	w, d := guarded(t, principals.Config{})
	d.knows("t", "ann", "subscribe:room/+/chat", "subscribe:$dead/jobs", "publish:open/{user}/#", "group:workers/room/1/chat")
	c := w.connect(&wirev1.Hello{Token: "t"})
	ok := func(id uint32) string { return fmt.Sprintf("Subscribed %d head=0", id) }
	no := func(id uint32) string { return fmt.Sprintf("Error FORBIDDEN ref=%d", id) }
	for i, s := range []struct {
		filter, group string
		want          func(uint32) string
	}{
		{"room/1/chat", "", ok},
		{"room/+/chat", "", ok},
		{"room/#", "", no},
		{"#", "", no},
		{"+/1/chat", "", no},
		{"user/ann/#", "", ok},
		{"user/bob/#", "", no},
		{"user/+/#", "", no},
		{"$dead/jobs", "", ok},
		{"$dead/#", "", no},
		{"$events/#", "", no},
		{"room/1/chat", "workers", nil},
		{"room/2/chat", "workers", no},
		{"room/1/chat", "others", no},
	} {
		id := uint32(i + 1)
		m := &wirev1.Subscribe{Id: id, Filter: s.filter, Group: s.group}
		if c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m); s.want != nil {
			c.expect(s.want(id))
			continue
		}
		if n := len(w.mesh.Members()); n != 1 {
			t.Errorf("%d members", n)
		}
		c.take()
		c.got = nil
	}
	for i, topic := range []string{"open/ann/x", "open/bob/x", "open"} {
		id := uint32(100 + i)
		c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: topic})
		if i == 0 {
			c.expect("Published 100")
		} else {
			c.expect(no(id))
		}
	}
	w.nobodysNames(c)
}

// What comes behind Hello waits until it is known who says it; who leaves meanwhile leaves nothing.
func TestConnectionsWaitForTheirPrincipal(t *testing.T) {
	w, d := guarded(t, principals.Config{})
	d.knows("t", "ann", "subscribe:room/#")
	d.later["t"] = true
	c := w.hello(&wirev1.Hello{Token: "t", ClientId: "phone", Session: "s"})
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.expect()
	if st := w.h.Status(c.slot); !st.Hold || !st.Early {
		t.Fatalf("%+v", st)
	}
	d.answer()
	c.take()
	c.expect("Welcome", "Subscribed 1 head=0")

	gone := w.hello(&wirev1.Hello{Token: "t"})
	w.h.Gone(gone.slot)
	w.settle()
	next := w.hello(&wirev1.Hello{Token: "t"}) // in its slot
	if next.slot != gone.slot {
		t.Fatal("the slot is not used again")
	}
	stale := w.h.Stats().StaleEvents
	d.answer()
	next.take()
	if next.expect(); w.h.Stats().StaleEvents != stale+1 {
		t.Error("an answer for one that is gone is taken")
	}
	d.answer()
	next.take()
	next.expect("Welcome")

	late := w.hello(&wirev1.Hello{Token: "t"})
	w.pass(11 * time.Second) // the time of a handshake
	late.take()
	late.expect("Error UNAVAILABLE ref=0")
	stale = w.h.Stats().StaleEvents
	d.answer()
	if w.h.Stats().StaleEvents != stale+1 {
		t.Error("an answer that comes too late is taken")
	}
	w.nobodysNames(c, next, late)
}

// A connection ends with its token, a little before it and never after; not all at once.
func TestConnectionsEndWithTheirTokens(t *testing.T) {
	for what, c := range map[string]struct {
		cfg         principals.Config
		least, most time.Duration
	}{
		"close": {principals.Config{}, 9 * time.Minute, 10 * time.Minute},
		"grace": {principals.Config{Grace: time.Hour}, 69 * time.Minute, 70 * time.Minute},
		"keep":  {principals.Config{KeepExpired: true}, 0, 0},
	} {
		w, d := guarded(t, c.cfg)
		d.knows("t", "ann").Expires = w.clock().Add(10 * time.Minute)
		clients := make([]*client, 40)
		for i := range clients {
			clients[i] = w.connect(&wirev1.Hello{Token: "t", HeartbeatMs: 600_000})
		}
		times := map[time.Duration]bool{}
		began := w.now
		for range 80 * 60 / 5 {
			w.pass(5 * time.Second)
			for _, one := range clients {
				if w.h.Heard(one.slot); one.ended {
					continue
				}
				if one.take(); one.ended {
					one.expect("Error TOKEN_EXPIRED ref=0")
					times[time.Duration(w.now-began)] = true
				}
			}
		}
		for at := range times {
			if at < c.least || at > c.most+5*time.Second || c.most == 0 {
				t.Errorf("%s: one ended after %v", what, at)
			}
		}
		if s := w.h.Stats().Principals; c.most > 0 && (len(times) < 5 || s.Expired != uint64(len(clients))) || c.most == 0 && s.Expired > 0 {
			t.Errorf("%s: %d ended, at %d different times", what, s.Expired, len(times))
		}
		w.nobodysNames(clients...)
	}
}

// A new token takes the place of the old one: it lasts as long, and what it does not grant ends,
// with what is queued of it.
func TestRefreshToken(t *testing.T) {
	w, d := guarded(t, principals.Config{})
	d.knows("wide", "ann", "subscribe:room/#", "subscribe:jobs/#", "group:g/room/1")
	d.knows("narrow", "ann", "subscribe:room/1").Expires = w.clock().Add(2 * time.Hour)
	d.knows("bob", "bob", "subscribe:#")
	c := w.connect(&wirev1.Hello{Token: "wide", ClientId: "phone", Session: "s", HeartbeatMs: 600_000})
	for i, filter := range []string{"room/1", "room/2", "room/#", "jobs/1", "user/ann/x"} {
		m := &wirev1.Subscribe{Id: uint32(i + 1), Filter: filter}
		if i == 3 {
			m.Start, m.Ack = wirev1.Start_START_SESSION, true
		}
		c.subscribe(m)
	}
	c.subscribe(&wirev1.Subscribe{Id: 6, Filter: "room/1", Group: "g"})
	w.h.Event(exchange.GroupJoined{Conn: w.h.Handle(c.slot), Sub: w.h.conns.Get(c.slot).Groups[0].Ref})
	w.settle()
	c.take()
	c.got = nil

	d.knows("tablet", "ann", "subscribe:#").Clients = []string{"tablet"}
	for i, bad := range []string{"forged", "bob", "tablet"} {
		c.refresh(uint32(20+i), bad)
	}
	c.expect("Error UNAUTHENTICATED ref=20", "Error FORBIDDEN ref=21", "Error FORBIDDEN ref=22")
	w.mesh.Send("room/2", "still")
	c.expect("room/2/1")

	c.slow = true
	w.mesh.Send("room/2", "queued")
	w.mesh.Send("jobs/1", "queued")
	w.mesh.Send("room/1", "stays")
	c.refresh(30, "narrow")
	c.slow = false
	c.take()
	got := map[string]bool{}
	for _, f := range c.got {
		got[f.text()] = true
		if u, ok := f.m.(*wirev1.Unsubscribed); ok && u.GetCode() != wirev1.Code_CODE_FORBIDDEN {
			t.Errorf("%v", u)
		}
	}
	for _, want := range []string{"Refreshed 30", "Unsubscribed 2", "Unsubscribed 3", "Unsubscribed 4", "Unsubscribed 6"} {
		if !got[want] {
			t.Errorf("no %q in %v", want, got)
		}
	}
	for text := range got {
		if strings.HasPrefix(text, "jobs/") || strings.HasPrefix(text, "room/2") || text == "Unsubscribed 1" || text == "Unsubscribed 5" {
			t.Errorf("%q though it is not granted, or though it is", text)
		}
	}
	if len(w.mesh.Session("ann", "s").Filters) != 0 {
		t.Error("the session still has what is not granted")
	}
	c.got = nil
	w.mesh.Send("room/1", "goes on")
	c.expect("room/1/2")
	for range 9 { // beyond the first token
		w.pass(10 * time.Minute)
		w.h.Heard(c.slot)
	}
	if w.h.conns.Get(c.slot).Phase != state.Open {
		t.Error("it ended with the token that was replaced")
	}
	if s := w.h.Stats().Principals; s.Refreshed != 1 || s.Lost != 4 {
		t.Errorf("%+v", s)
	}
	w.nobodysNames(c)
}

// A new token that is being checked when the connection ends, or another comes, does no harm.
func TestRefreshTokenThatWaits(t *testing.T) {
	w, d := guarded(t, principals.Config{})
	d.knows("t", "ann", "subscribe:room/#")
	d.knows("next", "ann", "subscribe:room/1")
	d.later["next"] = true
	c := w.connect(&wirev1.Hello{Token: "t"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/2"})
	c.expect("Subscribed 1 head=0")
	c.refresh(0, "next")
	c.take()
	c.expect("Error INVALID_ARGUMENT ref=0")

	c = w.connect(&wirev1.Hello{Token: "t"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/2"})
	c.refresh(2, "next")
	c.refresh(3, "next")
	c.expect("Subscribed 1 head=0", "Error RATE_LIMITED ref=3")
	w.mesh.Send("room/2", "meanwhile")
	c.expect("room/2/1")
	d.answer()
	c.take()
	c.expect("Refreshed 2", "Unsubscribed 1")
	c.refresh(5, "next") // whose answer gets lost
	d.asked, d.tokens = nil, nil
	w.pass(time.Minute)
	c.refresh(6, "next")
	d.answer()
	c.take()
	c.expect("Refreshed 6")
	c.refresh(4, "next")
	w.h.Gone(c.slot)
	w.settle()
	other := w.connect(&wirev1.Hello{Token: "t"})
	d.answer()
	other.expect()
	w.nobodysNames(c, other)

	open := newWorld(t, Limits{})
	one := open.connect(&wirev1.Hello{})
	one.refresh(1, "t")
	one.expect("Error UNSUPPORTED ref=1")
	d.nameless = nil
	two := w.connect(&wirev1.Hello{ClientId: "x"})
	two.refresh(1, "t")
	two.expect("Error FORBIDDEN ref=1")
}

// Tokens that last for thousands of years, or for ever, end nothing.
func TestTokensOfAnyLength(t *testing.T) {
	w, d := guarded(t, principals.Config{})
	d.knows("ages", "ann").Expires = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	d.knows("ever", "ann").Expires = time.Time{}
	d.knows("over", "ann").Expires = w.clock().Add(-time.Hour)
	for token, ends := range map[string]bool{"ages": false, "ever": false, "over": true} {
		c := w.connect(&wirev1.Hello{Token: token, HeartbeatMs: 600_000})
		w.pass(5 * time.Second)
		if c.take(); c.ended != ends {
			t.Errorf("%s: ended %v", token, c.ended)
		}
		w.nobodysNames(c)
	}
}

// What a token says of its user is what messages are ranked for, whatever the client says.
func TestTheIssuersProfileGoesFirst(t *testing.T) {
	w, d := guarded(t, principals.Config{})
	d.knows("t", "ann").Profile = map[string]float64{"x": 1}
	c := w.connect(&wirev1.Hello{Token: "t", Profile: map[string]float64{"x": 2, "y": 3}})
	if p := w.h.conns.Get(c.slot).Profile; p == nil || len(p.Features) != 1 || p.Features["x"] != 1 {
		t.Errorf("ranked for %+v", p)
	}
}

// Whatever a client asks and shows, in whatever order: at rest it gets what the last good token
// grants, and nothing else; nothing is left of it in the end.
func TestRightsHoldWhateverComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, d := guarded(t, principals.Config{})
		rights := map[string][]string{"wide": {"room/#", "jobs/#"}, "one": {"room/1"}, "jobs": {"jobs/+"}, "none": nil}
		tokens := []string{"wide", "one", "jobs", "none"}
		for token, filters := range rights {
			rules := []string{"group:g/#"}
			for _, f := range filters {
				rules = append(rules, "subscribe:"+f)
			}
			d.knows(token, "ann", rules...)
		}
		granted := func(token, name string) bool {
			return topic.Match("user/ann/#", name) || slices.ContainsFunc(rights[token], func(f string) bool { return topic.Match(f, name) })
		}
		topics := []string{"room/1", "room/2", "jobs/1", "jobs/1/x", "user/ann/x", "user/bob/x"}
		for _, name := range topics {
			w.mesh.Append(name, "first")
		}
		now, next := "wide", uint32(1)
		waits := "" // a token that is being checked
		c := w.connect(&wirev1.Hello{Token: now, ClientId: "phone", Session: rapid.SampledFrom([]string{"", "s"}).Draw(t, "session"), HeartbeatMs: 600_000})
		var ids []uint32
		rest := func() {
			c.take()
			c.got = nil
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch next++; rapid.SampledFrom([]string{"subscribe", "subscribe", "unsubscribe", "publish", "publish", "refresh", "refresh later", "answer", "slow", "pass"}).Draw(t, "what") {
			case "subscribe":
				m := &wirev1.Subscribe{
					Id: next, Filter: rapid.SampledFrom(append(topics, "room/#", "#", "+/1", "jobs/+", "user/#", "user/ann/#")).Draw(t, "filter"),
					Ack: rapid.Bool().Draw(t, "ack"),
				}
				if w.h.conns.Get(c.slot).Session != nil && rapid.Bool().Draw(t, "of the session") {
					m.Start = wirev1.Start_START_SESSION
				} else if m.Start = rapid.SampledFrom([]wirev1.Start{wirev1.Start_START_LIVE, wirev1.Start_START_EARLIEST}).Draw(t, "start"); rapid.Bool().Draw(t, "where") {
					m.Where = "true"
				}
				c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m)
				ids = append(ids, next)
			case "unsubscribe":
				if len(ids) > 0 {
					c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: rapid.SampledFrom(ids).Draw(t, "id")})
				}
			case "publish":
				w.mesh.Send(rapid.SampledFrom(topics).Draw(t, "topic"), "x", "y")
				w.settle()
			case "refresh":
				token := rapid.SampledFrom(tokens).Draw(t, "token")
				if c.refresh(next, token); waits == "" {
					now = token
				}
			case "refresh later":
				token := rapid.SampledFrom(tokens).Draw(t, "token")
				d.later[token] = true
				if c.refresh(next, token); waits == "" {
					waits = token
				}
				delete(d.later, token)
			case "answer":
				if waits != "" {
					d.answer()
					now, waits = waits, ""
				}
			case "slow":
				c.slow = !c.slow
			default:
				w.pass(time.Second)
			}
			c.take()
		}
		if c.slow = false; c.ended {
			return
		}
		w.h.Heard(c.slot)
		w.settle()
		rest() // what was owed when the last token was shown
		for _, name := range topics {
			w.mesh.Send(name, "last")
			w.settle()
		}
		c.take()
		for _, f := range c.got {
			if m, is := f.m.(*wirev1.Message); is && !granted(now, m.GetTopic()) {
				t.Fatalf("%s comes to who has shown %q last", m.GetTopic(), now)
			}
		}
		for i := range w.h.conns.Get(c.slot).Subs.Len() {
			s := w.h.conns.Get(c.slot).Subs.At(i)
			if _, ok := d.of[now].Allows(identity.Subscribe, s.Filter()); !ok && !s.Dead {
				t.Fatalf("%s is subscribed to by who has shown %q last", s.Filter(), now)
			}
		}
		if waits != "" {
			d.answer()
		}
		w.nobodysNames(c)
	})
}
