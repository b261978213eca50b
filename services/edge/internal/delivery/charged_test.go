package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// charged fails unless so many bytes are charged to the connection of a client.
func (c *client) charged(at string, least, most int64) {
	c.w.t.Helper()
	if n := c.w.h.kept.Of(c.slot); n < least || n > most {
		c.w.t.Fatalf("%s: %d bytes are charged, want %d to %d", at, n, least, most)
	}
}

// gone ends a client's connection, of which nothing is charged then.
func (w *world) gone(c *client) {
	w.t.Helper()
	w.h.Gone(c.slot)
	w.settle()
	if n := w.h.Stats().KeptBytes; n != 0 {
		w.t.Fatalf("%d bytes are charged to nobody", n)
	}
}

// What a client publishes is charged to its connection until it is answered, whether it wants an
// answer or not, and whichever answer comes first. Beyond the bound it is refused, and others are
// served. A connection that ends is charged nothing.
func TestPublishesInFlightAreCharged(t *testing.T) {
	w := newWorld(t, Limits{}).bounded(kept.Config{Connection: 220 << 10})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "open", Policy: &pushmeshv1.Policy{ClientPublish: true, MaxPayload: 256 << 10}}})
	c, other := w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{})
	pub := func(c *client, id uint32, size int) {
		c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: "open/x", Payload: make([]byte, size), Headers: map[string]string{"a": "b"}})
	}
	w.mesh.Hold()
	pub(c, 1, 60<<10)
	pub(c, 0, 70<<10)
	pub(c, 2, 50<<10)
	c.expect()
	c.charged("three are on their way", 202<<10, 206<<10)
	pub(c, 3, 50<<10)
	c.expect("Error OVERLOADED ref=3")
	pub(c, 0, 50<<10)
	pub(other, 3, 50<<10)
	other.charged("one of another", 56<<10, 58<<10)
	if n := w.h.Stats().Refused[wirev1.Code_CODE_OVERLOADED]; n != 2 {
		t.Fatalf("%d are refused", n)
	}
	w.h.Event(exchange.Published{Conn: w.h.Handle(c.slot)})
	c.charged("one was answered", 123<<10, 127<<10)
	w.mesh.Release()
	c.expect("Published 1", "Published 2")
	c.charged("all were answered", 0, 0)
	other.expect("Published 3")
	w.mesh.Hold()
	pub(c, 1, 60<<10)
	pub(c, 0, 60<<10)
	w.gone(c)
	w.mesh.Release()
	w.settle()
}

// What a connection claims is charged to it: requests until they are answered, resources as long as
// it is told of them, and states that wait for its client to read. Beyond the bound it gets nothing
// new, and can still keep what it has and give it back.
func TestClaimsAreCharged(t *testing.T) {
	w := claimWorld(t).bounded(kept.Config{Connection: 20 << 10})
	c := w.connect(&wirev1.Hello{ClientId: "ann"})
	name := func(i uint32) string { return fmt.Sprintf("seat/%0200d", i) }
	refused := func() uint64 { return w.h.Stats().Refused[wirev1.Code_CODE_OVERLOADED] }
	n := uint32(0)
	for ; n < claims.MaxHeld && refused() == 0; n++ {
		c.claim(&wirev1.Claim{Id: n + 1, Resource: name(n)})
	}
	c.claim(&wirev1.Claim{Id: 99, Resource: name(99), Op: wirev1.Claim_OP_WATCH})
	if n < 40 || refused() != 2 {
		t.Fatalf("%d are claimed, %d are refused", n, refused())
	}
	c.charged("many are claimed", 17<<10, 20<<10)
	c.claim(&wirev1.Claim{Id: 98, Resource: name(0), Op: wirev1.Claim_OP_RENEW, Token: 1})
	w.answers(released, 0)
	for i := range n - 1 {
		c.claim(&wirev1.Claim{Id: 100 + i, Resource: name(i), Op: wirev1.Claim_OP_RELEASE, Token: 1})
	}
	if refused() != 2 {
		t.Fatal("what is held can't be kept or given back")
	}
	c.charged("nothing is claimed", 1, 1<<10)
	w.answers(granted, 0)
	c.claim(&wirev1.Claim{Id: 1, Resource: name(0)})
	before := w.h.kept.Of(c.slot)
	c.slow = true
	for w.h.conns.Get(c.slot).Claims.Unsent() == 0 {
		w.tells(&wirev1.ClaimState{Resource: name(0), State: granted, Holder: strings.Repeat("h", 255)})
	}
	c.charged("a state waits", before+255, before+2<<10)
	c.slow = false
	c.take()
	c.charged("it was told", before, before)
	w.gone(c)
}

// What a member of a group is assigned is charged to its connection until it is settled. Of what
// timed out only the name is kept, for an ACK that comes late.
func TestMessagesOfMembersAreCharged(t *testing.T) {
	const n, size = 40, 8 << 10
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{HeartbeatMs: 600_000}, &wirev1.Subscribe{Ack: true})
	var all []*exchange.Message
	for seq := range uint64(n) {
		all = append(all, upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, seq+1, strings.Repeat("x", size)))
	}
	w.mesh.Assign(m, 0, all...)
	w.settle()
	c.take()
	c.charged("all are assigned", n*size, n*(size+400))
	c.ack("room/1", n/2, true)
	w.settle()
	c.charged("a half is ACKed", n/2*size, n/2*(size+400))
	w.pass(2100 * time.Millisecond)
	c.charged("a half timed out", n/2*100, n/2*400)
	member := w.h.conns.Get(c.slot).Groups[0]
	if member.Late() != n/2 {
		t.Fatalf("%d may be ACKed yet", member.Late())
	}
	w.mesh.Settled()
	c.ack("room/1", n, true)
	w.settle()
	if got := len(w.mesh.Settled()); got != n/2 {
		t.Fatalf("%d late ACKs are told", got)
	}
	c.charged("all are settled", 0, 0)
	c.slow = true
	w.mesh.Assign(m, 0, all[:10]...)
	w.settle()
	c.charged("some are queued", 10*size, 10*(size+400))
	w.gone(c)
}

