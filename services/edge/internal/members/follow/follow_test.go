package follow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
)

// world is a follower whose goroutine is the test, with what it has sent and posted.
type world struct {
	*Follower
	t       *testing.T
	now     time.Time
	routers []routerlink.Live
	leases  map[string][]*meshv1.PresenceFrame // by router
	posted  []exchange.Event
}

func newWorld(t *testing.T, routers ...string) *world {
	w := &world{t: t, now: time.Now(), leases: map[string][]*meshv1.PresenceFrame{}}
	for i, id := range routers {
		w.routers = append(w.routers, routerlink.Live{ID: id, Incarnation: uint64(i + 1)})
	}
	w.Follower = New(Config{
		Edge: "e", Incarnation: 7, Routers: func() []routerlink.Live { return w.routers },
		Post: func(_ uint16, e exchange.Event) { w.posted = append(w.posted, e) },
		Publish: func(subject string, data []byte) error {
			frame := &meshv1.PresenceFrame{}
			if err := proto.Unmarshal(data, frame); err != nil {
				t.Fatal(err)
			}
			for _, r := range w.routers {
				if subject == bus.RouterPresence(r.ID) && frame.GetRouterIncarnation() == r.Incarnation {
					w.leases[r.ID] = append(w.leases[r.ID], frame)
				}
			}
			return nil
		},
	})
	return w
}

// second lets a second pass, and returns what routers are asked for then.
func (w *world) second() {
	w.leases = map[string][]*meshv1.PresenceFrame{}
	w.now = w.now.Add(renewEvery)
	w.renew(w.now)
}

// asked is who was asked for a topic, and what of; "": nobody was.
func (w *world) asked(topic string) (router string, want *meshv1.RoomLease_Want) {
	for id, frames := range w.leases {
		for _, f := range frames {
			for _, one := range f.GetRoomLease().GetWants() {
				if one.GetTopic() == topic {
					router, want = id, one
				}
			}
		}
	}
	return router, want
}

// ended reports whether a router was told that nobody watches a topic any more.
func (w *world) endedAt(router, topic string) bool {
	for _, f := range w.leases[router] {
		for _, name := range f.GetRoomLease().GetEnded() {
			if name == topic {
				return true
			}
		}
	}
	return false
}

func (w *world) tell(router string, updates ...*meshv1.RoomUpdate) {
	w.receive(w.now, &meshv1.RoomFrame{RouterId: router, EdgeIncarnation: 7, Updates: updates})
}

// took is what was posted, as text.
func (w *world) took() string {
	var all []string
	for _, e := range w.posted {
		switch e := e.(type) {
		case exchange.MembersTold:
			p := &wirev1.Presence{}
			if err := proto.Unmarshal(e.Frame[wire.HeaderSize:], p); err != nil || p.GetSnapshot() != e.Snapshot || p.GetTopic() != e.Topic {
				w.t.Fatalf("%v, %v", p, err)
			}
			kind := "change"
			if e.Snapshot {
				kind = "all"
			}
			all = append(all, fmt.Sprintf("%s %d to %d: %d", kind, uint32(e.Serial), e.Conn.Slot, p.GetCount()))
		case exchange.MembersEnded:
			all = append(all, fmt.Sprintf("ended %v", e.Code))
		}
	}
	w.posted = nil
	return strings.Join(all, ", ")
}

func (w *world) expect(want string) {
	w.t.Helper()
	if got := w.took(); got != want {
		w.t.Fatalf("posted %q, want %q", got, want)
	}
}

func member(user string) []*meshv1.RoomUpdate_Member {
	return []*meshv1.RoomUpdate_Member{{User: user}}
}

func conn(slot uint32) exchange.Conn { return exchange.Conn{Slot: slot, Gen: 1} }

func TestATopicIsFollowedOnceForAll(t *testing.T) {
	w := newWorld(t, "r")
	w.follow(w.now, conn(1), "room/1")
	w.follow(w.now, conn(2), "room/1")
	w.askFresh()
	if n := len(w.leases["r"]); n != 1 {
		t.Fatalf("%d leases", n)
	}
	w.expect("")
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Run: 5, Version: 3, Count: 1, Members: member("ann")})
	w.expect("all 1 to 1: 1, all 1 to 2: 1")
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Run: 5, From: 3, Version: 4, Count: 2, Members: member("bob")})
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Run: 5, From: 3, Version: 4, Count: 2, Members: member("bob")})
	w.expect("change 2 to 0: 2")
	w.follow(w.now, conn(3), "room/1") // who comes later is told at once
	w.expect("all 2 to 3: 2")
	w.second()
	if _, want := w.asked("room/1"); want.GetRun() != 5 || want.GetVersion() != 4 {
		t.Fatalf("asked for %v", want)
	}
	w.unfollow(w.now, 0, "room/1")
	for range lingerFor/renewEvery - 1 {
		w.second()
	}
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Run: 5, From: 4, Version: 5, Count: 3, Members: member("cat")})
	w.expect("")
	w.follow(w.now, conn(4), "room/1") // it was not forgotten
	w.expect("all 3 to 4: 3")
	w.unfollow(w.now, 0, "room/1")
	for range lingerFor / renewEvery {
		w.second()
	}
	if !w.endedAt("r", "room/1") || w.Stats().Topics.Load() != 0 {
		t.Fatal("the router does not hear of the end")
	}
	w.second()
	if router, _ := w.asked("room/1"); router != "" {
		t.Fatal("it is asked for still")
	}
}

