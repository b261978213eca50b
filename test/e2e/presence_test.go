package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// consumer folds what a Watch tells, and checks that joins and leaves of a member alternate and
// that versions grow.
type consumer struct {
	mu      sync.Mutex
	members map[string]bool // topic, client id and connection id
	version uint64
	changes int
	err     error // the end, or what was wrong
	done    chan struct{}
}

func name(m *pushmeshv1.Member) string {
	return fmt.Sprintf("%s %s %d", m.GetTopic(), m.GetClientId(), m.GetConnectionId())
}

// consume begins a Watch once that is allowed, and returns when the snapshot is there.
func consume(t *testing.T, conn *grpc.ClientConn, filter string) *consumer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &consumer{members: map[string]bool{}, done: make(chan struct{})}
	t.Cleanup(func() {
		cancel()
		<-c.done
	})
	begun := make(chan struct{})
	go func() {
		defer close(c.done)
		err := c.run(ctx, pushmeshv1.NewPresenceServiceClient(conn), filter, begun)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = err
	}()
	select {
	case <-begun:
	case <-c.done:
		t.Fatalf("watch %s: %v", filter, c.err)
	}
	return c
}

func (c *consumer) run(ctx context.Context, api pushmeshv1.PresenceServiceClient, filter string, begun chan struct{}) error {
	for {
		err := c.watch(ctx, api, filter, begun)
		e := code.From(err)
		if c.version > 0 || ctx.Err() != nil || e.Code != wirev1.Code_CODE_CONFLICT && e.RetryAfter == 0 {
			// a policy, or an edge, may not be known yet
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (c *consumer) watch(ctx context.Context, api pushmeshv1.PresenceServiceClient, filter string, begun chan struct{}) error {
	stream, err := api.Watch(ctx, &pushmeshv1.PresenceServiceWatchRequest{Filter: filter})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := c.take(resp); err != nil {
			return err
		}
		if resp.GetSnapshot().GetLast() {
			close(begun)
		}
	}
}

func (c *consumer) take(resp *pushmeshv1.PresenceServiceWatchResponse) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range resp.GetSnapshot().GetMembers() {
		if c.members[name(m)] {
			return fmt.Errorf("%s twice in the snapshot", name(m))
		}
		c.members[name(m)] = true
	}
	c.version = max(c.version, resp.GetSnapshot().GetVersion())
	for _, ch := range resp.GetChanges() {
		if ch.GetVersion() <= c.version {
			return fmt.Errorf("version %d after %d", ch.GetVersion(), c.version)
		}
		c.version = ch.GetVersion()
		c.changes++
		if m := name(ch.GetMember()); c.members[m] != ch.GetLeft() {
			return fmt.Errorf("%s: left %v, twice", m, ch.GetLeft())
		} else if ch.GetLeft() {
			delete(c.members, m)
		} else {
			c.members[m] = true
		}
	}
	return nil
}

// becomes waits until the members' client ids are these, a connection each.
func (c *consumer) becomes(t *testing.T, want ...string) {
	t.Helper()
	procmesh.Await(t, fmt.Sprint("members ", want), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err != nil {
			t.Fatalf("the watch ended: %v", c.err)
		}
		count := map[string]int{}
		for m := range c.members {
			count[strings.Fields(m)[1]]++
		}
		for _, w := range want {
			count[w]--
		}
		for _, n := range count {
			if n != 0 {
				return false
			}
		}
		return true
	})
}

// ends waits for the end of the watch.
func (c *consumer) ends(t *testing.T, want wirev1.Code) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(wireclient.Patience):
		t.Fatal("the watch does not end")
	}
	if got := code.Of(c.err); got != want {
		t.Fatalf("the watch ended with %v", c.err)
	}
}

func putPresence(t *testing.T, conn *grpc.ClientConn, prefix string, on bool) {
	t.Helper()
	if _, _, err := again(func() (*pushmeshv1.NamespaceServicePutResponse, error) {
		return pushmeshv1.NewNamespaceServiceClient(conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: &pushmeshv1.Policy{Presence: on}},
		})
	}); err != nil {
		t.Fatal(err)
	}
}

