package upstream

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
)

// Once more was told of members than is taken in (once: the burst is over), one walk makes good for
// what was dropped, and that is the end of it.
//
// Eight loops walk over 12,500 members each, and tell 64 at a time, as services/edge/internal/
// presence does; the mesh's goroutine does ten steps in a turn (a slice: 0.5 ms of 50 µs each).
func TestAnOverflowOfPresenceEnds(t *testing.T) {
	const loops, each, piece = 8, 12_500, 64
	ms := &members{ops: serial.New()}
	ms.serve(&Config{ID: "e1", Incarnation: 1}, loops)
	now := time.Now()
	ms.reporter.Lease(now, &meshv1.PresenceLease{
		RouterId: "r1", RouterIncarnation: 1, EdgeIncarnation: 1,
		Watches: []*meshv1.PresenceLease_Watch{{Id: 1, Filter: "room", Ask: 1}},
	})
	type state struct {
		walk uint64
		at   int
	}
	var all [loops]state
	everybody := make([][]*presence.Member, loops)
	for l := range everybody {
		for i := range each {
			everybody[l] = append(everybody[l], &presence.Member{ConnectionId: uint64(l*each + i + 1)})
		}
	}
	commanded, told := 0, 0
	turn := func() (idle bool) {
		idle = true
		for l := range all { // each loop: ten pieces
			s := &all[l]
			for range 10 {
				if s.walk == 0 {
					break
				}
				idle = false
				var cs []presence.Change
				for len(cs) < piece && s.at < each {
					cs = append(cs, presence.Change{Kind: presence.Joined, Filter: "room", Walk: s.walk, Member: everybody[l][s.at]})
					s.at++
				}
				if s.at == each {
					cs = append(cs, presence.Change{Kind: presence.Walked, Filter: "room", Walk: s.walk})
					s.walk = 0
				}
				told += len(cs)
				ms.tell(uint16(l), cs)
			}
		}
		ms.ops.Run()
		for range 10 {
			idle = !ms.step() && idle
		}
		_, commands := ms.report(now)
		for _, c := range commands {
			idle = false
			commanded++
			all[c.Loop] = state{walk: c.Walk}
		}
		return idle
	}
	for n := 0; !turn() && n < 20_000; n++ {
	}
	if r := ms.reporter.Stats(); r.Members != loops*each || ms.walks.Load() != 0 {
		t.Fatalf("%d members, %d walks", r.Members, ms.walks.Load())
	}
	told, commanded = 0, 0
	burst := make([]presence.Change, changesWaiting) // say, very many connections ended
	for i := range burst {
		burst[i] = presence.Change{Kind: presence.Left, Filter: "none", Member: everybody[0][0]}
	}
	ms.tell(0, burst)
	ms.tell(0, burst[:1])
	turns := 0
	for !turn() && turns < 20_000 {
		turns++
	}
	if n := ms.walks.Load(); n > 3 || turns == 20_000 {
		t.Errorf("after %d turns of the mesh: %d walks over all members, %d changes told, %d wait", turns, n, told, ms.waiting.Load())
	} else {
		t.Logf("over after %d turns: %d walks, %d changes told", turns, n, told)
	}
}

// Connections that end, three for each two steps, keep what loops told from ever being taken in.
// Whoever watches anew is sent a snapshot all the same.
func TestAWatcherIsServedWhileConnectionsEnd(t *testing.T) {
	ms := &members{ops: serial.New()}
	ms.serve(&Config{ID: "e1", Incarnation: 1}, 1)
	now := time.Now()
	var watches []*meshv1.PresenceLease_Watch
	for i := range uint64(1000) {
		watches = append(watches, &meshv1.PresenceLease_Watch{Id: i + 1, Filter: "room/" + string(rune('a'+i)), Ask: 1})
	}
	ms.reporter.Lease(now, &meshv1.PresenceLease{RouterId: "r1", RouterIncarnation: 1, EdgeIncarnation: 1, Watches: watches})
	_, commands := ms.report(now)
	for _, c := range commands { // a loop without members
		ms.tell(0, []presence.Change{{Kind: presence.Walked, Filter: c.Filter, Walk: c.Walk}})
	}
	ended := []presence.Change{{Kind: presence.Ended, Member: &presence.Member{ConnectionId: 7}}}
	last, steps := 0, 0
	for range 2000 { // slices of ten steps
		for range 30 {
			ms.tell(0, ended)
		}
		ms.ops.Run()
		for range 10 {
			ms.step()
			steps++
		}
		frames, _ := ms.report(now)
		for _, f := range frames {
			for _, r := range f.Frame.GetReports() {
				if r.GetKind() == meshv1.PresenceReport_KIND_LAST {
					last++
				}
			}
		}
	}
	if last != 1000 {
		t.Errorf("%d of 1000 watchers have their snapshot after %d steps; %d changes wait", last, steps, ms.waiting.Load())
	}
}
