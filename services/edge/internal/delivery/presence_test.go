package delivery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/policy"
	reports "github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/presence"
)

// present is a world in which "seen" has presence.
func present(t tester) *world {
	w := newWorld(t, Limits{})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "seen", Policy: &pushmeshv1.Policy{Presence: true}}})
	w.h.Event(exchange.PoliciesChanged{})
	return w
}

func (w *world) watch(filter string, walk uint64) {
	w.h.Event(exchange.WatchMembers{Filter: filter, Walk: walk})
	w.settle()
}

// told takes what was told of a filter, and folds it into members by topic and client.
func (w *world) fold(filter string, members map[string]*reports.Member) (log []string) {
	for _, c := range w.mesh.Told {
		if c.Kind == reports.Ended {
			maps.DeleteFunc(members, func(_ string, m *reports.Member) bool { return m.GetConnectionId() == c.Member.GetConnectionId() })
			log = append(log, "ended")
			continue
		}
		if c.Filter != filter {
			continue
		}
		k := fmt.Sprint(c.Member.GetTopic(), " ", c.Member.GetConnectionId())
		switch c.Kind {
		case reports.Joined:
			members[k] = c.Member
			log = append(log, "+"+c.Member.GetTopic()+c.Member.GetClientId())
		case reports.Left:
			delete(members, k)
			log = append(log, "-"+c.Member.GetTopic())
		case reports.Walked:
			log = append(log, fmt.Sprint("walked ", c.Walk))
		}
	}
	w.mesh.Told = nil
	return log
}

func (w *world) expectTold(filter string, want ...string) {
	w.t.Helper()
	w.settle()
	if got := w.fold(filter, map[string]*reports.Member{}); !slices.Equal(got, want) {
		w.t.Fatalf("%s: told %q, want %q", filter, got, want)
	}
}

func TestNobodyIsToldOfMembersUnwatched(t *testing.T) {
	w := present(t)
	c := w.connect(&wirev1.Hello{ClientId: "a"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "seen/1"})
	w.watch("seen/1", 1)
	w.expectTold("seen/1", "+a", "walked 1")
	w.watch("seen/1", 0)
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	if w.expectTold("seen/1"); w.h.rooms.presence.Watching() != 0 {
		t.Fatal("still watched")
	}
	w.watch("seen/1", 0) // once more is nothing
	w.watch("seen/2", 2)
	for _, filter := range []string{"seen/1", "seen/#", "#"} { // nor is it while others are watched
		w.watch(filter, 0)
	}
	if w.expectTold("seen/2", "walked 2"); w.h.rooms.presence.Watching() != 1 {
		t.Fatal("what is watched is forgotten with what was not")
	}
}

