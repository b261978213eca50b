package routerlink

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

func cast(id string, incarnation, number uint64) *meshv1.RouterFrame {
	return &meshv1.RouterFrame{RouterId: id, RouterIncarnation: incarnation, Broadcast: number, Deliveries: []*meshv1.Delivery{{Topic: "a"}}}
}

func after(f *meshv1.RouterFrame, broadcast uint64) *meshv1.RouterFrame {
	f.LastBroadcast = broadcast
	return f
}

// take is what an edge does with a frame.
func take(s *Set, f *meshv1.RouterFrame) Verdict {
	if in := decoded(f); in.Broadcast > 0 {
		return s.Broadcast(start, in)
	}
	return s.Take(start, decoded(f), 0)
}

func TestVerdictsOfBroadcasts(t *testing.T) {
	type frames = []*meshv1.RouterFrame
	for _, c := range []struct {
		name   string
		frames frames
		want   Verdict // of the last
	}{
		{"of a router that said nothing to us", frames{cast("r", 1, 7)}, Verdict{}},
		{"the next", frames{beat("r", 1, 0, 0), cast("r", 1, 1)}, Verdict{}},
		{"we came later", frames{cast("r", 1, 6), after(beat("r", 1, 0, 0), 6), cast("r", 1, 7)}, Verdict{}},
		{"the beat knows it", frames{beat("r", 1, 0, 0), cast("r", 1, 1), after(beat("r", 1, 0, 0), 1)}, Verdict{}},
		{"so does a batch", frames{beat("r", 1, 0, 0), cast("r", 1, 1), after(batch("r", 1, 1), 1)}, Verdict{}},
		{"middle lost", frames{beat("r", 1, 0, 0), cast("r", 1, 2)}, Verdict{Missed: Hole}},
		{"last lost", frames{beat("r", 1, 0, 0), after(beat("r", 1, 0, 0), 1)}, Verdict{Missed: Hole}},
		{"noticed once", frames{beat("r", 1, 0, 0), after(beat("r", 1, 0, 0), 1), after(beat("r", 1, 0, 0), 1)}, Verdict{}},
		{"twice", frames{beat("r", 1, 0, 0), cast("r", 1, 1), cast("r", 1, 1)}, Verdict{Repeated: true}},
		{"too late", frames{beat("r", 1, 0, 0), after(batch("r", 1, 1), 1), cast("r", 1, 1)}, Verdict{Repeated: true}},
		{"overtook a batch", frames{beat("r", 1, 0, 0), cast("r", 1, 1), batch("r", 1, 1)}, Verdict{Missed: Hole, Repeated: true}},
		{"a batch twice", frames{batch("r", 1, 1), batch("r", 1, 1)}, Verdict{Missed: Hole, Repeated: true}},
		{"from before its restart", frames{beat("r", 1, 0, 0), beat("r", 2, 0, 0), cast("r", 1, 9)}, Verdict{Foreign: true}},
		{"from before, whatever the numbers", frames{beat("r", 2, 0, 0), beat("r", 1, 0, 0), cast("r", 2, 9)}, Verdict{Foreign: true}},
		{"from after a restart that we don't know of", frames{beat("r", 1, 0, 0), cast("r", 2, 1)}, Verdict{}},
		{"and the word of that", frames{beat("r", 1, 0, 0), cast("r", 2, 1), after(beat("r", 2, 0, 0), 1)}, Verdict{Missed: Incarnation, Applied: true}},
		{"from there on", frames{after(beat("r", 1, 0, 0), 8), after(beat("r", 2, 0, 0), 1), cast("r", 2, 2)}, Verdict{}},
	} {
		s := New(edge)
		var got Verdict
		for _, f := range c.frames {
			got = take(s, f)
		}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestABroadcastIsNoSignOfLife(t *testing.T) {
	s := New(edge)
	s.Take(start, decoded(beat("r", 1, 0, 3)), 0)
	s.Broadcast(start, decoded(cast("r", 1, 1)))
	if n := s.Expire(start.Add(SilentAfter)); n != 1 {
		t.Error("a router that does not know this edge is waited for")
	}
	s.Take(start.Add(SilentAfter), decoded(beat("r", 2, 0, 3)), 0)
	if v := s.Broadcast(start.Add(SilentAfter), decoded(cast("r", 1, 2))); !v.Foreign {
		t.Errorf("from before: %+v", v)
	}
}

// A router sends a producer's messages to one topic both ways, at random. On the way frames are
// lost, doubled, and one subject overtakes the other. What is delivered is in order and comes once,
// and whatever is missing is known with the next frame for the edge.
func TestNothingIsMissedUnnoticed(t *testing.T) {
	for seed := range uint64(300) {
		schedule(t, seed)
	}
}

func schedule(t *testing.T, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 0))
	s := New(edge)
	var n, casts, seq, last uint64
	var delayed []*meshv1.RouterFrame // of one subject, overtaken by the other
	unnoticed, missed, came := false, 0, uint64(0)
	deliver := func(f *meshv1.RouterFrame) {
		v := take(s, f)
		if v.Missed != "" {
			unnoticed = false
			missed++
		}
		if v.Foreign || v.Repeated {
			return
		}
		for _, d := range f.GetDeliveries() {
			if d.GetSeq() <= last {
				t.Fatalf("seed %d: %d after %d", seed, d.GetSeq(), last)
			}
			last = d.GetSeq()
			came++
		}
	}
	next := func() *meshv1.RouterFrame {
		switch dice.IntN(3) {
		case 0:
			return after(beat("r", 1, n, 0), casts)
		case 1:
			n, seq = n+1, seq+1
			f := after(batch("r", 1, n), casts)
			f.Deliveries[0].Seq = seq
			return f
		}
		casts, seq = casts+1, seq+1
		f := cast("r", 1, casts)
		f.Deliveries[0].Seq = seq
		return f
	}
	deliver(beat("r", 1, 0, 0))
	for range 100 {
		f := next()
		if len(delayed) > 0 && (delayed[0].GetBroadcast() > 0) == (f.GetBroadcast() > 0) {
			delayed = append(delayed, f) // its subject keeps its own order
			if dice.IntN(2) == 0 {
				for _, d := range delayed {
					deliver(d)
				}
				delayed = nil
			}
			continue
		}
		switch dice.IntN(12) {
		case 0:
			unnoticed = unnoticed || len(f.GetDeliveries()) > 0
		case 1:
			deliver(f)
			deliver(f)
		case 2:
			if len(delayed) == 0 {
				delayed = append(delayed, f)
				continue
			}
			fallthrough
		default:
			deliver(f)
			if f.GetBroadcast() == 0 && unnoticed {
				t.Fatalf("seed %d: a frame was lost, and frame %v does not show it", seed, f)
			}
		}
	}
	for _, d := range delayed {
		deliver(d)
	}
	deliver(after(beat("r", 1, n, 0), casts))
	if unnoticed || came < seq && missed == 0 {
		t.Fatalf("seed %d: %d of %d came, and nobody knows", seed, came, seq)
	}
}

