package routerlink

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// decoded is a frame as an edge takes it in.
func decoded(f *meshv1.RouterFrame) *Frame {
	data, err := proto.Marshal(f)
	out := &Frame{}
	if err != nil || !out.Decode(data) {
		panic("a frame that can't be read")
	}
	return out
}

const edge = 5

var start = time.UnixMicro(1_000_000)

func beat(id string, incarnation, n, applied uint64) *meshv1.RouterFrame {
	return &meshv1.RouterFrame{RouterId: id, RouterIncarnation: incarnation, EdgeIncarnation: edge, N: n, AppliedVersion: applied}
}

func batch(id string, incarnation, n uint64) *meshv1.RouterFrame {
	f := beat(id, incarnation, n, 0)
	f.Deliveries = []*meshv1.Delivery{{Topic: "a"}}
	return f
}

func TestVerdicts(t *testing.T) {
	foreign := batch("r", 1, 1)
	foreign.EdgeIncarnation = 4
	for _, c := range []struct {
		name   string
		frames []*meshv1.RouterFrame
		want   Verdict // of the last
	}{
		{"first batch", []*meshv1.RouterFrame{batch("r", 1, 1)}, Verdict{Applied: true}},
		{"first beat", []*meshv1.RouterFrame{beat("r", 1, 0, 0)}, Verdict{Applied: true}},
		{"began before us", []*meshv1.RouterFrame{beat("r", 1, 1, 0)}, Verdict{Applied: true, Missed: Hole}},
		{"next", []*meshv1.RouterFrame{batch("r", 1, 1), batch("r", 1, 2)}, Verdict{}},
		{"beat", []*meshv1.RouterFrame{batch("r", 1, 1), beat("r", 1, 1, 0)}, Verdict{}},
		{"middle lost", []*meshv1.RouterFrame{batch("r", 1, 1), batch("r", 1, 3)}, Verdict{Missed: Hole}},
		{"last lost", []*meshv1.RouterFrame{batch("r", 1, 1), beat("r", 1, 2, 0)}, Verdict{Missed: Hole}},
		{"first lost", []*meshv1.RouterFrame{batch("r", 1, 2)}, Verdict{Missed: Hole, Applied: true}},
		{"took us up again", []*meshv1.RouterFrame{batch("r", 1, 1), batch("r", 1, 2), beat("r", 1, 0, 0)}, Verdict{Missed: Hole}},
		{"and goes on", []*meshv1.RouterFrame{batch("r", 1, 1), batch("r", 1, 2), beat("r", 1, 0, 0), batch("r", 1, 1)}, Verdict{}},
		{"noticed once", []*meshv1.RouterFrame{batch("r", 1, 1), beat("r", 1, 2, 0), beat("r", 1, 2, 0)}, Verdict{}},
		{"restarted", []*meshv1.RouterFrame{batch("r", 1, 7), batch("r", 2, 1)}, Verdict{Missed: Incarnation, Applied: true}},
		{"from before its restart", []*meshv1.RouterFrame{batch("r", 1, 7), batch("r", 2, 1), batch("r", 1, 8)}, Verdict{Foreign: true}},
		{"restarted with a lower number", []*meshv1.RouterFrame{batch("r", 2, 7), batch("r", 1, 1)}, Verdict{Missed: Incarnation, Applied: true}},
		{"from before that", []*meshv1.RouterFrame{batch("r", 2, 7), batch("r", 1, 1), batch("r", 2, 8)}, Verdict{Foreign: true}},
		{"restarted many times", []*meshv1.RouterFrame{batch("r", 9, 1), batch("r", 3, 1), batch("r", 7, 1), batch("r", 5, 1), batch("r", 9, 2)}, Verdict{Foreign: true}},
		{"not for us", []*meshv1.RouterFrame{foreign}, Verdict{Foreign: true}},
		{"applied", []*meshv1.RouterFrame{beat("r", 1, 0, 1), beat("r", 1, 0, 2)}, Verdict{Applied: true}},
	} {
		s := New(edge)
		var got Verdict
		for _, f := range c.frames {
			got = s.Take(start, decoded(f), 0)
		}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestLiveRoutersAndWhatTheyApplied(t *testing.T) {
	s := New(edge)
	if _, any := s.Applied(); any {
		t.Error("a router out of nothing")
	}
	s.Take(start, decoded(beat("r1", 1, 0, 4)), 0)
	s.Take(start.Add(time.Second), decoded(beat("r2", 1, 0, 2)), 0)
	if v, any := s.Applied(); v != 2 || !any || s.Laggards(3) != 1 {
		t.Errorf("applied %d", v)
	}
	leaving := beat("r2", 1, 0, 2)
	leaving.Leaving = true
	if v := s.Take(start.Add(time.Second), decoded(leaving), 0); !v.Applied {
		t.Error("a router that leaves keeps others waiting")
	}
	if v, _ := s.Applied(); v != 4 || s.Len() != 1 {
		t.Errorf("applied %d with %d routers", v, s.Len())
	}
	if at, ok := s.NextSilent(); !ok || !at.Equal(start.Add(SilentAfter)) {
		t.Fatalf("next is silent at %v, %v", at, ok)
	}
	if n := s.Expire(start.Add(SilentAfter - 1)); n != 0 {
		t.Errorf("%d expired early", n)
	}
	if n := s.Expire(start.Add(SilentAfter)); n != 1 || s.Len() != 0 {
		t.Errorf("%d expired", n)
	}
	late := New(edge)
	late.Take(start, decoded(beat("r1", 1, 3, 4)), 0)
	if v := late.Take(start.Add(SilentAfter), decoded(beat("r1", 1, 3, 4)), 0); v.Missed != Silent {
		t.Errorf("a silence that nobody looked at: %+v", v)
	}
	if v := s.Take(start.Add(3*time.Second), decoded(beat("r1", 1, 9, 4)), 0); v.Missed != Incarnation || s.Len() != 1 {
		t.Errorf("back from silence: %+v", v)
	}
}

func TestPickIsStableAndSpread(t *testing.T) {
	ids := []string{"r1", "r2", "r3"}
	count := map[string]int{}
	for key := range uint64(3000) {
		id := Pick(ids, key)
		count[id]++
		if Pick([]string{"r3", "r2", "r1"}, key) != id {
			t.Fatal("the order matters")
		}
		if id != "r2" && Pick([]string{"r1", "r3"}, key) != id {
			t.Fatal("another router's end moved a connection")
		}
	}
	for _, id := range ids {
		if count[id] < 800 {
			t.Errorf("unfair: %s", fmt.Sprint(count))
		}
	}
	if Pick(nil, 1) != "" {
		t.Error("a router out of nothing")
	}
}

func TestRouterThatLearnsOurInterestMayHaveRoutedPastUs(t *testing.T) {
	s := New(edge)
	take := func(n, applied, version uint64) Reason {
		return s.Take(start, decoded(beat("r", 1, n, applied)), version).Missed
	}
	for i, c := range []struct {
		applied, version uint64
		want             Reason
	}{
		{0, 3, ""}, // it is new
		{2, 3, ""},
		{3, 4, Learned},
		{4, 4, ""},
		{4, 9, ""}, // what is announced now is on its way
		{9, 9, ""},
		{0, 9, ""}, // it dropped us
		{8, 9, ""},
		{9, 9, Learned},
	} {
		if got := take(0, c.applied, c.version); got != c.want {
			t.Errorf("frame %d: %q, want %q", i, got, c.want)
		}
	}
	if v, _ := s.Applied(); v != 9 {
		t.Errorf("applied %d", v)
	}
	s.Doubt(11)
	if a, b, c := take(0, 9, 11), take(0, 11, 11), take(0, 11, 11); a != "" || b != Learned || c != "" {
		t.Errorf("in doubt: %q, %q, %q", a, b, c)
	}
}