// Every kind of subscription makes a member, and every kind of end takes it away.
func TestMembersComeAndGo(t *testing.T) {
	for name, end := range map[string]func(w *world, c *client){
		"unsubscribes": func(_ *world, c *client) { c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1}) },
		"hangs up":     func(w *world, c *client) { w.h.Gone(c.slot) },
		"is disconnected": func(w *world, c *client) {
			w.h.Event(exchange.Disconnect{ClientID: "a", Code: wirev1.Code_CODE_FORBIDDEN})
		},
		"is silent": func(w *world, _ *client) { w.pass(time.Minute) },
		"is taken over": func(w *world, c *client) {
			w.h.Event(exchange.Yield{Conn: w.h.Handle(c.slot)})
		},
		"is drained":      func(w *world, _ *client) { w.h.Event(exchange.Drain{DeadlineMS: 1000}); w.pass(5 * time.Second) },
		"sends nonsense":  func(_ *world, c *client) { c.bytes([]byte{0, 0, 1, 3, 255}) },
		"breaks its word": func(_ *world, c *client) { c.subscribe(&wirev1.Subscribe{}) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, m := range []*wirev1.Subscribe{
				{Id: 1, Filter: "seen/1"},
				{Id: 1, Filter: "seen/+"},
				{Id: 1, Filter: "seen/1", Group: "g"},
				{Id: 1, Filter: "seen/1", Start: wirev1.Start_START_SESSION},
				{Id: 1, Filter: "seen/1", Start: wirev1.Start_START_EARLIEST, Ack: true},
			} {
				w := present(t)
				w.watch("seen/1", 1)
				w.expectTold("seen/1", "walked 1")
				c := w.connect(&wirev1.Hello{ClientId: "a", Session: "s", HeartbeatMs: 1000})
				c.subscribe(m)
				members := map[string]*reports.Member{}
				if w.settle(); len(w.fold("seen/1", members)) == 0 || len(members) != 1 {
					t.Fatalf("%v: members %v", m, members)
				}
				for _, got := range members {
					if got.GetSession() != "s" || got.GetUser() == "" || got.GetConnectionId() == 0 || got.GetConnectedAt() == 0 || got.GetSubscribedAt() < got.GetConnectedAt() {
						t.Fatalf("%v: %v", m, got)
					}
				}
				end(w, c)
				if w.settle(); len(w.fold("seen/1", members)) == 0 || len(members) != 0 {
					t.Fatalf("%v: a ghost: %v", m, members)
				}
			}
		})
	}
}

// A subscription that was refused, or is not answered yet, makes no member.
func TestWhoIsNotSubscribedIsNoMember(t *testing.T) {
	w := present(t)
	w.watch("seen/1", 1)
	w.mesh.Told = nil
	c := w.connect(&wirev1.Hello{ClientId: "a"})
	w.mesh.GroupErr = fmt.Errorf("no")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "seen/1", Group: "g"})
	// it has none
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "seen/1", Start: wirev1.Start_START_SESSION})
	members := map[string]*reports.Member{}
	if w.settle(); len(w.fold("seen/1", members)) > 0 && len(members) > 0 {
		t.Fatalf("members %v", members)
	}
}

// With wildcards a member is who names a topic of a namespace with presence.
func TestWildcardsAreWatchedByTopic(t *testing.T) {
	w := present(t)
	c := w.connect(&wirev1.Hello{ClientId: "a"})
	for i, f := range []string{"seen/1", "seen/+", "unseen/1", "seen/1", "seen/2"} {
		c.subscribe(&wirev1.Subscribe{Id: uint32(i + 1), Filter: f})
	}
	c.subscribe(&wirev1.Subscribe{Id: 9, Filter: "seen/3", Group: "g"})
	w.watch("#", 1)
	members := map[string]*reports.Member{}
	w.fold("#", members)
	check := func(want ...string) {
		t.Helper()
		w.settle()
		w.fold("#", members)
		var got []string
		for _, m := range members {
			got = append(got, m.GetTopic())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	check("seen/1", "seen/2", "seen/3")
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 9})
	check("seen/1", "seen/2")
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 4})
	check("seen/2")
}