func FuzzDecode(f *testing.F) {
	full := &meshv1.RouterFrame{
		RouterId: "r", RouterIncarnation: 5, EdgeIncarnation: 7, N: 300, AppliedVersion: 9, CheckTopics: []string{"x/y", ""}, WantSnapshot: true, Leaving: true,
		Deliveries: []*meshv1.Delivery{{Topic: "t", Epoch: 1, Seq: 2, ExpiresAt: 3, Body: []byte("b")}, {}}, Broadcast: 3, LastBroadcast: 4, Events: 5,
	}
	data, err := proto.Marshal(full)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{0x32, 0xff})
	f.Add([]byte{0x0d, 1, 2, 3, 4, 0x08, 1}) // other types under known numbers
	f.Fuzz(func(t *testing.T, data []byte) {
		want, got := &meshv1.RouterFrame{}, &Frame{Deliveries: make([]Delivery, 1)}
		ok := got.Decode(data)
		if proto.Unmarshal(data, want) != nil {
			return // this one looks at less
		}
		if !ok {
			t.Fatal("the generated code can read it")
		}
		back := &meshv1.RouterFrame{
			RouterId: string(got.Router), RouterIncarnation: got.Incarnation, EdgeIncarnation: got.EdgeIncarnation, N: got.N, AppliedVersion: got.Applied,
			CheckTopics: got.CheckTopics, WantSnapshot: got.WantSnapshot, Leaving: got.Leaving, Broadcast: got.Broadcast, LastBroadcast: got.LastBroadcast,
			Events: uint32(got.Events),
		}
		for _, d := range got.Deliveries {
			back.Deliveries = append(back.Deliveries, &meshv1.Delivery{
				Topic: string(d.Topic), Epoch: d.Epoch, Seq: d.Seq, ExpiresAt: d.ExpiresAt, Body: d.Body,
			})
		}
		want.ProtoReflect().SetUnknown(nil)
		for _, d := range want.GetDeliveries() {
			d.ProtoReflect().SetUnknown(nil)
		}
		if !proto.Equal(want, back) {
			t.Fatalf("got %v, want %v", back, want)
		}
	})
}
