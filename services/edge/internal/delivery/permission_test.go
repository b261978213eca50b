package delivery

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/permissions"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
)

// pdp is asked what users may do, and answers when the test says.
type pdp struct {
	w       *world
	asked   []exchange.Permitted // without an answer
	of      []string             // "verb filter" of the same
	users   []string
	allowed map[string]time.Duration // by "verb filter": for how long; what is not in it is refused
	known   map[string]bool          // likewise, answered at once
	refuses *code.Error              // takes no question
}

func (p *pdp) Patience() time.Duration { return 10 * time.Second }

func name(q *identity.Question) string { return q.Verb.String() + " " + q.Filter }

func (p *pdp) says(of string) identity.Permission {
	left, allowed := p.allowed[of]
	if !allowed {
		return identity.Permission{Reason: ": not paid", Left: time.Second}
	}
	return identity.Permission{Allowed: true, Left: left}
}

func (p *pdp) Known(q *identity.Question) (identity.Permission, bool) {
	return p.says(name(q)), p.known[name(q)]
}

func (p *pdp) Ask(conn exchange.Conn, serial uint64, q *identity.Question, _ time.Duration) *code.Error {
	if p.refuses != nil {
		return p.refuses
	}
	p.asked, p.of, p.users = append(p.asked, exchange.Permitted{Conn: conn, Serial: serial}), append(p.of, name(q)), append(p.users, q.User)
	return nil
}

// answer answers what was asked first; why: by nothing but that.
func (p *pdp) answer(why *code.Error, all ...*client) {
	e := p.asked[0]
	e.Says, e.Why = p.says(p.of[0]), why
	p.asked, p.of, p.users = p.asked[1:], p.of[1:], p.users[1:]
	p.w.h.Event(e)
	p.w.settle()
	for _, c := range all {
		c.take()
	}
}

// asks fails unless that is what is asked, and nothing else.
func (p *pdp) asks(want ...string) {
	p.w.t.Helper()
	if !slices.Equal(p.of, want) {
		p.w.t.Fatalf("asked %q, want %q", p.of, want)
	}
}

// permitted is a world in which ann has a token for mine/#, and all else is asked for.
func permitted(t tester, allowed map[string]time.Duration) (*world, *door, *pdp) {
	w, d := guarded(t, principals.Config{})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true}},
		{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true}}},
	})
	p := &pdp{w: w, allowed: allowed, known: map[string]bool{}}
	h := w.h
	h.rooms.permissions = permissions.New(permissions.Config{
		Asker: p, Delivery: h.port(), Who: h.rooms.principals, Jobs: &h.rooms.jobs, Cost: &h.cost, Now: func() int64 { return h.now }, Origin: h.originOf,
	})
	h.rooms.principals.Allow(h.rooms.permissions.Holds)
	d.knows("t", "ann", "subscribe:mine/#", "publish:mine/#")
	return w, d, p
}

func (w *world) ann() *client {
	c := w.hello(&wirev1.Hello{Token: "t", ClientId: "phone", HeartbeatMs: 600_000})
	c.expect("Welcome")
	return c
}

// ended1 fails unless subscription 1 has ended for a reason, and nothing else came.
func (c *client) ended1(why wirev1.Code) {
	c.w.t.Helper()
	if m, is := c.got[0].m.(*wirev1.Unsubscribed); !is || len(c.got) != 1 || m.GetId() != 1 || m.GetCode() != why || m.GetReason() == "" {
		c.w.t.Fatalf("got %v", c.got)
	}
	c.got = nil
}

const sub1 = "Subscribed 1 head=0"

// What rights grant is not asked for; all else waits for the answer, and everything that the client
// sent behind it with it.
func TestARequestWaitsForItsPermission(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": time.Minute, "publish open/1": time.Minute})
	c := w.ann()
	c.subscribe(&wirev1.Subscribe{Id: 7, Filter: "mine/1"})
	c.expect("Subscribed 7 head=0")
	p.asks()
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 5})
	c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 2, Topic: "open/1", Payload: []byte("a")})
	c.expect() // not even a Pong
	p.asks("subscribe open/1")
	if p.users[0] != "ann" || w.h.Stats().Permissions.Parked != 1 {
		t.Fatalf("asked for %q, %d wait", p.users, w.h.Stats().Permissions.Parked)
	}
	p.answer(nil, c)
	p.asks("publish open/1")
	p.answer(nil, c)
	c.expect("Pong 5", sub1, "Published 2", "open/1/1")
	c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "open/2"})
	p.answer(nil, c)
	c.expect("Error FORBIDDEN ref=3")
	if s := w.h.Stats().Permissions; s.Denied != 1 || s.Leases != 1 || s.Parked != 0 {
		t.Fatalf("%+v", s)
	}
	w.nobodysNames(c)
}