// A session's filters and positions are charged to the connection that holds it, until that ends.
func TestSessionsAreCharged(t *testing.T) {
	w := newWorld(t, Limits{})
	w.manyTopics(100)
	c := w.session()
	c.subscribeSession("many/+")
	w.settle()
	w.pass(time.Second)
	w.gone(c)
	c = w.session()
	c.charged("a session with 100 positions", 100*100, 100<<10)
	w.gone(c)
}

// Topics that a subscription with wildcards meets are charged to its connection until it ends.
func TestTopicsThatAppearAreCharged(t *testing.T) {
	const n = 200
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+"})
	w.settle()
	before := w.h.kept.Of(c.slot)
	for i := range n {
		w.mesh.Send(fmt.Sprint("many/", i), "x")
	}
	w.settle()
	c.take()
	c.charged("topics have appeared", before+n*256, before+n*384)
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	w.settle()
	c.charged("it has ended", 0, 0)
	w.gone(c)
}

// What a subscription hears of before it is active is charged; where there is no room it is
// refused, with a time to come back, and nothing is left of it.
func TestWhatIsHeardOfIsCharged(t *testing.T) {
	w := newWorld(t, Limits{}).bounded(kept.Config{Connection: 128 << 10})
	w.manyTopics(100)
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	w.mesh.Hold()
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
	w.mesh.Release()
	for _, e := range w.mail {
		w.h.Event(e) // it is to begin
	}
	w.mail = nil
	s := w.h.conns.Get(c.slot).Subs.At(0)
	if !s.Begins {
		t.Fatal("it does not begin")
	}
	topics := w.h.topics.Slab.Taken()
	n := 0
	for ; !s.Dead && n < 1<<20; n++ {
		w.h.starter.hear(s, w.h.topics.Get("many/7"), true)
	}
	if most := 128 << 10 / heardBytes; n < most/4 || n > most {
		t.Fatalf("it was refused after %d times", n)
	}
	w.settle()
	c.expect("Error OVERLOADED ref=1")
	c.charged("it is refused", 0, 0)
	if got := w.h.topics.Slab.Taken(); got > topics+1 {
		t.Fatalf("%d topics are left of %d", got, topics)
	}
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
	w.settle()
	c.charged("another one is open", 100*100, 128<<10)
	w.gone(c)
}

// The address that a connection comes from is charged, whatever client ids its connections have;
// other addresses are served, and who is exempt counts for none.
func TestAnAddressIsCharged(t *testing.T) {
	w := newWorld(t, Limits{})
	cfg := w.h.cfg
	cfg.Kept = kept.Config{Connection: 64 << 20, Clients: kept.NewHolders(1 << 30), Addresses: kept.NewHolders(512 << 10)}
	cfg.Origin = func(slot uint32) string { return []string{"192.0.2.1", "192.0.2.2", ""}[slot/4] }
	w.h = newHub(t, cfg)
	w.pass(0)
	w.manyTopics(500)
	subscribe := func(c *client) bool {
		before := w.h.Stats().Refused[wirev1.Code_CODE_OVERLOADED]
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "many/+", Start: wirev1.Start_START_EARLIEST})
		c.take()
		return w.h.Stats().Refused[wirev1.Code_CODE_OVERLOADED] == before
	}
	var all []*client
	for i := range 12 {
		all = append(all, w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: fmt.Sprint("id-", i)}))
	}
	for i, want := range []bool{true, true, false, false, true, true, false, false, true, true, true, true} {
		if got := subscribe(all[i]); got != want {
			t.Fatalf("connection %d is served: %v", i, got)
		}
	}
	w.h.Gone(all[0].slot)
	w.settle()
	if !subscribe(all[2]) {
		t.Fatal("what one gave back can't be had by another")
	}
}

// publishing notes for which address messages count.
type publishing struct {
	exchange.Mesh
	origins []string
}

func (a *publishing) Publish(conn exchange.Conn, origin string, id uint32, item *meshv1.ClientPublish_Item) {
	a.origins = append(a.origins, origin)
	a.Mesh.Publish(conn, origin, id, item)
}

// A message on its way counts for the address of its client, which is asked for once for all that
// are on their way together.
func TestPublishesCountForTheirAddress(t *testing.T) {
	w := newWorld(t, Limits{})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "open", Policy: &pushmeshv1.Policy{ClientPublish: true}}})
	asked, a := 0, &publishing{Mesh: w.h.cfg.Mesh}
	cfg := w.h.cfg
	cfg.Mesh, cfg.Origin = a, func(slot uint32) string { asked++; return fmt.Sprint("192.0.2.", slot) }
	w.h = newHub(t, cfg)
	w.pass(0)
	all := []*client{w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{})}
	var want []string
	for round := range 2 {
		w.mesh.Hold()
		for _, c := range all {
			for id := range uint32(3) {
				c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: "open/x"})
				want = append(want, fmt.Sprint("192.0.2.", c.slot))
			}
		}
		w.mesh.Release()
		w.settle()
		if !slices.Equal(a.origins, want) || asked != 2*(round+1) {
			t.Fatalf("they count for %v, want %v; addresses were asked for %d times", a.origins, want, asked)
		}
	}
}
