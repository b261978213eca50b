package delivery

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	reports "github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/members"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

const (
	watchFrame = wirev1.FrameType_FRAME_TYPE_WATCH
	stateFrame = wirev1.FrameType_FRAME_TYPE_STATE
)

// shown is a world in which clients see who is in "seen".
func shown(t tester) *world {
	w := newWorld(t, Limits{})
	w.shows(pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS)
	return w
}

func (w *world) shows(p pushmeshv1.ClientPresence) {
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "seen", Policy: &pushmeshv1.Policy{ClientPresence: p}}})
	w.h.Event(exchange.PoliciesChanged{})
	w.settle()
}

func (c *client) watches(id uint32, topic string) {
	c.send(watchFrame, &wirev1.Watch{Id: id, Topic: topic})
}

// follows takes what the loop has asked of topics since it was asked last.
func (w *world) follows() (n int) {
	n = len(w.mesh.Follows)
	w.mesh.Follows = nil
	return n
}

// tellsOf tells everybody who watches of a change, or, with c, that client of all that there is.
func (w *world) tellsOf(c *client, topic string, serial uint64, bytes int) {
	w.t.Helper()
	m := &wirev1.Presence{Topic: topic, Count: serial, Snapshot: c != nil, Members: []*wirev1.Presence_Member{{User: "ann", State: make([]byte, bytes)}}}
	frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PRESENCE, m)
	if err != nil {
		w.t.Fatal(err)
	}
	e := exchange.MembersTold{Topic: topic, Frame: frame, Serial: serial, Snapshot: c != nil}
	if c != nil {
		e.Conn = w.h.Handle(c.slot)
	}
	w.h.Event(e)
	w.settle()
}

func TestWhoWatchesIsTold(t *testing.T) {
	w := shown(t)
	a, b := w.connect(&wirev1.Hello{ClientId: "a"}), w.connect(&wirev1.Hello{ClientId: "b"})
	a.watches(1, "seen/1")
	b.watches(7, "seen/1")
	if f := w.mesh.Follows; len(f) != 2 || f[0] != (upstreamtest.Follow{Conn: w.h.Handle(a.slot), Topic: "seen/1"}) || f[1].Conn != w.h.Handle(b.slot) {
		t.Fatalf("asked %v", f)
	}
	w.follows()
	w.tellsOf(nil, "seen/1", 1, 0) // which they are told all of
	a.expect()
	w.tellsOf(a, "seen/1", 1, 0)
	a.expect("Presence seen/1 1")
	w.tellsOf(nil, "seen/1", 2, 0)
	a.expect("Presence seen/1 2")
	b.expect()
	w.tellsOf(b, "seen/1", 2, 0)
	w.tellsOf(b, "seen/1", 2, 0) // it knows
	w.tellsOf(nil, "seen/1", 3, 0)
	w.tellsOf(nil, "seen/1", 3, 0)
	a.expect("Presence seen/1 3")
	b.expect("Presence seen/1 2", "Presence seen/1 3")

	// what is missing is asked for
	w.tellsOf(nil, "seen/1", 5, 0)
	if n := w.follows(); n != 2 {
		t.Fatalf("asked %d times", n)
	}
	w.tellsOf(nil, "seen/1", 6, 0) // which all that there is will have
	w.tellsOf(a, "seen/1", 6, 0)
	w.tellsOf(nil, "seen/1", 7, 0)
	a.expect("Presence seen/1 6", "Presence seen/1 7")
	b.expect()

	// it ends when the client says so, and with its connection
	a.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	a.expect("Unsubscribed 1")
	if len(w.mesh.Unfollows) != 0 {
		t.Fatal("another watches")
	}
	w.h.Gone(b.slot)
	w.settle()
	if len(w.mesh.Unfollows) != 1 || w.h.InUse()["topics watched"] != 0 {
		t.Fatalf("nobody watches: %v, %v", w.mesh.Unfollows, w.h.InUse())
	}
	stale := w.h.Stats().StaleEvents
	if w.tellsOf(nil, "seen/1", 8, 0); w.h.Stats().StaleEvents != stale+1 {
		t.Fatal("what nobody wants is not counted")
	}
	w.gone(a)
}