// Publishes to a topic come in their order, whether they have to wait or not.
func TestNoPublishOvertakesOneThatWaits(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"publish open/1": time.Minute})
	c := w.ann()
	for i := range 3 {
		c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: uint32(i + 1), Topic: "open/1", Payload: []byte{byte('a' + i)}})
	}
	for range 3 {
		p.asks("publish open/1")
		p.answer(nil, c)
	}
	c.expect("Published 1", "Published 2", "Published 3")
	for i, m := range w.mesh.Published {
		if string(m.GetPayload()) != string(byte('a'+i)) {
			t.Errorf("message %d is %q", i, m.GetPayload())
		}
	}
}

// Without an answer a request is refused for now, whatever the reason, and the connection stays.
func TestWithoutAnAnswerNothingIsAllowed(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": time.Minute})
	c := w.ann()
	down := code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "down")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	p.answer(down, c)
	if e := c.got[0].m.(*wirev1.Error); e.GetRetryAfterMs() != 1000 {
		t.Fatalf("got %v", e)
	}
	c.expect("Error UNAVAILABLE ref=1")
	p.refuses = down
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	c.expect("Error UNAVAILABLE ref=1")
	p.refuses = nil
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	w.pass(p.Patience() + time.Second) // the answer is lost
	c.take()
	c.expect("Error UNAVAILABLE ref=1")
	p.asked, p.of = nil, nil
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	p.answer(nil, c)
	c.expect(sub1)
	if s := w.h.Stats().Permissions; s.Unknown != 3 || s.Parked != 0 {
		t.Fatalf("%+v", s)
	}
	w.nobodysNames(c)
}

// What is refused in any case is not asked for.
func TestNobodyIsAskedForNothing(t *testing.T) {
	w, d, p := permitted(t, nil)
	d.nameless = nil
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "closed", Policy: &pushmeshv1.Policy{}}, {Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true}}})
	c := w.ann()
	for _, filter := range []string{"$dead/x", "$events/x", "open//x"} {
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: filter})
	}
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1", NoEcho: true, Group: "g"})
	c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 2, Topic: "open/1"})
	c.claim(&wirev1.Claim{Id: 3, Resource: "closed/1"})
	c.claim(&wirev1.Claim{Id: 4, Op: wirev1.Claim_OP_LEAVE, Resource: "closed/1"})
	c.expect("Error FORBIDDEN ref=1", "Error FORBIDDEN ref=1", "Error BAD_TOPIC ref=1", "Error UNSUPPORTED ref=1", "Error FORBIDDEN ref=2", "Error FORBIDDEN ref=3", "Error FORBIDDEN ref=4")
	nobody := w.hello(&wirev1.Hello{ClientId: "phone"})
	nobody.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	nobody.expect("Welcome", sub1)
	p.asks()
}

// A subscription is asked about again before its answer has run out: a yes has it last, a no ends
// it, and so does nothing, within a second.
func TestASubscriptionLastsAsLongAsItIsAllowed(t *testing.T) {
	for what, c := range map[string]struct {
		again func(p *pdp)
		want  wirev1.Code
		most  time.Duration
	}{
		"no":      {func(p *pdp) { delete(p.allowed, "subscribe open/1"); p.answer(nil) }, wirev1.Code_CODE_FORBIDDEN, 0},
		"nothing": {func(*pdp) {}, wirev1.Code_CODE_UNAVAILABLE, 10 * time.Second},
		"none can be had": {func(p *pdp) {
			p.refuses = code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "full")
			p.answer(p.refuses)
		}, wirev1.Code_CODE_UNAVAILABLE, 10 * time.Second},
	} {
		w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": 10 * time.Second})
		cl := w.ann()
		cl.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1", Ack: true})
		p.answer(nil, cl)
		cl.expect(sub1)
		for range 5 { // it is asked about in half of its time to four fifths
			began := w.now
			for len(p.asked) == 0 {
				w.pass(Tick)
			}
			if after := time.Duration(w.now - began); after < 4*time.Second || after > 9*time.Second {
				t.Fatalf("%s: asked about again after %s", what, after)
			}
			p.asks("subscribe open/1")
			p.answer(nil)
		}
		w.mesh.Send("open/1", "a")
		w.settle()
		cl.take()
		cl.expect("open/1/1")
		cl.ack("open/1", 1, false)
		began := w.now
		for len(p.asked) == 0 {
			w.pass(Tick)
		}
		c.again(p)
		for cl.take(); len(cl.got) == 0; cl.take() {
			if w.now-began > int64(c.most)+int64(time.Second) {
				t.Fatalf("%s: it lasts", what)
			}
			w.pass(Tick)
		}
		cl.ended1(c.want)
		if s := w.h.Stats().Permissions; s.Leases != 0 || s.Ended+s.RanOut != 1 {
			t.Fatalf("%s: %+v", what, s)
		}
		w.nobodysNames(cl)
	}
}

