package presencerooms

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/presence/room"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/presencewatch"
)

// policies never change.
type policies struct{ table *policy.Table }

func (p policies) Table() *policy.Table       { return p.table }
func (policies) OnChange(func(*policy.Table)) {}

// away are watches of a router that does not know every edge yet, or refuses for good.
type away struct{ why *code.Error }

func (a away) OpenNamed(context.Context, string) (*presencewatch.Snapshot, *presencewatch.Stream, error) {
	return nil, nil, a.why
}

// rooms that are started, and what they tell the edge e.
func rooms(t *testing.T, most int, why *code.Error) (*Rooms, chan *meshv1.RoomUpdate) {
	t.Helper()
	told := make(chan *meshv1.RoomUpdate, 100)
	r := New(Config{
		RouterID: "r", MaxRooms: most, MaxBytes: 1 << 20, Watches: away{why},
		Policies: policies{policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "crew", Policy: &pushmeshv1.Policy{ClientPresence: pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS}}})},
		Publish: func(_ string, data []byte) error {
			req := &meshv1.EdgeRequest{}
			if err := proto.Unmarshal(data, req); err != nil {
				return err
			}
			for _, u := range req.GetRoomFrame().GetUpdates() {
				told <- u
			}
			return nil
		},
	})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop(context.Background()) })
	return r, told
}

func want(topics ...string) *meshv1.RoomLease {
	l := &meshv1.RoomLease{}
	for _, t := range topics {
		l.Wants = append(l.Wants, &meshv1.RoomLease_Want{Topic: t})
	}
	return l
}

func TestRoomsAreBounded(t *testing.T) {
	r, told := rooms(t, 3, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Hour, "not yet"))
	e := presence.Source{ID: "e"}
	r.Lease(e, want("crew/1", "crew/2", "crew/3", "crew/4", "room/1"))
	if len(told) != 1 {
		// what this router does not show yet is not refused: the edge has seen that it is shown
		t.Fatalf("%d are refused", len(told))
	}
	if got := <-told; got.GetTopic() != "crew/4" || got.GetCode() != wirev1.Code_CODE_OVERLOADED || got.GetRetryAfterMs() == 0 {
		t.Fatalf("told %v", got)
	}
	r.Lease(e, &meshv1.RoomLease{Ended: []string{"crew/1", "nobody's"}})
	if r.Lease(e, want("crew/4", "crew/+")); len(told) != 0 {
		t.Fatal("there is room now")
	}
	r.Lease(presence.Source{ID: "not an id"}, want("crew/1"))
	if len(told) != 0 {
		t.Fatal("one without an id is answered")
	}
}

// A room whose members can't be watched ends with the reason, for every edge that has asked; also
// where an edge has no room for it now, and others can't know who has come and gone there.
func TestARoomEndsForItsReason(t *testing.T) {
	for _, why := range []*code.Error{
		code.New(wirev1.Code_CODE_MEMORY_BUDGET, "too many"),
		code.Retry(wirev1.Code_CODE_OVERLOADED, time.Hour, "an edge is at its limit"),
	} {
		r, told := rooms(t, 3, why)
		r.Lease(presence.Source{ID: "e"}, want("crew/1"))
		if got := <-told; got.GetCode() != why.Code {
			t.Fatalf("told %v", got)
		}
	}
}