// Who does not read is owed no more than so much, and is told all anew once it has.
func TestAWatchOfWhoDoesNotRead(t *testing.T) {
	w := shown(t)
	slow, quick := w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{})
	for _, c := range []*client{slow, quick} {
		c.watches(1, "seen/1")
		w.tellsOf(c, "seen/1", 1, 0)
		c.expect("Presence seen/1 1")
	}
	w.follows()
	slow.slow = true
	const each = 8 << 10
	for serial := range uint64(100) {
		w.tellsOf(nil, "seen/1", serial+2, each)
		quick.expect(fmt.Sprintf("Presence seen/1 %d", serial+2))
	}
	if owed := w.h.conns.Get(slow.slot).Out.Bytes(); owed > members.MaxQueued+2*each || w.follows() != 0 {
		t.Fatalf("%d bytes are queued", owed)
	}
	slow.slow = false
	if slow.take(); w.follows() != 1 {
		t.Fatal("it does not ask for what it missed, once")
	}
	slow.got = nil
	w.tellsOf(nil, "seen/1", 102, 0)
	w.tellsOf(slow, "seen/1", 102, 0)
	w.tellsOf(nil, "seen/1", 103, 0)
	slow.expect("Presence seen/1 102", "Presence seen/1 103")
	if s := w.h.Stats().Members; s.Missed != 1 {
		t.Fatalf("%+v", s)
	}
	w.h.Gone(quick.slot)
	w.gone(slow)
}

// Many are told some at a time. Where more waits than may, they ask for all that there is.
func TestManyAreToldInSlices(t *testing.T) {
	w := shown(t)
	all := make([]*client, 300)
	for i := range all {
		all[i] = w.connect(&wirev1.Hello{})
		all[i].watches(1, "seen/1")
		w.tellsOf(all[i], "seen/1", 1, 0)
		all[i].expect("Presence seen/1 1")
	}
	w.follows()
	frame := func(serial uint64) exchange.MembersTold {
		f, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PRESENCE, &wirev1.Presence{Topic: "seen/1", Count: serial})
		if err != nil {
			t.Fatal(err)
		}
		return exchange.MembersTold{Topic: "seen/1", Serial: serial, Frame: f}
	}
	for serial := range uint64(3) {
		w.h.Event(frame(serial + 2))
	}
	w.h.Work(1)
	if told := w.h.Stats().Members.Told - 300; told == 0 || told > 64 {
		t.Fatalf("%d are told in a slice", told)
	}
	w.settle()
	for _, c := range all {
		c.expect("Presence seen/1 2", "Presence seen/1 3", "Presence seen/1 4")
	}
	for serial := range uint64(100) {
		w.h.Event(frame(serial + 5))
	}
	w.settle()
	if n := w.follows(); n != len(all) {
		t.Fatalf("%d ask for all that there is", n)
	}
}

func TestWatchesEndWithTheirReason(t *testing.T) {
	w := shown(t)
	a, b := w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{})
	for _, c := range []*client{a, b} {
		for id := range uint32(3) {
			c.watches(id+1, fmt.Sprint("seen/", id))
		}
	}
	w.h.Event(exchange.MembersEnded{Topic: "seen/1", Code: wirev1.Code_CODE_OVERLOADED, Reason: "too many"})
	w.settle()
	a.expect("Unsubscribed 2")
	b.expect("Unsubscribed 2")
	w.shows(pushmeshv1.ClientPresence_CLIENT_PRESENCE_COUNTS)
	a.expect()
	w.shows(pushmeshv1.ClientPresence_CLIENT_PRESENCE_OFF_UNSPECIFIED)
	for _, c := range []*client{a, b} {
		if got := strings.Join(c.texts(), ", "); got != "Unsubscribed 3, Unsubscribed 1" && got != "Unsubscribed 1, Unsubscribed 3" {
			t.Fatalf("told %s", got)
		}
	}
	if s := w.h.Stats().Members; s.Watches != 0 || s.Ended[wirev1.Code_CODE_FORBIDDEN] != 4 || s.Ended[wirev1.Code_CODE_OVERLOADED] != 2 {
		t.Fatalf("%+v", s)
	}
	w.h.Gone(a.slot)
	w.gone(b)
}