// Who is in a topic is shown, and said, as long as the answer allows to subscribe to it.
func TestAWatchLastsAsLongAsItIsAllowed(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": 10 * time.Second})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "open", Policy: &pushmeshv1.Policy{ClientPresence: pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS}}})
	c := w.ann()
	c.watches(1, "open/1")
	p.asks("subscribe open/1")
	if w.follows() != 0 {
		t.Fatal("it is followed before there is an answer")
	}
	p.answer(nil, c)
	if w.follows() != 1 {
		t.Fatal("it is not followed")
	}
	// in a topic of which it is told
	c.send(stateFrame, &wirev1.State{Id: 2, Topic: "open/1", State: []byte("x")})
	c.expect("Stated 2")
	p.asks()
	c.send(stateFrame, &wirev1.State{Id: 3, Topic: "open/2", State: []byte("x")})
	p.asks("subscribe open/2")
	p.answer(nil, c)
	c.expect("Error FORBIDDEN ref=3")
	for len(p.asked) == 0 {
		w.pass(Tick)
	}
	delete(p.allowed, "subscribe open/1")
	p.answer(nil, c)
	c.ended1(wirev1.Code_CODE_FORBIDDEN)
	if s := w.h.Stats(); s.Permissions.Leases != 0 || s.Members.Watches != 0 {
		t.Fatalf("%+v", s.Permissions)
	}
	w.nobodysNames(c)
}

// A new token ends what it does not grant, and not what an answer allows; what it grants itself
// needs no answer any more.
func TestANewTokenKeepsWhatAnswersAllow(t *testing.T) {
	w, d, p := permitted(t, map[string]time.Duration{"subscribe open/1": 10 * time.Second})
	c := w.ann()
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	p.answer(nil, c)
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "mine/1"})
	c.expect(sub1, "Subscribed 2 head=0")
	d.knows("less", "ann")
	c.refresh(9, "less")
	w.settle()
	c.take()
	c.expect("Refreshed 9", "Unsubscribed 2")
	d.knows("more", "ann", "subscribe:open/#")
	c.refresh(10, "more")
	c.got = nil
	w.pass(20 * time.Second)
	c.take()
	c.expect()
	p.asks()
	if s := w.h.Stats().Permissions; s.Leases != 0 {
		t.Fatalf("%+v", s)
	}
}

// A member of a group needs both, and loses its place by a no to either.
func TestAGroupIsAskedForToo(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": 10 * time.Second, "group open/1": 10 * time.Second})
	c := w.ann()
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1", Group: "g"})
	p.asks("subscribe open/1")
	p.answer(nil, c)
	p.asks("group open/1")
	p.answer(nil, c)
	if s := w.h.Stats(); s.Permissions.Leases != 2 || s.Subscriptions != 1 {
		t.Fatalf("%+v, %d subscriptions", s.Permissions, s.Subscriptions)
	}
	c.got = nil
	for len(p.asked) < 2 {
		w.pass(Tick)
	}
	delete(p.allowed, "group open/1")
	p.answer(nil)
	p.answer(nil, c)
	c.ended1(wirev1.Code_CODE_FORBIDDEN)
	if s := w.h.Stats(); s.Permissions.Leases != 0 || s.Subscriptions != 0 {
		t.Fatalf("%+v, %d subscriptions", s.Permissions, s.Subscriptions)
	}
	w.nobodysNames(c)
}

// A claim is given up once it is not allowed any more, and its client is told.
func TestAClaimIsTakenBack(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"claim seat/1": 10 * time.Second})
	w.answers(granted, 0)
	w.mesh.Claims.Answer = func(op *meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{State: &wirev1.ClaimState{Resource: op.GetResource(), State: granted, Token: 42}}
	}
	c := w.ann()
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	c.expect()
	p.answer(nil, c)
	if len(c.got) != 1 || c.got[0].m.(*wirev1.ClaimState).GetState() != granted || w.h.Stats().Permissions.Leases != 1 {
		t.Fatalf("got %v", c.texts())
	}
	c.got = nil
	delete(p.allowed, "claim seat/1")
	for len(p.asked) == 0 {
		w.pass(Tick)
	}
	p.answer(nil, c)
	ops := w.mesh.Claims.Asked
	if op := ops[len(ops)-1]; len(ops) != 2 || op.GetKind() != meshv1.ClaimOp_KIND_RELEASE || op.GetToken() != 42 || op.GetOwner() != "ann/phone" || op.GetConn() != 0 {
		t.Fatalf("the stores were asked %v", ops)
	}
	w.mesh.TellClaim(ops[0], &wirev1.ClaimState{Resource: "seat/1", State: released, Token: 42})
	w.settle()
	c.take()
	if st := c.got[0].m.(*wirev1.ClaimState); st.GetState() != released || st.GetCode() != wirev1.Code_CODE_FORBIDDEN || st.GetId() != 1 {
		t.Fatalf("got %v", st)
	}
	c.got = nil
	w.pass(5 * time.Second)
	if s := w.h.Stats(); s.Permissions.Leases != 0 || s.Claims.Held != 0 || len(w.mesh.Claims.Asked) != 2 {
		t.Fatalf("%+v, %d held", s.Permissions, s.Claims.Held)
	}
	// and it can't be renewed
	c.claim(&wirev1.Claim{Id: 2, Op: wirev1.Claim_OP_RENEW, Resource: "seat/1", Token: 42})
	p.answer(nil, c)
	c.expect("Error FORBIDDEN ref=2")
}

