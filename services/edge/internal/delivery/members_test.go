package delivery

import (
	"fmt"
	"testing"
	"time"

	reports "github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/members"
)

// A state that is emptied to make room for another one is told as empty, whatever comes right
// after.
func TestAStateThatMakesRoomIsToldAsEmpty(t *testing.T) {
	w := shown(t)
	c := w.connect(&wirev1.Hello{ClientId: "a", HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 100, Filter: "seen/0"})
	w.h.Event(exchange.WatchMembers{Filter: "seen/0", Named: true, Walk: 1})
	w.settle()
	for i := range members.MaxStates {
		c.send(stateFrame, &wirev1.State{Topic: fmt.Sprint("seen/", i), State: []byte("here")})
	}
	w.pass(time.Minute)
	r := reports.NewReporter(reports.ReporterConfig{ID: "e", Incarnation: 7, Loops: 1, MaxMembers: 100, MaxFilters: 10, MaxWatches: 10, MaxNamed: 10})
	asks, now := uint64(0), time.Now()
	follower := reports.NewFollower(1, reports.Topics{Filter: "seen/0", Named: true}, 100, &asks)
	src := map[reports.Source]bool{{ID: "e", Incarnation: 7}: true}
	follower.Sources(now, src, src)
	exchangeFrames := func() {
		follower.Leases(now, func(_ reports.Source, l *meshv1.PresenceLease_Watch) {
			r.Lease(now, &meshv1.PresenceLease{RouterId: "r", RouterIncarnation: 1, EdgeIncarnation: 7, Watches: []*meshv1.PresenceLease_Watch{l}})
		})
		r.Changes(0, w.mesh.Told)
		w.mesh.Told = nil
		for r.Working() {
			r.Step()
		}
		r.Advance(now)
		frames, _ := r.Take()
		for _, f := range frames {
			for _, one := range f.Frame.GetReports() {
				follower.Report(now, reports.Source{ID: "e", Incarnation: 7}, one)
			}
		}
	}
	exchangeFrames()
	exchangeFrames()
	state := func() (s string) {
		for _, m := range follower.Members {
			s = string(m.GetState())
		}
		return s
	}
	if state() != "here" {
		t.Fatalf("before: %q", state())
	}
	// both in one read: the room is made, and taken
	var both []byte
	for _, m := range []*wirev1.State{{Topic: "seen/0"}, {Topic: "seen/x", State: []byte("there")}} {
		both, _ = wire.Append(both, stateFrame, m)
	}
	w.h.Feed(c.slot, both, 10)
	w.settle()
	now = now.Add(2 * time.Second)
	exchangeFrames()
	exchangeFrames()
	if state() != "" {
		t.Fatalf("the client has no state in seen/0, and others see %q for as long as it is there", state())
	}
}

// A client that watches again is told what changes, also where what it was told before was on its
// way: a topic that is followed anew has higher numbers than before.
func TestWatchAgainWhileAnAnswerIsOnItsWay(t *testing.T) {
	w := shown(t)
	c := w.connect(&wirev1.Hello{ClientId: "a"})
	c.watches(1, "seen/1")
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	c.watches(2, "seen/1")
	c.expect("Unsubscribed 1")
	const anew = uint64(1) << 32
	w.tellsOf(c, "seen/1", 21, 0) // which was for the first one
	w.tellsOf(nil, "seen/1", 22, 0)
	w.tellsOf(c, "seen/1", anew, 0)
	w.tellsOf(nil, "seen/1", 23, 0)
	w.tellsOf(nil, "seen/1", anew+1, 0)
	c.expect("Presence seen/1 21", "Presence seen/1 22", "Presence seen/1 4294967296", "Presence seen/1 4294967297")
	w.gone(c)
}

// A state is newer than what was said before, also where the clock went back and nothing is known
// of the topic any more.
func TestAStateIsNewerThanAllBefore(t *testing.T) {
	w := shown(t)
	c := w.connect(&wirev1.Hello{ClientId: "a", HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 100, Filter: "seen/0"})
	w.h.Event(exchange.WatchMembers{Filter: "seen/0", Named: true, Walk: 1})
	w.settle()
	say := func(topic, state string) (at uint64) {
		t.Helper()
		w.pass(members.StateEvery)
		w.mesh.Told = nil
		c.send(stateFrame, &wirev1.State{Topic: topic, State: []byte(state)})
		for _, told := range w.mesh.Told {
			if at = told.Member.GetStateAt(); string(told.Member.GetState()) != state {
				t.Fatalf("told of %v", told.Member)
			}
		}
		return at
	}
	before := say("seen/0", "here")
	before = max(before, say("seen/0", ""))
	for i := range 2 * members.MaxStates { // for which seen/0 makes room
		say(fmt.Sprint("seen/", i+1), "x")
		say(fmt.Sprint("seen/", i+1), "")
	}
	w.h.SetTime(w.now, wallStart-uint64(time.Hour/time.Microsecond))
	w.mesh.Told = nil
	c.send(stateFrame, &wirev1.State{Topic: "seen/0", State: []byte("again")})
	if len(w.mesh.Told) != 1 || w.mesh.Told[0].Member.GetStateAt() <= before {
		t.Fatalf("after %d: %v", before, w.mesh.Told)
	}
}