func enter(t *testing.T, addr string, hello *wirev1.Hello, filters ...string) *wireclient.Client {
	t.Helper()
	c, _ := wireclient.Connect(t, addr, hello)
	for i, f := range filters {
		c.Subscribe(&wirev1.Subscribe{Id: uint32(i + 1), Filter: f})
	}
	return c
}

// Who subscribes, by whatever kind of subscription, joins once; who goes, however, leaves once.
// Count and List say the same.
func TestJoinsAndLeavesAreWatched(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2})
	conn := m.Router(t)
	putPresence(t, conn, "crew", true)
	// three that match: one member
	a := enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "ann"}, "crew/1", "crew/+", "crew/#")
	w, all := consume(t, conn, "crew/1"), consume(t, conn, "crew/#")
	w.becomes(t, "ann")
	all.becomes(t, "ann")
	if _, err := pushmeshv1.NewPresenceServiceClient(conn).List(t.Context(), &pushmeshv1.PresenceServiceListRequest{Topic: "room/1"}); code.Of(err) != wirev1.Code_CODE_CONFLICT {
		t.Errorf("without presence: %v", err)
	}

	b := enter(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: "bob", Session: "phone"}, "crew/1", "crew/2")
	g, _ := wireclient.Connect(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: "cat"})
	g.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "crew/1", Group: "g"})
	enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "dan"}, "crew/#")
	w.becomes(t, "ann", "bob", "cat", "dan")
	all.becomes(t, "ann", "bob", "bob", "cat")
	checkLists(t, conn, "crew/1", "ann", "bob", "cat", "dan")

	// two are left that match
	a.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	all.becomes(t, "bob", "bob", "cat")
	a.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 2})
	a.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 3})
	w.becomes(t, "bob", "cat", "dan")
	g.Close()
	w.becomes(t, "bob", "dan")

	// The session moves to another edge: its older connection leaves.
	before := w.of(t, "bob")
	enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "bob", Session: "phone"}, "crew/1")
	procmesh.Await(t, "the session's move", func() bool {
		now := w.of(t, "bob")
		return len(now) == 1 && now[0] != before[0]
	})
	all.becomes(t, "bob")
	_ = b

	if _, _, err := again(func() (*pushmeshv1.DisconnectResponse, error) {
		return pushmeshv1.NewSessionServiceClient(conn).Disconnect(t.Context(), &pushmeshv1.DisconnectRequest{ClientId: "dan"})
	}); err != nil {
		t.Fatal(err)
	}
	w.becomes(t, "bob")
	putPresence(t, conn, "crew", false)
	w.ends(t, wirev1.Code_CODE_CONFLICT)
	all.ends(t, wirev1.Code_CODE_CONFLICT)
}

// Members of one group are in its topic on whatever edges they are, though one of these alone gets
// its messages.
func TestMembersOfAGroupOnTwoEdges(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2})
	conn := m.Router(t)
	putPresence(t, conn, "crew", true)
	for filter, topic := range map[string]string{"crew/1": "crew/1", "crew/+/log": "crew/2/log"} {
		w := consume(t, conn, topic)
		member := func(edge int, client string) *wireclient.Client {
			c, _ := wireclient.Connect(t, m.EdgeAddrs[edge], &wirev1.Hello{ClientId: client})
			c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: filter, Group: "g"})
			return c
		}
		ann := member(0, "ann")
		w.becomes(t, "ann")
		cat := member(1, "cat")
		w.becomes(t, "ann", "cat")
		checkLists(t, conn, topic, "ann", "cat")
		ann.Close()
		w.becomes(t, "cat")
		cat.Close()
		w.becomes(t)
	}
}

// of is a client's members, by name.
func (c *consumer) of(t *testing.T, client string) (all []string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		t.Fatalf("the watch ended: %v", c.err)
	}
	for m := range c.members {
		if strings.Fields(m)[1] == client {
			all = append(all, m)
		}
	}
	return all
}

