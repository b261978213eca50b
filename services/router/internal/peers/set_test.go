package peers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// story is a set, and routers that beat. Time goes by in ticks.
type story struct {
	t     *testing.T
	now   time.Time
	set   *Set
	lives map[string]uint64 // who beats, with which incarnation
	cut   bool              // nothing is heard, not even the own beats
	begun []string
}

func begin(t *testing.T) *story {
	now := time.Unix(1_000_000, 0)
	return &story{t: t, now: now, set: NewSet(now, Router{ID: "me", Incarnation: 5}), lives: map[string]uint64{"me": 5}}
}

func (s *story) say(id string, life uint64, leaving bool) {
	if s.cut {
		return
	}
	if s.set.Observe(s.now, &meshv1.RouterBeat{RouterId: id, RouterIncarnation: life, Leaving: leaving}) {
		s.begun = append(s.begun, id)
	}
}

// pass lets everyone that lives beat for so long.
func (s *story) pass(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(tickEvery)
		if s.now.UnixMilli()%beatEvery.Milliseconds() == 0 {
			for id, life := range s.lives {
				s.say(id, life, false)
			}
		}
		s.set.Tick(s.now)
	}
}

func (s *story) live(want string) {
	s.t.Helper()
	var got []string
	for _, r := range s.set.Live() {
		got = append(got, fmt.Sprint(r.ID, r.Incarnation))
	}
	if strings.Join(got, " ") != want {
		s.t.Fatalf("%v live, want %s", got, want)
	}
}

func TestRoutersJoinLeaveAndDie(t *testing.T) {
	s := begin(t)
	s.live("me5")
	s.lives["a"], s.lives["b"] = 1, 1
	s.pass(time.Second)
	s.live("a1 b1 me5")
	if len(s.begun) != 2 {
		t.Errorf("begun: %v", s.begun)
	}

	delete(s.lives, "a")
	s.say("a", 1, true)
	s.live("b1 me5")

	delete(s.lives, "b")
	s.pass(goneAfter - beatEvery)
	s.live("b1 me5")
	s.pass(2 * beatEvery)
	s.live("me5")
	if len(s.begun) != 2 {
		t.Errorf("begun: %v", s.begun)
	}
}

func TestARestartedRouterIsANewOne(t *testing.T) {
	s := begin(t)
	s.say("a", 1, false)
	s.say("a", 2, false)
	s.live("a2 me5")
	if len(s.begun) != 2 {
		t.Errorf("begun: %v", s.begun)
	}
	s.say("a", 1, true) // of the one before
	s.say("a", 1, false)
	s.live("a2 me5")
	s.say("me", 4, true) // of this one's own past
	s.live("a2 me5")
}

func TestCutOffFromNATSTheLastNumberStays(t *testing.T) {
	s := begin(t)
	s.lives["a"], s.lives["b"] = 1, 1
	s.pass(time.Second)
	s.cut = true
	s.pass(time.Hour)
	s.live("a1 b1 me5")

	delete(s.lives, "a") // it died meanwhile
	s.cut = false
	s.pass(goneAfter)
	s.live("a1 b1 me5") // a full time from when it is back
	s.pass(2 * beatEvery)
	s.live("b1 me5")
}

func TestAProcessThatStoodStillBlamesNobody(t *testing.T) {
	s := begin(t)
	s.lives["a"] = 1
	s.pass(time.Second)
	s.now = s.now.Add(time.Minute)
	s.set.Tick(s.now)
	s.live("a1 me5")
	s.pass(10 * time.Second)
	s.live("a1 me5")
}

func TestChangesAreToldOnce(t *testing.T) {
	s := begin(t)
	if !s.set.Changed() || s.set.Changed() {
		t.Error("the first one")
	}
	s.say("a", 1, false)
	if !s.set.Changed() {
		t.Error("a join")
	}
	s.pass(time.Second)
	s.say("a", 1, false)
	if s.set.Changed() {
		t.Error("nothing changed")
	}
	s.say("a", 1, true)
	if !s.set.Changed() {
		t.Error("a leave")
	}
}

func TestTheSetIsBounded(t *testing.T) {
	s := begin(t)
	for i := range 2 * maxRouters {
		s.say(fmt.Sprint("r", i), 1, false)
	}
	if n := len(s.set.Live()); n != maxRouters {
		t.Errorf("%d are known", n)
	}
}
