package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/presence"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/link"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// seer watches who is in a topic over the wire, and checks that joins and leaves of a user
// alternate.
type seer struct {
	t *testing.T
	c *wireclient.Client

	mu      sync.Mutex
	begun   bool
	members map[string]string
	joins   map[string]int
	leaves  map[string]int
	count   uint64
	counts  bool
	told    int
	ended   *wirev1.Unsubscribed
	wrong   error
}

// see begins to watch a topic.
func see(t *testing.T, addr, client, topic string) *seer {
	t.Helper()
	c, _ := wireclient.Connect(t, addr, &wirev1.Hello{ClientId: client})
	s := &seer{t: t, c: c, members: map[string]string{}, joins: map[string]int{}, leaves: map[string]int{}}
	c.Send(wirev1.FrameType_FRAME_TYPE_WATCH, &wirev1.Watch{Id: 1, Topic: topic})
	go s.read(topic)
	procmesh.Await(t, "the first answer", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.begun || s.ended != nil || s.wrong != nil
	})
	return s
}

func (s *seer) read(topic string) {
	for {
		ft, body, err := s.c.Next(time.Hour)
		if err != nil {
			return // the test is over
		}
		m, err := wireclient.Frame(ft, body)
		s.mu.Lock()
		switch m := m.(type) {
		case *wirev1.Presence:
			s.take(topic, m)
		case *wirev1.Unsubscribed:
			s.ended = m
		default:
			s.wrong = fmt.Errorf("%v %v, %w", ft, m, err)
		}
		s.mu.Unlock()
	}
}

func (s *seer) take(topic string, p *wirev1.Presence) {
	s.told++
	if p.GetTopic() != topic || !s.begun && !p.GetSnapshot() {
		s.wrong = fmt.Errorf("first told %v", p)
	}
	was := maps.Clone(s.members)
	first := !s.begun || s.counts
	s.begun, s.count, s.counts = true, p.GetCount(), p.GetCountsOnly()
	if p.GetSnapshot() {
		clear(s.members)
	}
	for _, m := range p.GetMembers() {
		if _, had := was[m.GetUser()]; !had && !first {
			s.joins[m.GetUser()]++
		}
		s.members[m.GetUser()] = string(m.GetState())
	}
	for _, user := range p.GetLeft() {
		if _, had := was[user]; !had {
			s.wrong = fmt.Errorf("%s left, and was not there", user)
		}
		s.leaves[user]++
		delete(s.members, user)
	}
}

// sees waits until these users are there, and no others.
func (s *seer) sees(users ...string) {
	s.t.Helper()
	slices.Sort(users)
	procmesh.Await(s.t, fmt.Sprint("users ", users), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.wrong != nil {
			s.t.Fatal(s.wrong)
		}
		return !s.counts && s.count == uint64(len(users)) && slices.Equal(slices.Sorted(maps.Keys(s.members)), users)
	})
}

// counted waits until a count is told, and no names.
func (s *seer) counted(n uint64) {
	s.t.Helper()
	procmesh.Await(s.t, fmt.Sprint("a count of ", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.wrong != nil {
			s.t.Fatal(s.wrong)
		}
		return s.counts && s.count == n && len(s.members) == 0
	})
}

// says waits until a user says something of itself.
func (s *seer) says(user, state string) {
	s.t.Helper()
	procmesh.Await(s.t, fmt.Sprintf("%s says %q", user, state), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.members[user] == state
	})
}

// once checks that a user was told of so often.
func (s *seer) once(user string, joins, leaves int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joins[user] != joins || s.leaves[user] != leaves {
		s.t.Fatalf("%s: %d joins and %d leaves were told, want %d and %d", user, s.joins[user], s.leaves[user], joins, leaves)
	}
}

func (s *seer) over(why wirev1.Code) {
	s.t.Helper()
	procmesh.Await(s.t, "the end of the watch", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.ended != nil
	})
	if s.ended.GetCode() != why || s.ended.GetReason() == "" {
		s.t.Fatalf("the watch ended with %v", s.ended)
	}
}

func putClientPresence(t *testing.T, conn *grpc.ClientConn, prefix string, p *pushmeshv1.Policy) {
	t.Helper()
	if _, _, err := again(func() (*pushmeshv1.NamespaceServicePutResponse, error) {
		return pushmeshv1.NewNamespaceServiceClient(conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: p}})
	}); err != nil {
		t.Fatal(err)
	}
}

var showsMembers = &pushmeshv1.Policy{ClientPresence: pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS}