// Whatever connections and subscriptions come and go, walks beside them: what was told is who is
// there.
func TestWhatIsToldIsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := present(t)
		filter := rapid.SampledFrom([]string{"seen/1", "seen/#"}).Draw(t, "filter")
		named := filter == "seen/1" && rapid.Bool().Draw(t, "named")
		var all []*client
		walk := uint64(1)
		w.h.Event(exchange.WatchMembers{Filter: filter, Named: named, Walk: walk})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(all) == 0 || rapid.IntRange(0, 5).Draw(t, "new") == 0 {
				all = append(all, w.connect(&wirev1.Hello{ClientId: fmt.Sprint("c", len(all)), HeartbeatMs: 600_000}))
			}
			i := rapid.IntRange(0, len(all)-1).Draw(t, "who")
			c, id := all[i], rapid.Uint32Range(1, 4).Draw(t, "sub")
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				walk++
				w.h.Event(exchange.WatchMembers{Filter: filter, Named: named, Walk: walk})
			case 1:
				w.h.Gone(c.slot)
				all = slices.Delete(all, i, i+1)
			case 2, 3, 4:
				c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id})
			default:
				c.subscribe(&wirev1.Subscribe{
					Id: id, Filter: rapid.SampledFrom([]string{"seen/1", "seen/2", "seen/+", "#", "unseen"}).Draw(t, "filter"),
					Group: rapid.SampledFrom([]string{"", "", "g"}).Draw(t, "group"),
				})
			}
			c.got = nil
		}
		w.settle()
		members, want := map[string]*reports.Member{}, map[string]bool{}
		w.fold(filter, members)
		for _, c := range all {
			here := w.h.conns.Get(c.slot)
			for _, name := range []string{"seen/1", "seen/2"} {
				wild := filter == "seen/#"
				is := wild && names(here, name)
				if name == filter && named {
					is = names(here, name)
				} else if name == filter {
					_, is = w.h.rooms.presence.Since(w.h.handle(here), name)
				}
				if is {
					want[fmt.Sprint(strings.Repeat(name, b2i(wild)), " ", w.h.connID(here))] = true
				}
			}
		}
		if len(members) != len(want) {
			t.Fatalf("told %v, want %v", members, want)
		}
		for k := range members {
			if !want[k] {
				t.Fatalf("a ghost: %s", k)
			}
		}
	})
}

// names reports whether a subscription of the connection names a topic.
func names(c *state.Conn, topic string) bool {
	for _, s := range c.Subs.All() {
		if s.Active && s.Open && !s.Dead && s.Filter() == topic {
			return true
		}
	}
	return slices.ContainsFunc(c.Groups, func(g *state.Member) bool { return g.Counts() && g.Filter == topic })
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// What does not fit is missed, and says so.
func TestTooManyChangesAreMissed(t *testing.T) {
	w := present(t)
	w.watch("seen/1", 1)
	c := w.connect(&wirev1.Hello{ClientId: "a"})
	w.mesh.Told = nil
	for range presence.MaxNotes + 10 {
		w.h.rooms.presence.Moved(w.h.Handle(c.slot), "seen/1", false)
	}
	w.settle()
	n := len(w.mesh.Told)
	if n != presence.MaxNotes+1 || w.mesh.Told[n-1].Kind != reports.Missed {
		t.Fatalf("%d told, the last is %v", n, w.mesh.Told[n-1])
	}
}

// A page has the lowest ids above the last one, and pages have everybody once.
func TestMembersAreListedInPages(t *testing.T) {
	w := present(t)
	for i := range 50 {
		c := w.connect(&wirev1.Hello{ClientId: fmt.Sprint("c", i)})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "seen/1"})
		c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "seen/#"})
		if i%2 == 0 {
			c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "seen/1", Group: "g"})
		}
		c.got = nil
	}
	seen, after := map[string]bool{}, uint64(0)
	for more := true; more; {
		var page []*reports.Member
		w.h.Event(exchange.ListMembers{Topic: "seen/1", After: after, Limit: 7, Reply: func(ms []*reports.Member, m bool) { page, more = ms, m }})
		w.settle()
		if len(page) > 7 || more && len(page) < 7 {
			t.Fatalf("%d of a page", len(page))
		}
		high := after
		for _, m := range page {
			if m.GetConnectionId() <= after || seen[m.GetClientId()] {
				t.Fatalf("%v after %d", m, after)
			}
			seen[m.GetClientId()], high = true, max(high, m.GetConnectionId())
		}
		after = high
	}
	if len(seen) != 50 {
		t.Fatalf("%d members", len(seen))
	}
	var counts []uint64
	w.h.Event(exchange.Count{Topics: []string{"seen/1"}, Reply: func(n []uint64) { counts = n }})
	if w.settle(); counts[0] != 50 {
		t.Fatalf("counted %v: several subscriptions of a connection that match are one", counts)
	}
}