// Watches are bounded, by themselves and with subscriptions, and are charged.
func TestWatchesAreBounded(t *testing.T) {
	w := shown(t)
	c := w.connect(&wirev1.Hello{})
	for id := range uint32(members.MaxWatches) {
		c.watches(id+1, fmt.Sprint("seen/", id))
	}
	c.expect()
	c.charged("as many as may be", members.MaxWatches*100, members.MaxWatches*300)
	c.watches(100, "seen/x")
	c.watches(1, "seen/x")
	c.watches(101, "seen/7")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "seen/1"})
	c.expect("Error TOO_MANY_SUBSCRIPTIONS ref=100", "Error TOO_MANY_SUBSCRIPTIONS ref=1", "Error CONFLICT ref=101", "Error INVALID_ARGUMENT ref=1")
	w.gone(c)
	w = newWorld(t, Limits{Subscriptions: 3})
	w.shows(pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS)
	c = w.connect(&wirev1.Hello{})
	c.watches(1, "seen/1")
	c.watches(2, "seen/2")
	c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "seen/1"})
	c.texts()
	c.watches(4, "seen/4")
	c.subscribe(&wirev1.Subscribe{Id: 5, Filter: "seen/2"})
	c.expect("Error TOO_MANY_SUBSCRIPTIONS ref=4", "Error TOO_MANY_SUBSCRIPTIONS ref=5")
	c.watches(0, "seen/4")
	c.expect("Error INVALID_ARGUMENT ref=0")
}

// Who may subscribe may watch, for as long as it may.
func TestWatchesGoByGrants(t *testing.T) {
	w, d := guarded(t, principals.Config{})
	w.shows(pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS)
	d.knows("both", "ann", "subscribe:seen/#")
	d.knows("one", "ann", "subscribe:seen/1")
	c := w.hello(&wirev1.Hello{Token: "both"})
	c.watches(1, "seen/1")
	c.watches(2, "seen/2")
	c.watches(3, "other/1")
	c.expect("Welcome", "Error FORBIDDEN ref=3")
	c.refresh(4, "one")
	c.expect("Refreshed 4", "Unsubscribed 2")
	c.watches(2, "seen/2")
	c.send(stateFrame, &wirev1.State{Id: 5, Topic: "seen/2", State: []byte("x")})
	c.expect("Error FORBIDDEN ref=2", "Error FORBIDDEN ref=5")
	w.h.Gone(c.slot)
	w.settle()
	if n := w.h.Stats().Members.Watches; n != 0 {
		t.Fatalf("%d watches are left", n)
	}
}

// What clients say of themselves is told with their membership.
func TestStatesAreToldWithMembers(t *testing.T) {
	w := shown(t)
	c := w.connect(&wirev1.Hello{ClientId: "a"})
	c.send(stateFrame, &wirev1.State{Id: 1, Topic: "seen/1", State: []byte("early")})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "seen/1"})
	w.h.Event(exchange.WatchMembers{Filter: "seen/1", Named: true, Walk: 1})
	w.settle()
	last := func() (m *reports.Member) {
		for _, change := range w.mesh.Told {
			if change.Kind == reports.Joined && change.Named {
				m = change.Member
			}
		}
		w.mesh.Told = nil
		return m
	}
	if m := last(); string(m.GetState()) != "early" || m.GetStateAt() == 0 {
		t.Fatalf("told of %v", m)
	}
	at := uint64(0)
	for i, state := range []string{"typing", "typing", "", "back"} { // in one instant
		c.send(stateFrame, &wirev1.State{Id: 3, Topic: "seen/1", State: []byte(state)})
		m := last()
		if string(m.GetState()) != state || m.GetStateAt() <= at {
			t.Fatalf("%d: told of %v", i, m)
		}
		at = m.GetStateAt()
	}
	c.send(stateFrame, &wirev1.State{Topic: "seen/2", State: []byte("elsewhere")}) // not answered
	if m := last(); m != nil {
		t.Fatalf("told of %v", m)
	}
	w.gone(c)
}