// Tabs of a user, on whatever edges, are one member, also in groups; who only watches, or has
// wildcards, is none.
func TestClientsSeeWhoIsInATopic(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2})
	conn := m.Router(t)
	putClientPresence(t, conn, "crew", showsMembers)
	enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "ann"}, "crew/1")
	s := see(t, m.EdgeAddrs[1], "eve", "crew/1")
	s.sees("client:ann")

	b := enter(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: "bob"}, "crew/1")
	b2 := enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "bob"}, "crew/1")
	enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "mod"}, "crew/#")
	g, _ := wireclient.Connect(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: "cat"})
	g.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "crew/1", Group: "g"})
	s.sees("client:ann", "client:bob", "client:cat")
	other := see(t, m.EdgeAddrs[0], "dan", "crew/1")
	other.sees("client:ann", "client:bob", "client:cat")
	for i, name := range []string{"dog", "emu"} { // one edge dispatches, and both have members
		c, _ := wireclient.Connect(t, m.EdgeAddrs[i], &wirev1.Hello{ClientId: name})
		c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "crew/2", Group: "g"})
	}
	see(t, m.EdgeAddrs[0], "fay", "crew/2").sees("client:dog", "client:emu")

	// a tab that goes is nothing to others
	b.Close()
	g.Close()
	s.sees("client:ann", "client:bob")
	other.sees("client:ann", "client:bob")
	b2.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	s.sees("client:ann")
	for _, w := range []*seer{s, other} {
		w.sees("client:ann")
	}
	s.once("client:bob", 1, 1)
	s.once("client:cat", 1, 1)

	// it may be ended, and begun again
	s.c.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	procmesh.Await(t, "Unsubscribed", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.ended != nil && s.ended.GetCode() == wirev1.Code_CODE_OK
	})
	putClientPresence(t, conn, "crew", &pushmeshv1.Policy{})
	other.over(wirev1.Code_CODE_FORBIDDEN)
}

func TestWatchesOfClientsAreRefusedForTheirReasons(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	conn := m.Router(t)
	putClientPresence(t, conn, "crew", showsMembers)
	putClientPresence(t, conn, "many", &pushmeshv1.Policy{ClientPresence: pushmeshv1.ClientPresence_CLIENT_PRESENCE_COUNTS})
	c, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "eve"})
	procmesh.Await(t, "the policies", func() bool {
		c.Send(wirev1.FrameType_FRAME_TYPE_STATE, &wirev1.State{Id: 9, Topic: "crew/1", State: []byte("here")})
		ft, _, err := c.Next(wireclient.Patience)
		if err != nil {
			t.Fatal(err)
		}
		return ft == wirev1.FrameType_FRAME_TYPE_STATED
	})
	for i, r := range []struct {
		ft   wirev1.FrameType
		m    proto.Message
		want wirev1.Code
		text string
	}{
		{wirev1.FrameType_FRAME_TYPE_WATCH, &wirev1.Watch{Id: 1, Topic: "crew/+"}, wirev1.Code_CODE_BAD_TOPIC, "wildcards"},
		{wirev1.FrameType_FRAME_TYPE_WATCH, &wirev1.Watch{Id: 1, Topic: ""}, wirev1.Code_CODE_BAD_TOPIC, ""},
		{wirev1.FrameType_FRAME_TYPE_WATCH, &wirev1.Watch{Id: 1, Topic: "room/1"}, wirev1.Code_CODE_FORBIDDEN, "namespace:room"},
		{wirev1.FrameType_FRAME_TYPE_WATCH, &wirev1.Watch{Id: 1, Topic: "what/ever"}, wirev1.Code_CODE_FORBIDDEN, "--client-presence"},
		{wirev1.FrameType_FRAME_TYPE_STATE, &wirev1.State{Id: 1, Topic: "room/1"}, wirev1.Code_CODE_FORBIDDEN, "namespace:room"},
		{wirev1.FrameType_FRAME_TYPE_STATE, &wirev1.State{Id: 1, Topic: "many/1"}, wirev1.Code_CODE_FORBIDDEN, "counts"},
		{wirev1.FrameType_FRAME_TYPE_STATE, &wirev1.State{Id: 1, Topic: "crew/1", State: make([]byte, 1025)}, wirev1.Code_CODE_INVALID_ARGUMENT, "1025 bytes"},
	} {
		c.Send(r.ft, r.m)
		if e := c.Error(); e.GetCode() != r.want || e.GetRef() != 1 || !strings.Contains(e.GetMessage(), r.text) {
			t.Errorf("%d: %v is refused with %v", i, r.m, e)
		}
	}
	c.Send(wirev1.FrameType_FRAME_TYPE_WATCH, &wirev1.Watch{Id: 1, Topic: "crew/1"})
	c.Send(wirev1.FrameType_FRAME_TYPE_WATCH, &wirev1.Watch{Id: 2, Topic: "crew/1"})
	if e := c.Error(); e.GetCode() != wirev1.Code_CODE_CONFLICT || e.GetRef() != 2 {
		t.Errorf("a second watch of a topic: %v", e)
	}
	if p := wireclient.Expect(c, wirev1.FrameType_FRAME_TYPE_PRESENCE, &wirev1.Presence{}); p.GetCount() != 0 || !p.GetSnapshot() {
		t.Errorf("who only watches is nobody there: %v", p)
	}
}