// What was lost is asked for, and told as the difference alone.
func TestWhatIsLostIsAskedFor(t *testing.T) {
	w := newWorld(t, "r")
	w.follow(w.now, conn(1), "room/1")
	w.askFresh()
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Run: 5, Version: 3, Count: 1, Members: member("ann")})
	w.took()
	w.leases = map[string][]*meshv1.PresenceFrame{}
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Run: 5, From: 4, Version: 5, Count: 1, Left: []string{"bob"}})
	w.askFresh()
	if _, want := w.asked("room/1"); want.GetVersion() != 3 {
		t.Fatalf("asked for %v", want)
	}
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Run: 5, Version: 5, Count: 1, Members: member("ann")})
	w.expect("")
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Run: 5, Version: 6, Count: 1, Members: member("cat")})
	w.expect("change 2 to 0: 1")
}

// Routers share topics, and edges ask the same one for a topic. Where one comes or goes, its own
// topics move alone.
func TestRoutersShareTopics(t *testing.T) {
	three, two := newWorld(t, "a", "b", "c"), newWorld(t, "a", "b")
	count, moved := map[string]int{}, 0
	for i := range 3000 {
		name := fmt.Sprint("room/", i)
		of3, _ := routerOf(three.routers, name)
		of2, _ := routerOf(two.routers, name)
		if count[of3.ID]++; of3.ID != of2.ID {
			moved++
		}
		if of3.ID != "c" && of3.ID != of2.ID {
			t.Fatalf("%s moved from %s to %s", name, of3.ID, of2.ID)
		}
	}
	for id, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("%s has %d of 3,000 topics", id, n)
		}
	}
	if moved != count["c"] {
		t.Errorf("%d topics moved", moved)
	}
}

// A router that dies is followed by another, and one that answers nothing is avoided for a while.
func TestAnotherRouterIsAsked(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.follow(w.now, conn(1), "room/1")
	w.askFresh()
	first, _ := w.asked("room/1")
	for range 4 {
		w.second()
	}
	second, _ := w.asked("room/1")
	if second == first || !w.endedAt(first, "room/1") {
		t.Fatalf("%s does not answer, and %s is asked", first, second)
	}
	w.tell(first, &meshv1.RoomUpdate{Topic: "room/1", Run: 1, Version: 1, Count: 9})
	w.expect("") // too late
	w.tell(second, &meshv1.RoomUpdate{Topic: "room/1", Run: 2, Version: 1, Count: 1, Members: member("ann")})
	w.expect("all 1 to 1: 1")
	for range 30 {
		w.second()
		w.tell(second)
		if at, _ := w.asked("room/1"); at != second {
			t.Fatalf("%s is asked", at)
		}
	}
	// it dies, and the other one is well again
	w.routers = w.routers[:0]
	w.routers = append(w.routers, routerlink.Live{ID: first, Incarnation: 99})
	w.second()
	if at, want := w.asked("room/1"); at != first || want.GetRun() != 2 {
		t.Fatalf("%s is asked for %v", at, want)
	}
	w.tell(first, &meshv1.RoomUpdate{Topic: "room/1", Run: 3, Version: 1, Count: 1, Members: member("ann")})
	w.expect("") // it is as it was
}

func TestATopicEndsForItsReason(t *testing.T) {
	w := newWorld(t, "r")
	w.follow(w.now, conn(1), "room/1")
	w.askFresh()
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Code: wirev1.Code_CODE_FORBIDDEN, Reason: "no"})
	w.expect("ended CODE_FORBIDDEN")
	w.routers = nil
	w.follow(w.now, conn(1), "room/2")
	w.askFresh()
	for range patience/renewEvery + 2 {
		w.second()
	}
	w.expect("ended CODE_UNAVAILABLE")
	if n := w.Stats().Topics.Load(); n != 0 {
		t.Fatalf("%d topics are left", n)
	}
}