// What edges are told is one frame for many updates, cut where it is long, and an empty one where
// there is nothing: that they were heard.
func TestFramesForEdges(t *testing.T) {
	var sent []*meshv1.RoomFrame
	r := New(Config{RouterID: "r", Publish: func(subject string, data []byte) error {
		req := &meshv1.EdgeRequest{}
		if err := proto.Unmarshal(data, req); err != nil || subject != "edge.e.request" || req.GetRoomFrame() == nil {
			t.Fatalf("%s: %v, %v", subject, req, err)
		}
		sent = append(sent, req.GetRoomFrame())
		return nil
	}})
	to := presence.Source{ID: "e", Incarnation: 9}
	r.send(to, [][]byte{})
	if len(sent) != 1 || sent[0].GetRouterId() != "r" || sent[0].GetEdgeIncarnation() != 9 || len(sent[0].GetUpdates()) != 0 {
		t.Fatalf("sent %v", sent)
	}
	sent = nil
	var all [][]byte
	for i := range 100 {
		all = append(all, encode(&meshv1.RoomUpdate{Topic: "room/1", Version: uint64(i), Members: []*meshv1.RoomUpdate_Member{{User: "ann", State: make([]byte, 10<<10)}}}))
	}
	r.send(to, all)
	n := uint64(0)
	for _, f := range sent {
		if size := proto.Size(f); size > frameBytes+100 {
			t.Errorf("a frame of %d bytes", size)
		}
		for _, u := range f.GetUpdates() {
			if u.GetVersion() != n {
				t.Fatalf("%d is sent in the place of %d", u.GetVersion(), n)
			}
			n++
		}
	}
	if n != 100 || len(sent) < 4 || len(sent) > 5 {
		t.Fatalf("%d updates in %d frames", n, len(sent))
	}
}

func TestWhatCannotBeEncodedIsRefused(t *testing.T) {
	u := &meshv1.RoomUpdate{}
	if err := proto.Unmarshal(encode(&meshv1.RoomUpdate{Topic: "room/1", Left: []string{"\xff"}}), u); err != nil || u.GetCode() != wirev1.Code_CODE_INTERNAL || u.GetTopic() != "room/1" {
		t.Fatalf("%v, %v", u, err)
	}
}

// An edge that asks no more is told no more, and a room without edges ends.
func TestLeasesEnd(t *testing.T) {
	r := New(Config{RouterID: "r"})
	ended := false
	x := &one{topic: "room/1", edges: map[presence.Source]*lease{}, cancel: func() { ended = true }}
	now := time.Now()
	a, b := presence.Source{ID: "a"}, presence.Source{ID: "b"}
	x.edges[a], x.edges[b] = &lease{until: now.Add(time.Second)}, &lease{until: now.Add(3 * time.Second)}
	r.byTopic["room/1"] = x
	r.expire(now.Add(2 * time.Second))
	if len(x.edges) != 1 || x.edges[b] == nil || ended {
		t.Fatalf("edges %v, ended %v", x.edges, ended)
	}
	r.expire(now.Add(4 * time.Second))
	if !ended || len(r.byTopic) != 0 {
		t.Fatal("a room without edges goes on")
	}
}

// What members take is counted for all rooms together, as long as a room lives.
func TestMembersOfRoomsAreWeighed(t *testing.T) {
	r := New(Config{RouterID: "r", MaxBytes: 4 << 10})
	now := time.Now()
	made := func(topic string) *one {
		x := &one{topic: topic, core: room.New(topic, 1, room.Rules{Members: 10}), cancel: func() {}}
		r.byTopic[topic] = x
		return x
	}
	a, b := made("crew/1"), made("crew/2")
	a.core.Put(now, 1, "ann", make([]byte, 1<<10), 1)
	b.core.Put(now, 2, "bob", make([]byte, 1<<10), 1)
	if !r.weigh(a) || !r.weigh(b) || r.bytes < 2<<10 {
		t.Fatalf("%d bytes", r.bytes)
	}
	b.core.Put(now, 3, "cat", make([]byte, 1<<10), 1)
	if r.weigh(b) {
		t.Fatalf("%d bytes fit", r.bytes)
	}
	b.core.Remove(now, 2)
	if !r.weigh(b) {
		t.Fatal("a room that shrinks ends")
	}
	r.end(a)
	r.end(b)
	if r.bytes != 0 {
		t.Fatalf("%d bytes of rooms that have ended", r.bytes)
	}
}