// A large room is counted, and has names again once it is smaller.
func TestALargeRoomIsCounted(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2})
	putClientPresence(t, m.Router(t), "crew", &pushmeshv1.Policy{ClientPresence: pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS, ClientPresenceMembers: 8})
	s := see(t, m.EdgeAddrs[0], "eve", "crew/1")
	var users []string
	var there []*wireclient.Client
	for i := range 8 {
		users = append(users, fmt.Sprint("client:u", i))
		there = append(there, enter(t, m.EdgeAddrs[i%2], &wirev1.Hello{ClientId: fmt.Sprint("u", i)}, "crew/1"))
	}
	s.sees(users...)
	for i := range 12 {
		there = append(there, enter(t, m.EdgeAddrs[i%2], &wirev1.Hello{ClientId: fmt.Sprint("v", i)}, "crew/1"))
	}
	s.counted(20)
	see(t, m.EdgeAddrs[1], "dan", "crew/1").counted(20)
	for _, c := range there[6:] {
		c.Close()
	}
	s.sees(users[:6]...)
	for _, user := range users {
		s.once(user, 1, 0)
	}
}

// A topic in which very many clients of one edge have the longest states is told like any other.
func TestManyLongStates(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2})
	putClientPresence(t, m.Router(t), "crew", showsMembers)
	const users = 1000
	for i := range users {
		c := enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: fmt.Sprint("u", i)}, "crew/1")
		c.Send(wirev1.FrameType_FRAME_TYPE_STATE, &wirev1.State{Topic: "crew/1", State: make([]byte, 1024)})
	}
	see(t, m.EdgeAddrs[1], "eve", "crew/1").counted(users)
}

// What users say of themselves is seen by others; of several tabs the newest counts.
func TestStatesAreSeen(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2})
	putClientPresence(t, m.Router(t), "crew", showsMembers)
	s := see(t, m.EdgeAddrs[0], "eve", "crew/1")
	tabs := []*wireclient.Client{
		enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "ann"}, "crew/1"),
		enter(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: "ann"}, "crew/1"),
	}
	for i, state := range []string{"typing", "away", "", strings.Repeat("x", 1024)} {
		tab := tabs[i%2]
		tab.Send(wirev1.FrameType_FRAME_TYPE_STATE, &wirev1.State{Id: 7, Topic: "crew/1", State: []byte(state)})
		wireclient.Expect(tab, wirev1.FrameType_FRAME_TYPE_STATED, &wirev1.Stated{})
		s.says("client:ann", state)
	}
	tabs[1].Close()
	s.says("client:ann", "") // what the other tab said last
	s.once("client:ann", 1, 0)
}

// Whatever is lost between the tiers, clients are told the truth in the end, and nothing twice.
func TestPresenceOfClientsSurvivesLoss(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2, Routers: 2, Proxy: true})
	putClientPresence(t, m.Router(t), "crew", showsMembers)
	watchers := []*seer{see(t, m.EdgeAddrs[0], "eve", "crew/1"), see(t, m.EdgeAddrs[1], "dan", "crew/1")}
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 2))
	m.Proxy.Lose(func(subject string, _ []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		return (strings.HasSuffix(subject, ".presence") || strings.HasSuffix(subject, ".request")) && rnd.IntN(4) == 0
	})
	var want []string
	for i := range 40 {
		c := enter(t, m.EdgeAddrs[i%2], &wirev1.Hello{ClientId: fmt.Sprint("c", i)}, "crew/1")
		if i%3 == 2 {
			c.Close()
		} else {
			want = append(want, fmt.Sprint("client:c", i))
		}
		if i == 20 {
			m.Proxy.SetDown(true)
			m.Proxy.SetDown(false)
		}
	}
	m.Proxy.Lose(nil)
	for _, s := range watchers {
		s.sees(want...)
		for _, user := range want {
			s.once(user, 1, 0)
		}
	}
}