// checkLists pages through the members, one at a time, and counts them.
func checkLists(t *testing.T, conn *grpc.ClientConn, topic string, want ...string) {
	t.Helper()
	api := pushmeshv1.NewPresenceServiceClient(conn)
	procmesh.Await(t, "every edge answers in time", func() bool {
		count, err := api.Count(t.Context(), &pushmeshv1.CountRequest{Topics: []string{topic}})
		if err != nil {
			t.Fatal(err)
		}
		if count.GetCounts()[0] != uint64(len(want)) {
			return false
		}
		got, last, silent := map[string]bool{}, "", count.GetSilentEdges()
		for token := ""; ; {
			page, err := api.List(t.Context(), &pushmeshv1.PresenceServiceListRequest{Topic: topic, Limit: 1, PageToken: token})
			if err != nil {
				return false
			}
			silent += page.GetSilentEdges()
			for _, m := range page.GetMembers() {
				at := fmt.Sprintf("%s %020d", m.GetEdge(), m.GetConnectionId())
				if at <= last || m.GetConnectedAt() == 0 || m.GetSubscribedAt() < m.GetConnectedAt() || (m.GetSession() == "phone") != (m.GetClientId() == "bob") {
					t.Fatalf("%v after %s", m, last)
				}
				got[m.GetClientId()], last = true, at
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		if silent > 0 {
			return false
		}
		for _, w := range want {
			if !got[w] {
				return false
			}
		}
		return len(got) == len(want)
	})
}

// Reports and leases that are lost on the way, and a NATS that goes and comes, lose and double
// nothing.
func TestWatchesSurviveLoss(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Proxy: true})
	conn := m.Router(t)
	putPresence(t, conn, "crew", true)
	w := consume(t, conn, "crew/#")
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 2))
	m.Proxy.Lose(func(subject string, _ []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.HasSuffix(subject, ".presence") && rnd.IntN(3) == 0 || strings.HasSuffix(subject, ".request") && rnd.IntN(5) == 0
	})
	var there []*wireclient.Client
	for i := range 60 {
		c := enter(t, m.EdgeAddrs[i%2], &wirev1.Hello{ClientId: fmt.Sprint("c", i)}, fmt.Sprint("crew/", i%3))
		if there = append(there, c); i%3 == 2 {
			there[i-1].Close()
		}
		if i == 30 {
			m.Proxy.SetDown(true)
			m.Proxy.SetDown(false)
		}
	}
	m.Proxy.Lose(nil)
	var want []string
	for i := range there {
		if i%3 != 1 {
			want = append(want, fmt.Sprint("c", i))
		}
	}
	w.becomes(t, want...)
}

// The members of an edge that was killed leave, once each; they join again where they come back. A
// router that is killed ends its watches, and the next one has the same members.
func TestMembersOfADeadEdgeLeave(t *testing.T) {
	t.Parallel()
	// of three the router would suspect itself first
	m := procmesh.Start(t, procmesh.Options{Edges: 4, Routers: 2})
	dial := func(i int) *grpc.ClientConn {
		conn, err := grpc.NewClient(m.RouterAddrs[i], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	first, second := dial(0), dial(1)
	procmesh.Await(t, "the policy", func() bool {
		_, err := pushmeshv1.NewNamespaceServiceClient(first).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: "crew", Policy: &pushmeshv1.Policy{Presence: true}},
		})
		return err == nil
	})
	for i := range 3 {
		enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: fmt.Sprint("a", i)}, "crew/1")
		enter(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: fmt.Sprint("b", i)}, "crew/1")
	}
	w, all := consume(t, first, "crew/1"), consume(t, second, "crew/+")
	w.becomes(t, "a0", "a1", "a2", "b0", "b1", "b2")
	m.Edges[0].Kill()
	w.becomes(t, "b0", "b1", "b2")
	all.becomes(t, "b0", "b1", "b2")
	if err := m.Edges[0].Start(); err != nil {
		t.Fatal(err)
	}
	m.WaitReady(t)
	enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "a0"}, "crew/1")
	w.becomes(t, "a0", "b0", "b1", "b2")
	all.becomes(t, "a0", "b0", "b1", "b2")
	m.Routers[0].Kill()
	<-w.done
	if w.err == nil || errors.Is(w.err, io.EOF) {
		t.Fatalf("the watch of a router that was killed ended with %v", w.err)
	}
	consume(t, second, "crew/1").becomes(t, "a0", "b0", "b1", "b2")
}