func TestAnEdgeFollowsSoManyTopics(t *testing.T) {
	w := newWorld(t, "r")
	for i := range MaxTopics {
		w.follow(w.now, conn(1), fmt.Sprint("room/", i))
	}
	w.expect("")
	w.follow(w.now, conn(1), "room/x")
	w.follow(w.now, conn(2), "room/7")
	w.expect("ended CODE_OVERLOADED")
	w.askFresh()
	if n := len(w.leases["r"]); n != MaxTopics/wantsPerFrame {
		t.Fatalf("%d leases", n)
	}
	// those that nobody watches make room
	w.unfollow(w.now, 0, "room/7")
	w.unfollow(w.now, 0, "room/7")
	w.follow(w.now, conn(3), "room/y")
	w.expect("")
	w.follow(w.now, conn(3), "room/z")
	w.expect("ended CODE_OVERLOADED")
}

// Where as many topics are watched as may be, who stops and watches another one has the follower
// look at that one alone. What others cost is the measure: they would be 50,000.
func TestWatchingAnotherIsCheapAtTheLimit(t *testing.T) {
	took := func(topics int) time.Duration {
		w := newWorld(t, "r")
		for i := range topics {
			w.follow(w.now, conn(1), fmt.Sprint("room/", i))
		}
		began := time.Now()
		for i := range 1000 {
			w.unfollow(w.now, 0, fmt.Sprint("room/", i))
			w.follow(w.now, conn(1), fmt.Sprint("other/", i))
		}
		if n := len(w.topics); n != min(topics+1000, MaxTopics) {
			t.Fatalf("%d topics", n)
		}
		return time.Since(began)
	}
	var few, most time.Duration
	for range 3 { // one of them is undisturbed
		few, most = took(1000), took(MaxTopics)
		if most < 300*few { // all of them would cost 2,000 times as much
			return
		}
	}
	t.Errorf("1000 changes take %v where 1000 topics are watched, %v where as many are as may be", few, most)
}

// Who watches and stops in a loop does not have the mesh look for everybody in the topic each time.
func TestWatchingAndStoppingInALoop(t *testing.T) {
	w := newWorld(t, "r")
	asked, ended := 0, 0
	for range 100 {
		w.leases = map[string][]*meshv1.PresenceFrame{}
		w.follow(w.now, conn(1), "room/1")
		w.askFresh()
		w.unfollow(w.now, 0, "room/1")
		w.askFresh()
		if r, _ := w.asked("room/1"); r != "" {
			asked++
		}
		if w.endedAt("r", "room/1") {
			ended++
		}
	}
	if asked != 1 || ended != 0 {
		t.Errorf("a router was asked %d times to find out who is in a topic, and %d times to forget it", asked, ended)
	}
}

// A connection that asks again and again for a topic of which nothing is known yet is answered
// once.
func TestWhoAsksAgainIsAnsweredOnce(t *testing.T) {
	w := newWorld(t, "r")
	for range 1000 {
		w.follow(w.now, conn(1), "room/1")
	}
	w.askFresh()
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Run: 1, Version: 1, Count: 0})
	w.expect("all 1 to 1: 0")
}

// What is told of a topic that is followed anew is newer by its number than whatever was told of it
// before.
func TestSerialsGrow(t *testing.T) {
	w := newWorld(t, "r")
	w.follow(w.now, conn(1), "room/1")
	w.askFresh()
	for v := range uint64(9) {
		w.tell("r", &meshv1.RoomUpdate{Topic: "room/1", Run: 1, Version: v + 1, Count: v})
	}
	before := w.topics["room/1"].serial
	w.unfollow(w.now, 0, "room/1")
	w.dropIdle(w.now)
	w.follow(w.now, conn(1), "room/1")
	if after := w.topics["room/1"].serial; after <= before {
		t.Fatalf("%d after %d", after, before)
	}
}

// Users of all topics together have so much memory. The topic that has no room ends.
func TestUsersHaveSoMuchMemory(t *testing.T) {
	w := newWorld(t, "r")
	w.most = 4 << 10
	for i := range 5 {
		w.follow(w.now, conn(1), fmt.Sprint("room/", i))
	}
	w.askFresh()
	users := []*meshv1.RoomUpdate_Member{{User: "ann", State: make([]byte, 1<<10)}}
	for i := range 4 {
		w.tell("r", &meshv1.RoomUpdate{Topic: fmt.Sprint("room/", i), Run: 1, Version: 1, Count: 1, Members: users})
	}
	w.expect("all 1 to 1: 1, all 1 to 1: 1, all 1 to 1: 1, ended CODE_OVERLOADED")
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/0", Run: 1, From: 1, Version: 2, Left: []string{"ann"}})
	w.took()
	w.tell("r", &meshv1.RoomUpdate{Topic: "room/4", Run: 1, Version: 1, Count: 1, Members: users})
	w.expect("all 1 to 1: 1")
	for i := range 5 {
		w.unfollow(w.now, 0, fmt.Sprint("room/", i))
	}
	w.dropIdle(w.now)
	if w.bytes != 0 || w.Stats().Bytes.Load() != 0 {
		t.Fatalf("%d bytes of nothing", w.bytes)
	}
}