// The users of an edge that is killed leave once, also where the router dies that told of them.
func TestUsersOfADeadEdgeLeaveOnce(t *testing.T) {
	t.Parallel()
	// of three the router would suspect itself first
	m := procmesh.Start(t, procmesh.Options{Edges: 4, Routers: 2})
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	procmesh.Await(t, "the policy", func() bool {
		_, err := pushmeshv1.NewNamespaceServiceClient(conn).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
			Namespace: &pushmeshv1.Namespace{Prefix: "crew", Policy: showsMembers},
		})
		return err == nil
	})
	for i := range 3 {
		enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: fmt.Sprint("a", i)}, "crew/1")
		enter(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: fmt.Sprint("b", i)}, "crew/1")
	}
	enter(t, m.EdgeAddrs[0], &wirev1.Hello{ClientId: "b0"}, "crew/1") // a tab of one that stays
	s := see(t, m.EdgeAddrs[2], "eve", "crew/1")
	s.sees("client:a0", "client:a1", "client:a2", "client:b0", "client:b1", "client:b2")
	m.Edges[0].Kill()
	s.sees("client:b0", "client:b1", "client:b2")
	for i, r := range slices.Concat(m.Routers, m.Routers) {
		if i < len(m.Routers) {
			r.Kill()
		} else if err := r.Stop(wireclient.Patience); err != nil {
			t.Fatal(err)
		}
		c := enter(t, m.EdgeAddrs[1], &wirev1.Hello{ClientId: "c"}, "crew/1")
		s.sees("client:b0", "client:b1", "client:b2", "client:c") // from the other one
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		procmesh.Await(t, r.Name+" is ready", func() bool { return r.Ready(t.Context()) == nil })
		c.Close()
		s.sees("client:b0", "client:b1", "client:b2")
	}
	for _, a := range []string{"client:a0", "client:a1", "client:a2"} {
		s.once(a, 0, 1)
	}
	s.once("client:b0", 0, 0)
	s.once("client:c", 4, 4)
}

// The SDK's watch says the same, over a reconnect, too, and says again what its client says of
// itself.
func TestPresenceOverTheSDK(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	putClientPresence(t, m.Router(t), "crew", showsMembers)
	way := link.New(t, m.EdgeAddrs[0], nil)
	sub := func(name string) *pushmesh.Subscriber {
		s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{way.Addr()}, ClientID: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = closing.Close(s) })
		return s
	}
	ann, eve := sub("ann"), sub("eve")
	if _, err := ann.Subscribe(t.Context(), "crew/1", func(context.Context, *pushmesh.Delivery) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := presence.SetState(t.Context(), ann, "crew/1", []byte("typing")); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	joins, leaves := map[string]int{}, map[string]int{}
	w, err := presence.Watch(t.Context(), eve, "crew/1", func(c presence.Change) {
		mu.Lock()
		defer mu.Unlock()
		for _, one := range c.Joined {
			joins[one.User]++
		}
		for _, user := range c.Left {
			leaves[user]++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := func(want string) {
		t.Helper()
		procmesh.Await(t, want, func() bool {
			var all []string
			for _, one := range w.Members() {
				all = append(all, one.User+" "+string(one.State))
			}
			return strings.Join(all, ", ") == want
		})
	}
	seen("client:ann typing")
	way.Set("", link.Fault{Cut: true})
	way.Set("", link.Fault{})
	procmesh.Await(t, "both are back", func() bool { return eve.Stats().Connects > 1 && ann.Stats().Connects > 1 })
	seen("client:ann typing")
	if err := presence.SetState(t.Context(), ann, "crew/1", nil); err != nil {
		t.Fatal(err)
	}
	seen("client:ann ")
	if err := closing.Close(ann); err != nil {
		t.Fatal(err)
	}
	seen("")
	mu.Lock()
	if joins["client:ann"] != leaves["client:ann"] || joins["client:ann"] > 2 {
		t.Errorf("%d joins and %d leaves", joins["client:ann"], leaves["client:ann"])
	}
	mu.Unlock()
	w.Stop()
	if _, err := presence.Watch(t.Context(), eve, "room/1", func(presence.Change) {}); pushmesh.CodeOf(err) != pushmesh.CodeForbidden {
		t.Errorf("a namespace that shows nothing: %v", err)
	}
}
