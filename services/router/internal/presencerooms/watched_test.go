package presencerooms

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/presence/room"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
	"github.com/pushmesh/pushmesh/services/router/internal/presencewatch"
)

type oneEdge struct{ edge interest.Edge }

func (o oneEdge) Check() error           { return nil }
func (o oneEdge) Edges() []interest.Edge { return []interest.Edge{o.edge} }
func (o oneEdge) Interested(dst []interest.Edge, _ string) []interest.Edge {
	return append(dst, o.edge)
}

type shown struct{}

func (shown) ListNamespaces(context.Context, *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error) {
	return &meshv1.ListNamespacesResponse{Version: 1, Namespaces: []*pushmeshv1.Namespace{{Prefix: "crew", Policy: &pushmeshv1.Policy{ClientPresence: pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS}}}}, nil
}

// preempted has the edge's members come between the opening of a stream and the next line.
type preempted struct {
	*presencewatch.Watches
	then func()
}

func (p preempted) OpenNamed(ctx context.Context, topic string) (*presencewatch.Snapshot, *presencewatch.Stream, error) {
	snapshot, stream, err := p.Watches.OpenNamed(ctx, topic)
	p.then()
	return snapshot, stream, err
}

// What a room tells first has the members of all edges that have told of theirs.
func TestARoomBeginsWithWhatEdgesHaveToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policies := policy.NewWatch(shown{}, nil, "router.r", slog.New(slog.DiscardHandler))
		if err := policies.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w := presencewatch.New(presencewatch.Config{
			RouterID: "r", Incarnation: 3, Edges: oneEdge{interest.Edge{ID: "e", Incarnation: 7}}, Bus: bus.New(bus.Config{}), Policies: policies, MaxStreams: 1, MaxMembers: 1000, MaxQueued: 1000,
		})
		ctx, cancel := context.WithCancel(t.Context())
		go lifecycle.Every(ctx, 100*time.Millisecond, w.Tick)
		told := make(chan *meshv1.RoomUpdate, 100)
		r := New(Config{
			RouterID: "r", MaxRooms: 10, MaxBytes: 1 << 20, Policies: policies,
			Watches: preempted{w, func() {
				data, _ := proto.Marshal(&meshv1.PresenceFrame{EdgeId: "e", EdgeIncarnation: 7, RouterIncarnation: 3, Reports: []*meshv1.PresenceReport{{
					Kind: meshv1.PresenceReport_KIND_LAST, Watch: 1, Ask: 2, Serial: 1, N: 1, Changes: []*meshv1.PresenceChange{{Member: &meshv1.PresenceMember{ConnectionId: 5, User: "ann"}}},
				}, {
					Kind: meshv1.PresenceReport_KIND_LAST, Watch: 1, Ask: 1, Serial: 1, N: 1, Changes: []*meshv1.PresenceChange{{Member: &meshv1.PresenceMember{ConnectionId: 5, User: "ann"}}},
				}}})
				w.Receive(data)
			}},
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
		r.Lease(presence.Source{ID: "e", Incarnation: 7}, &meshv1.RoomLease{Wants: []*meshv1.RoomLease_Want{{Topic: "crew/1"}}})
		first := <-told
		if first.GetCount() != 1 || len(first.GetMembers()) != 1 {
			t.Errorf("the edge has told of ann before the room began, and the room begins with %v (then: %v)", first, <-told)
		}
		_ = r.Stop(context.Background())
		cancel()
		_ = policies.Stop(context.Background())
	})
}