// A connection says something of itself in so many topics at most, and changes it so often.
func TestStatesAreBounded(t *testing.T) {
	w := shown(t)
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	say := func(id uint32, topic, state string) {
		c.send(stateFrame, &wirev1.State{Id: id, Topic: topic, State: []byte(state)})
	}
	for i := range members.MaxStates {
		say(1, fmt.Sprint("seen/", i), "here")
		c.expect("Stated 1")
	}
	c.charged("as many as may be", members.MaxStates*64, members.MaxStates*256)
	say(2, "seen/0", "often")
	c.expect("Error RATE_LIMITED ref=2")
	w.pass(members.StateEvery)
	say(2, "seen/0", "later")
	say(3, "seen/0", "often")
	c.expect("Stated 2", "Error RATE_LIMITED ref=3")
	w.pass(time.Minute)
	say(4, "seen/x", "one more")
	c.expect("Error TOO_MANY_SUBSCRIPTIONS ref=4")
	say(5, "seen/3", "")
	say(6, "seen/x", "one more")
	say(7, "seen/never", "")
	c.expect("Stated 5", "Stated 6", "Stated 7")
	if n := w.h.Stats().Members.States; n != members.MaxStates {
		t.Fatalf("%d states", n)
	}
	say(8, "seen/0", strings.Repeat("x", request.MaxState+1))
	say(9, "seen/+", "x")
	c.expect("Error INVALID_ARGUMENT ref=8", "Error BAD_TOPIC ref=9")
	w.gone(c)
}

// Whatever is told, missed and ended, what a client has been told last is what is so once it reads.
func TestAWatchEndsUpWithTheTruth(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		w := shown(t)
		all := make([]*client, 5)
		for i := range all {
			all[i] = w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
			all[i].watches(1, "seen/1")
		}
		last := make([]uint64, len(all))
		fold := func(i int) {
			for _, f := range all[i].got {
				p, is := f.m.(*wirev1.Presence)
				if !is {
					continue
				}
				if !p.GetSnapshot() && p.GetCount() != last[i]+1 {
					t.Fatalf("seed %d: %d is told after %d", seed, p.GetCount(), last[i])
				}
				last[i] = p.GetCount()
			}
			all[i].got = nil
		}
		serial := uint64(1)
		answer := func() {
			asked := w.mesh.Follows
			w.mesh.Follows = nil
			for _, f := range asked {
				for _, c := range all {
					if w.h.Handle(c.slot) == f.Conn {
						w.tellsOf(c, "seen/1", serial, rnd.IntN(20<<10))
					}
				}
			}
		}
		for range 100 {
			i := rnd.IntN(len(all))
			switch rnd.IntN(6) {
			case 0:
				all[i].slow = !all[i].slow
			case 1:
				answer()
			case 2:
				serial++ // of which the loop is not told
			default:
				serial++
				w.tellsOf(nil, "seen/1", serial, rnd.IntN(20<<10))
			}
			all[i].take()
			fold(i)
		}
		for range 4 {
			for i, c := range all {
				c.slow = false
				c.take()
				fold(i)
			}
			serial++
			w.tellsOf(nil, "seen/1", serial, 0)
			answer()
		}
		for i, c := range all {
			c.take()
			fold(i)
			if last[i] != serial {
				t.Fatalf("seed %d: %d was told of %d, and %d is so", seed, i, last[i], serial)
			}
		}
	}
}
