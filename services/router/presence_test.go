package router

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// watched is a router whose namespace crew has presence, and an edge that reports members of
// crew/1.
func watched(t *testing.T, change func(*Settings)) (*mesh, *fakeEdge, pushmeshv1.PresenceServiceClient) {
	t.Helper()
	m := startMesh(t, change)
	e := startEdge(t, m.nats.ClientURL(), "a", "r1")
	e.tellsMembers()
	e.want("crew/1")
	setPresence(t, m, true)
	return m, e, pushmeshv1.NewPresenceServiceClient(m.conn)
}

// setPresence changes the policy and waits until the router knows.
func setPresence(t *testing.T, m *mesh, on bool) {
	t.Helper()
	if _, err := pushmeshv1.NewNamespaceServiceClient(m.conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
		Namespace: &pushmeshv1.Namespace{Prefix: "crew", Policy: &pushmeshv1.Policy{Presence: on}},
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy reaches the router", func() error {
		_, err := pushmeshv1.NewPresenceServiceClient(m.conn).List(t.Context(), &pushmeshv1.PresenceServiceListRequest{Topic: "crew/9"})
		if (err == nil) != on {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// begin watches and takes the snapshot.
func begin(t *testing.T, api pushmeshv1.PresenceServiceClient, filter string) (pushmeshv1.PresenceService_WatchClient, *pushmeshv1.PresenceServiceWatchResponse_Snapshot) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := api.Watch(ctx, &pushmeshv1.PresenceServiceWatchRequest{Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil || !resp.GetSnapshot().GetLast() {
		t.Fatalf("got %v, %v", resp, err)
	}
	return stream, resp.GetSnapshot()
}

// end reads to the end.
func end(stream pushmeshv1.PresenceService_WatchClient) (changes int, why *code.Error) {
	for {
		resp, err := stream.Recv()
		if err != nil {
			return changes, code.From(err)
		}
		changes += len(resp.GetChanges())
	}
}

func TestWatchesAreBounded(t *testing.T) {
	t.Parallel()
	_, e, api := watched(t, func(s *Settings) { s.PresenceWatches, s.PresenceMembers = 1, 10 })
	refused := func(filter string, want wirev1.Code) {
		t.Helper()
		eventually(t, "refused", func() error { // a watch that ended may not be gone yet
			stream, err := api.Watch(t.Context(), &pushmeshv1.PresenceServiceWatchRequest{Filter: filter})
			if err == nil {
				_, err = stream.Recv()
			}
			if code.Of(err) != want {
				return fmt.Errorf("%s: got %w, want %v", filter, err, want)
			}
			return nil
		})
	}
	refused("a//b", wirev1.Code_CODE_BAD_TOPIC)
	refused("room/1", wirev1.Code_CODE_CONFLICT)
	refused("room/+", wirev1.Code_CODE_CONFLICT)
	stream, snapshot := begin(t, api, "crew/1")
	if len(snapshot.GetMembers()) != 0 || snapshot.GetSilentEdges() != 0 {
		t.Errorf("got %v", snapshot)
	}
	refused("crew/2", wirev1.Code_CODE_OVERLOADED)
	e.change("crew/1", presence.Joined, 1, 2, 3)
	for n := 0; n < 3; {
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range resp.GetChanges() {
			if n++; c.GetVersion() != snapshot.GetVersion()+uint64(n) || c.GetMember().GetEdge() != "a" || c.GetMember().GetTopic() != "crew/1" || c.GetLeft() {
				t.Errorf("change %d: %v, after %d", n, c, snapshot.GetVersion())
			}
		}
	}
	e.change("crew/1", presence.Joined, 4, 5, 6, 7, 8, 9, 10, 11)
	if _, why := end(stream); why.Code != wirev1.Code_CODE_MEMORY_BUDGET || why.RetryAfter != 0 {
		t.Errorf("with 11 members: %v", why)
	}
	refused("crew/1", wirev1.Code_CODE_OK) // its place is free
}

// A caller that does not read is told so at the end, and no other notices.
func TestASlowWatchEnds(t *testing.T) {
	t.Parallel()
	m, e, api := watched(t, func(s *Settings) { s.PresenceQueue = 2000 })
	slow, _ := begin(t, api, "crew/1")
	quick, _ := begin(t, api, "crew/1")
	ids := make([]uint64, 1000)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	for kind, round := presence.Joined, 0; ; round++ {
		if round == 2000 {
			t.Fatal("it goes on")
		}
		e.change("crew/1", kind, ids...)
		kind = presence.Left - kind
		for n := 0; n < len(ids); { // that one has all of it
			resp, err := quick.Recv()
			if err != nil {
				t.Fatal(err)
			}
			n += len(resp.GetChanges())
		}
		if strings.Contains(string(m.get(t, "/metrics")), `presence_ended_total{code="SLOW_CONSUMER"} 1`) {
			break
		}
	}
	n, why := end(slow)
	if why.Code != wirev1.Code_CODE_SLOW_CONSUMER || why.RetryAfter == 0 || status.Code(why) != codes.ResourceExhausted {
		t.Errorf("after %d changes: %v", n, why)
	}
}

// A router that stops says so, and so does one whose policy changes.
func TestWatchesEndWithTheirReason(t *testing.T) {
	t.Parallel()
	m, _, api := watched(t, nil)
	one, _ := begin(t, api, "crew/1")
	all, _ := begin(t, api, "#")
	setPresence(t, m, false)
	for _, stream := range []pushmeshv1.PresenceService_WatchClient{one, all} {
		if _, why := end(stream); why.Code != wirev1.Code_CODE_CONFLICT {
			t.Errorf("without presence: %v", why)
		}
	}
	setPresence(t, m, true)
	one, _ = begin(t, api, "crew/1")
	m.router.front.presence.Drain() // as the front does when it stops
	if _, why := end(one); why.Code != wirev1.Code_CODE_DRAINING || why.RetryAfter == 0 {
		t.Errorf("stopped: %v", why)
	}
}

// The members of an edge that says farewell, or is another by now, leave; those of one that comes
// later join.
func TestEdgesComeAndGoUnderAWatch(t *testing.T) {
	t.Parallel()
	m, e, api := watched(t, nil)
	stream, _ := begin(t, api, "crew/1")
	there := map[string]bool{}
	until := func(what string, n int) {
		t.Helper()
		for len(there) != n {
			resp, err := stream.Recv()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for _, c := range resp.GetChanges() {
				k := fmt.Sprint(c.GetMember().GetEdge(), c.GetMember().GetConnectionId())
				if there[k] != c.GetLeft() {
					t.Fatalf("%s: %v twice", what, c)
				}
				if there[k] = !c.GetLeft(); c.GetLeft() {
					delete(there, k)
				}
			}
		}
	}
	e.change("crew/1", presence.Joined, 1, 2)
	until("two join", 2)
	b := startEdge(t, m.nats.ClientURL(), "b", "r1")
	b.tellsMembers()
	b.want("crew/1")
	eventually(t, "the other edge is asked", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.reporter.Stats().Watches == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	b.change("crew/1", presence.Joined, 1)
	until("another joins", 3)
	e.read(func(e *fakeEdge) {
		e.mute = true
		e.publish(bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: e.id, EdgeIncarnation: e.incarnation, Leaving: true})
	})
	until("an edge leaves", 1)
}

func TestMembersAreListedInOrder(t *testing.T) {
	t.Parallel()
	m, a, api := watched(t, nil)
	want := ""
	for _, e := range []*fakeEdge{a, startEdge(t, m.nats.ClientURL(), "b", "r1"), startEdge(t, m.nats.ClientURL(), "c", "r1")} {
		if e != a {
			e.want("crew/1")
		}
		e.read(func(e *fakeEdge) {
			e.members = map[string][]*meshv1.PresenceMember{"crew/1": {{ConnectionId: 3}, {ConnectionId: 5}, {ConnectionId: 9}}}
		})
		want += fmt.Sprintf("%s3 %s5 %s9 ", e.id, e.id, e.id)
	}
	for limit := range uint32(11) {
		if limit == 0 {
			continue
		}
		eventually(t, "every edge answers in time", func() error {
			got, silent := "", uint32(0)
			for token := ""; ; {
				resp, err := api.List(t.Context(), &pushmeshv1.PresenceServiceListRequest{Topic: "crew/1", Limit: limit, PageToken: token})
				if err != nil {
					return err
				}
				if len(resp.GetMembers()) > int(limit) {
					t.Fatalf("%d members of %d", len(resp.GetMembers()), limit)
				}
				for _, member := range resp.GetMembers() {
					got += fmt.Sprint(member.GetEdge(), member.GetConnectionId(), " ")
				}
				silent += resp.GetSilentEdges()
				if token = resp.GetNextPageToken(); token == "" {
					break
				}
			}
			if silent > 0 || got != want {
				return fmt.Errorf("limit %d: %q, %d silent", limit, got, silent)
			}
			return nil
		})
	}
	a.read(func(e *fakeEdge) { e.members = nil })
	eventually(t, "a silent edge is said", func() error {
		resp, err := api.List(t.Context(), &pushmeshv1.PresenceServiceListRequest{Topic: "crew/1"})
		if err == nil && (resp.GetSilentEdges() != 1 || len(resp.GetMembers()) != 6) {
			err = fmt.Errorf("got %v", resp)
		}
		return err
	})
	for _, req := range []*pushmeshv1.PresenceServiceListRequest{{Topic: "crew/1", Limit: 1001}, {Topic: "crew/1", PageToken: "no"}} {
		if _, err := api.List(t.Context(), req); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%v: %v", req, err)
		}
	}
	if _, err := api.List(t.Context(), &pushmeshv1.PresenceServiceListRequest{Topic: "crew/+"}); code.Of(err) != wirev1.Code_CODE_BAD_TOPIC {
		t.Errorf("a filter: %v", err)
	}
}