// A router that drains, which takes up to two thirds of its time to stop, goes on to tell: edges
// ask another one once it leaves.
func TestARouterThatDrainsDoesNotPretend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policies := policy.NewWatch(shown{}, nil, "router.r", slog.New(slog.DiscardHandler))
		if err := policies.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w := presencewatch.New(presencewatch.Config{
			RouterID: "r", Incarnation: 3, Edges: oneEdge{interest.Edge{ID: "e", Incarnation: 7}}, Bus: bus.New(bus.Config{}), Policies: policies, MaxStreams: 1, MaxMembers: 1000, MaxQueued: 1000,
		})
		ctx, cancel := context.WithCancel(t.Context())
		go lifecycle.Every(ctx, 100*time.Millisecond, w.Tick)
		users := make(chan string, 100)
		r := New(Config{
			RouterID: "r", MaxRooms: 10, MaxBytes: 1 << 20, Policies: policies, Watches: w,
			Publish: func(_ string, data []byte) error {
				req := &meshv1.EdgeRequest{}
				if err := proto.Unmarshal(data, req); err != nil {
					return err
				}
				for _, u := range req.GetRoomFrame().GetUpdates() {
					for _, m := range u.GetMembers() {
						users <- m.GetUser()
					}
				}
				return nil
			},
		})
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		from := presence.Source{ID: "e", Incarnation: 7}
		want := &meshv1.RoomLease{Wants: []*meshv1.RoomLease_Want{{Topic: "crew/1"}}}
		report := func(kind meshv1.PresenceReport_Kind, n uint64, user string) {
			for ask := range uint64(3) {
				data, _ := proto.Marshal(&meshv1.PresenceFrame{EdgeId: "e", EdgeIncarnation: 7, RouterIncarnation: 3, Reports: []*meshv1.PresenceReport{{
					Kind: kind, Watch: 1, Ask: ask + 1, Serial: 1, N: n, Changes: []*meshv1.PresenceChange{{Member: &meshv1.PresenceMember{ConnectionId: n, User: user}}},
				}}})
				w.Receive(data)
			}
		}
		told := func(want string) {
			t.Helper()
			if got := <-users; got != want {
				t.Fatalf("told of %s, want %s", got, want)
			}
		}
		r.Lease(from, want)
		synctest.Wait()
		report(meshv1.PresenceReport_KIND_LAST, 1, "ann")
		told("ann")
		report(meshv1.PresenceReport_KIND_CHANGES, 2, "bob")
		told("bob")
		w.Drain() // as the front does when it stops, which then waits for calls
		report(meshv1.PresenceReport_KIND_CHANGES, 3, "cat")
		told("cat")
		if _, _, err := w.Open(ctx, "crew/1"); code.From(err).Code != wirev1.Code_CODE_DRAINING {
			t.Errorf("a backend's watch: %v", err)
		}
		_ = r.Stop(context.Background())
		cancel()
		_ = policies.Stop(context.Background())
	})
}

// A huge topic, which one client watches, does not end the small ones of others: it ends, and is
// refused for a while.
func TestAHugeTopicDoesNotEndSmallOnes(t *testing.T) {
	refused := map[string]int{}
	table := policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "crew", Policy: &pushmeshv1.Policy{ClientPresence: pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS}}})
	r := New(Config{RouterID: "r", MaxRooms: 10, MaxBytes: 100*520 + 300, Policies: policies{table}, Publish: func(_ string, data []byte) error {
		req := &meshv1.EdgeRequest{}
		if err := proto.Unmarshal(data, req); err != nil {
			return err
		}
		for _, u := range req.GetRoomFrame().GetUpdates() {
			if u.GetCode() == wirev1.Code_CODE_OVERLOADED {
				refused[u.GetTopic()]++
			}
		}
		return nil
	}})
	e := presence.Source{ID: "e"}
	made := func(name string) *one {
		x := &one{topic: name, core: room.New(name, 1, room.Rules{Members: 200}), edges: map[presence.Source]*lease{e: {}}, cancel: func() {}}
		r.byTopic[name] = x
		return x
	}
	joined := func(x *one, from, n int) error {
		var events []presence.Event
		for i := range n {
			events = append(events, presence.Event{Member: &presence.Member{ConnectionId: uint64(from + i), User: "u"}})
		}
		return r.take(x, events)
	}
	huge, small := made("crew/huge"), made("crew/small")
	for i, err := range []error{joined(small, 1000, 2), joined(huge, 1, 98), joined(small, 2000, 3)} {
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if refused["crew/huge"] != 1 || refused["crew/small"] != 0 || r.byTopic["crew/small"] == nil {
		t.Fatalf("refused %v", refused)
	}
	if err := joined(huge, 500, 1); err != nil {
		t.Fatalf("of one that has ended: %v", err)
	}
	r.Lease(e, want("crew/huge"))
	if refused["crew/huge"] != 2 {
		t.Fatal("it may grow again at once")
	}
	r.expire(time.Now().Add(largeFor + time.Second))
	if len(r.tooLarge) != 0 {
		t.Fatal("it is refused for ever")
	}
	huge = made("crew/huge")
	if joined(huge, 1, 120) == nil {
		t.Fatal("one that is larger than all may be goes on")
	}
}