// Whatever is asked, answered, ended and closed in whatever order: nothing is left in the end, each
// request is answered once and in its order, and nobody has what was not allowed.
func TestPermissionsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []string{"open/1", "open/2", "open/+", "mine/1"}
		w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": 3 * time.Second, "subscribe open/2": 8 * time.Second, "publish open/1": time.Second})
		clients, next := []*client{w.ann(), w.ann()}, uint32(0)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			c := clients[rapid.IntRange(0, 1).Draw(t, "client")]
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0, 1:
				next++
				c.subscribe(&wirev1.Subscribe{Id: next, Filter: rapid.SampledFrom(all).Draw(t, "filter")})
			case 2:
				next++
				c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: next, Topic: rapid.SampledFrom(all[:2]).Draw(t, "topic")})
			case 3, 4:
				if len(p.asked) > 0 {
					var why *code.Error
					if rapid.Bool().Draw(t, "down") {
						why = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "down")
					}
					p.answer(why, clients...)
				}
			case 5:
				w.pass(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
			case 6:
				if s := w.h.conns.Get(c.slot); !c.ended && s.Subs.Len() > 0 {
					c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: s.Subs.At(0).ID})
				}
			case 7:
				of := rapid.SampledFrom([]string{"subscribe open/1", "subscribe open/2"}).Draw(t, "of")
				if _, is := p.allowed[of]; is {
					delete(p.allowed, of)
				} else {
					p.allowed[of] = 3 * time.Second
				}
			}
			parked := int64(0)
			for _, c := range clients {
				c.take()
				s := w.h.conns.Get(c.slot)
				if s.Parked {
					parked++
				}
				for i := range s.Subs.Len() {
					if sub := s.Subs.At(i); !sub.Dead && sub.Filter() == "open/+" {
						t.Fatal("somebody has what is never allowed")
					}
				}
			}
			if got := w.h.Stats().Permissions.Parked; got != parked {
				t.Fatalf("%d wait, %d are counted", parked, got)
			}
		}
		// by then all that was not renewed has ended, and each request is answered
		for n := 0; n < 600 && (n < 20 || w.h.Stats().Permissions.Parked > 0); n++ {
			w.pass(time.Second)
			for _, c := range clients {
				c.take()
			}
		}
		for _, c := range clients {
			s := w.h.conns.Get(c.slot)
			for i := range s.Subs.Len() {
				if sub := s.Subs.At(i); !sub.Dead && sub.Filter() != "mine/1" {
					t.Fatalf("%s lasts without an answer", sub.Filter())
				}
			}
			if s.Parked {
				t.Fatal("a request waits for good")
			}
		}
		w.nobodysNames(clients...)
		if s := w.h.Stats().Permissions; s.Leases != 0 || s.Parked != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// Who waits for an answer is not silent, and has its Ping answered once it has come; who leaves
// meanwhile leaves nothing behind, and the answer finds nobody.
func TestWhoWaitsIsNotSilent(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"subscribe open/1": time.Minute})
	c := w.hello(&wirev1.Hello{Token: "t", ClientId: "phone", HeartbeatMs: 1000})
	c.expect("Welcome")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	w.pass(p.Patience() - time.Second) // more than 2.5 heartbeats
	c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 5})
	c.expect()
	p.answer(nil, c)
	c.expect("Pong 5", sub1)
	w.pass(2 * time.Second)
	c.take()
	c.expect()
	w.pass(time.Second)
	c.take()
	c.expect("Error IDLE_TIMEOUT ref=0") // it is silent now

	gone := w.ann()
	gone.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	w.nobodysNames(gone)
	before := w.h.Stats()
	p.answer(nil)
	if s := w.h.Stats(); s.StaleEvents != before.StaleEvents+1 || s.Permissions.Parked != 0 || s.Subscriptions != 0 {
		t.Fatalf("%+v, %d stale events", s.Permissions, s.StaleEvents-before.StaleEvents)
	}
}
