package delivery

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/wake"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// slicesOf takes the smallest slices of work until nothing is left, has seen look between them how
// far the work is, and fails where one slice does more than most of it. It says how many there
// were.
func slicesOf(t *testing.T, h *Hub, most int, what string, left func() int) (n int) {
	t.Helper()
	for more := true; more; n++ {
		before := left()
		more = h.Work(1)
		if did := before - left(); did > most {
			t.Fatalf("%d %s in one slice, want %d at most", did, what, most)
		}
		if n > 1_000_000 {
			t.Fatal("it never ends")
		}
	}
	return n
}

func heldTracks(c *state.Conn) (n int) {
	for _, t := range c.Tracks.All() {
		if t.Held {
			n++
		}
	}
	return n
}

func toldTracks(c *state.Conn) (n int) {
	for _, t := range c.Tracks.All() {
		if t.Told.Any() {
			n++
		}
	}
	return n
}

func (a *asker) feed(t *testing.T, c *state.Conn, ft wirev1.FrameType, m proto.Message) {
	t.Helper()
	a.h.Feed(c.Slot, frameOf(t, ft, m), 1)
}

// Once the first positions of a session's subscription are stored it is answered, and its topics go
// on some at a time.
func TestSubscriptionOfASessionIsLetOutInSlices(t *testing.T) {
	const topics = 1000
	a := newAsker(t, topics)
	c := a.connect(t)
	a.feed(t, c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true, Start: wirev1.Start_START_SESSION})
	for a.h.Work(4096) {
	}
	if n := heldTracks(c); n != topics || c.Subs.At(0).Open {
		t.Fatalf("%d of %d topics wait for the answer", n, topics)
	}
	a.h.Event(exchange.Saved{Conn: a.h.Handle(c.Slot), Ref: c.Subs.At(0).Ref})
	if !c.Subs.At(0).Open || heldTracks(c) != topics {
		t.Fatal("it is not answered first")
	}
	// What no log has is for it from here on, whether its topic was let out or not.
	a.h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("room/0", 0, 0, "ephemeral")}})
	if n := slicesOf(t, a.h, lookSlice, "topics are let out", func() int { return heldTracks(c) }); n < topics/lookSlice {
		t.Fatalf("%d topics were let out in %d slices", topics, n)
	}
	if heldTracks(c) != 0 || c.Out.Messages() != 1 {
		t.Fatalf("%d topics wait yet, %d messages go out", heldTracks(c), c.Out.Messages())
	}
}

// A filter of a session with many topics and many other filters is matched some at a time. What
// another filter wants stays as it is.
func TestFilterOfASessionIsDroppedInSlices(t *testing.T) {
	const topics, filters = 300, 400
	for _, other := range []string{"room/#", ""} {
		h, k, slot := durableSession(t, topics)
		c := h.conns.Get(slot)
		c.Session.Filters = append(c.Session.Filters, other) // as it was stored once
		if other == "" {
			c.Session.Filters = c.Session.Filters[:1]
		}
		for i := range filters {
			c.Session.Filters = append(c.Session.Filters, fmt.Sprintf("talk/%d/+", i))
		}
		ackTopics(t, h, slot, 0, topics)
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1}), 1)
		before := k.saves
		n := slicesOf(t, h, 2*teardownSlice, "cursors", func() int { return -k.cursors })
		if want := topics * filters / walk.SearchedPerUnit / (teardownSlice + walk.SearchSlice/walk.SearchedPerUnit); other == "" && (n < want || k.saves-before < want/teardownSlice) {
			t.Fatalf("%d topics were matched with %d filters in %d slices, want %d", topics, filters, n, want)
		}
		want := topics
		if other == "" {
			want = 0
		}
		if len(k.floors) != want || c.Session.Positions() != want || c.Subs.Len() != 0 {
			t.Fatalf("with %q, %d topics are left, want %d", other, len(k.floors), want)
		}
		for name, floor := range k.floors {
			if floor != 1 {
				t.Fatalf("the session stands at %d in %s", floor, name)
			}
		}
	}
}

// Positions are checked some at a time, and one that is wrong ends the subscription as if it had
// been the only one: what it shares goes on.
func TestPositionsAreCheckedInSlices(t *testing.T) {
	const topics = 1000
	for _, bad := range []string{"", "room/+", "talk/1"} {
		a := newAsker(t, topics)
		c := a.connect(t)
		a.feed(t, c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+"})
		for a.h.Work(4096) {
		}
		(&flusher{h: a.h}).flush()
		m := &wirev1.Subscribe{Id: 2, Filter: "room/#"}
		for i := range topics {
			m.Positions = append(m.Positions, &wirev1.Position{Topic: fmt.Sprintf("room/%d", i)})
		}
		if bad != "" {
			m.Positions[topics-1].Topic = bad
		}
		a.feed(t, c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m)
		if n := steps(a.h); n < topics/teardownSlice {
			t.Fatalf("%d positions were checked in %d slices", topics, n)
		}
		if bad == "" {
			if c.Subs.Len() != 2 || !c.Subs.At(1).Active {
				t.Fatal("it did not begin")
			}
			continue
		}
		want := map[string]wirev1.Code{"room/+": wirev1.Code_CODE_BAD_TOPIC, "talk/1": wirev1.Code_CODE_INVALID_ARGUMENT}[bad]
		if c.Subs.Len() != 1 || c.Tracks.Len() != topics || toldTracks(c) != 0 || a.h.Stats().Refused[want] != 1 {
			t.Fatalf("%s: %d subscriptions, %d topics, refused %v", bad, c.Subs.Len(), c.Tracks.Len(), a.h.Stats().Refused)
		}
	}
}

// A subscription that ends while it begins leaves nothing behind: tracks that it would have shared
// go on, and the session has its positions again.
func TestSubscriptionThatEndsWhileItBegins(t *testing.T) {
	const topics = 200
	for slices := 1; ; slices++ {
		a := newAsker(t, topics)
		c := a.connect(t)
		a.feed(t, c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+"})
		for a.h.Work(4096) {
		}
		(&flusher{h: a.h}).flush()
		a.feed(t, c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 2, Filter: "room/#"})
		for range slices {
			a.h.Work(1)
		}
		over := c.Subs.At(1).Active
		for _, track := range c.Tracks.All() {
			track.Behind = true // something came that the track has to read
			a.h.replay.enqueue(track)
		}
		a.feed(t, c, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 2})
		for a.h.Work(4096) {
		}
		for _, track := range c.Tracks.All() {
			if track.Told.Any() || !track.Reading && !track.Waits && !track.Runs {
				t.Fatalf("after %d slices: a track is left behind", slices)
			}
		}
		if c.Subs.Len() != 1 || c.Tracks.Len() != topics {
			t.Fatalf("after %d slices: %d subscriptions with %d topics are left", slices, c.Subs.Len(), c.Tracks.Len())
		}
		if over {
			return
		}
	}
}

// What waits for a window is looked at some at a time, and again where it opened meanwhile.
func TestTracksAreWokenInSlices(t *testing.T) {
	const topics = 3000
	h, _, slot := durableSession(t, topics)
	c := h.conns.Get(slot)
	waiting := func() (n int) {
		for _, track := range c.Tracks.All() {
			if track.Waits {
				n++
			}
		}
		return n
	}
	for _, track := range c.Tracks.All() {
		h.replay.waitFor(track)
		track.Behind, track.Held = true, true // nothing is read: the walk alone is looked at
	}
	c.Unacked, c.Window = 0, topics
	h.waker.Wake(c)
	h.Work(1)
	if n := topics - waiting(); n == 0 || n > wake.Slice {
		t.Fatalf("%d tracks were woken in one slice", n)
	}
	last := c.Tracks.At(topics - 1)
	h.replay.waitFor(last) // the walk has passed it
	h.waker.Wake(c)
	if n := slicesOf(t, h, wake.Slice, "tracks are woken", waiting); n < topics/wake.Slice {
		t.Fatalf("%d tracks were woken in %d slices", topics, n)
	}
	if waiting() != 0 || c.Waiting != 0 || c.Waking {
		t.Fatalf("%d tracks wait yet", waiting())
	}
}

// A connection that breaks with a full queue costs a slice of it at a time.
func TestQueueOfABrokenConnectionIsDroppedInSlices(t *testing.T) {
	const queued = 1000
	h, slots := crowd(t, 1, &wirev1.Subscribe{})
	c := h.conns.Get(slots[0])
	for i := range queued { // no two of them make a run
		h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, uint64(i+1), "hello")}})
	}
	for h.Work(4096) {
	}
	if c.Out.Len() != queued {
		t.Fatalf("%d items are queued", c.Out.Len())
	}
	h.Gone(slots[0])
	if c.Out.Len() != queued {
		t.Fatal("the queue was dropped at once")
	}
	slicesOf(t, h, fanSlice, "items are dropped", func() int { return int(c.Out.Len()) })
	if c.Out.Len() != 0 || h.Stats().QueuedBytes != 0 {
		t.Fatalf("%d items, %d bytes are queued", c.Out.Len(), h.Stats().QueuedBytes)
	}
	if over := h.Over(nil, 1); len(over) != 1 {
		t.Fatal("the connection does not end")
	}
}

// A Disconnect of many connections with full queues is cut by what it drops.
func TestDisconnectingManyIsSliced(t *testing.T) {
	const conns, queued = 200, 50
	h, slots := crowd(t, conns, &wirev1.Subscribe{})
	for i := range queued {
		h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, uint64(i+1), "hello")}})
	}
	for h.Work(4096) {
	}
	open := func() (n int) {
		for _, slot := range slots {
			if h.conns.Get(slot).Phase == state.Open {
				n++
			}
		}
		return n
	}
	replied := 0
	h.Event(exchange.Disconnect{ClientID: "client-0001", Reply: func(n int) { replied = n }})
	slicesOf(t, h, fanSlice/8+1, "connections are closed", open)
	if replied != conns || open() != 0 {
		t.Fatalf("%d connections were closed, %d are open", replied, open())
	}
}

// More positions, or headers, than there may be are refused by their number, before any is decoded.
func TestTooManyOfAFieldAreRefusedUndecoded(t *testing.T) {
	h, slots := crowd(t, 1, &wirev1.Subscribe{})
	(&flusher{h: h}).flush()
	for _, c := range []struct {
		ft     wirev1.FrameType
		field  []byte // whole, and malformed inside: who decodes it closes the connection
		most   int
		refuse wirev1.Code
	}{
		{wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, []byte{11<<3 | 2, 1, 0xff}, 1000, wirev1.Code_CODE_TOO_MANY_TOPICS},
		{wirev1.FrameType_FRAME_TYPE_PUBLISH, []byte{4<<3 | 2, 1, 0xff}, request.MaxHeaders, wirev1.Code_CODE_INVALID_ARGUMENT},
	} {
		body := []byte{1 << 3, 7}
		for range c.most + 1 {
			body = append(body, c.field...)
		}
		frame := make([]byte, wire.HeaderSize, wire.HeaderSize+len(body))
		wire.PutHeader(frame, len(body), c.ft)
		before := h.Stats().Refused[c.refuse]
		h.Feed(slots[0], append(frame, body...), 1)
		if h.Stats().Refused[c.refuse] != before+1 || h.conns.Get(slots[0]).Phase != state.Open {
			t.Fatalf("%v: refused %v, state %d", c.ft, h.Stats().Refused, h.conns.Get(slots[0]).Phase)
		}
	}
}

// memberships is a connection with many memberships, each with some messages that were sent.
func memberships(t *testing.T, groups, each int) (h *Hub, mesh *teller, c *state.Conn) {
	t.Helper()
	mesh = &teller{}
	h = newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For, Limits: Limits{QueueMessages: groups * each, Subscriptions: groups}})
	mesh.h = h
	h.SetTime(1, wallStart)
	slot, _ := h.Open()
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ReceiveWindow: uint32(groups * each)}), 1)
	c = h.conns.Get(slot)
	for i := range groups {
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{
			Id: uint32(i + 1), Filter: fmt.Sprintf("room/%d", i), Group: "g", Ack: true,
		}), 1)
		g := c.Groups[i]
		h.Event(exchange.GroupJoined{Conn: h.handle(c), Sub: g.Ref})
		a := exchange.Assigned{Conn: h.handle(c), Sub: g.Ref, Attempts: make([]uint32, each)}
		for seq := range each {
			a.Messages = append(a.Messages, upstreamtest.Encode(g.Filter, upstreamtest.BaseEpoch, uint64(seq+1), "hello"))
		}
		if cost := h.Event(a); cost < each {
			t.Fatalf("%d messages count as %d", each, cost)
		}
	}
	return h, mesh, c
}

// teller counts what dispatchers are told.
type teller struct {
	still
	settled, paused int
}

func (m *teller) JoinGroup(exchange.Conn, uint32, *exchange.GroupJoin) {}
func (m *teller) LeaveGroup(exchange.Conn, uint32)                     {}
func (m *teller) PauseGroup(exchange.Conn, uint32)                     { m.paused++ }
func (m *teller) ResumeGroup(exchange.Conn, uint32)                    { m.paused-- }
func (m *teller) SettleGroup(all []exchange.GroupSettled)              { m.settled += len(all) }

// What is due in many groups of one connection is given back some at a time, and all of it once.
func TestTimersOfManyGroupsAreSliced(t *testing.T) {
	const groups, each = 200, 20
	h, _, c := memberships(t, groups, each)
	(&flusher{h: h}).flush()
	if int(c.Unacked) != groups*each {
		t.Fatalf("%d messages are not ACKed", c.Unacked)
	}
	h.SetTime(h.now+int64(h.cfg.PolicyFor("room/0").AckTimeout)+int64(Tick), wallStart)
	c.Heard = h.ms
	left := func() int { return int(c.Unacked) }
	for more := true; more; {
		before := left()
		more = h.Tick(512)
		if did := before - left(); did > timerSlice*4+each {
			t.Fatalf("%d messages were given back in one go of Tick", did)
		}
	}
	if left() == 0 || !c.Visited {
		t.Fatal("Tick did all")
	}
	slicesOf(t, h, timerSlice*4+each, "messages are given back", left)
	if left() != 0 || c.Visited || h.Stats().AckTimeouts != groups*each {
		t.Fatalf("%d messages are left, %d timed out", left(), h.Stats().AckTimeouts)
	}
}

// A planned stop tells the dispatchers of many groups one after the other.
func TestManyGroupsArePausedInSlices(t *testing.T) {
	const groups = 200
	h, mesh, _ := memberships(t, groups, 1)
	h.Event(exchange.Drain{DeadlineMS: 60_000})
	if n := slicesOf(t, h, 1, "groups are paused", func() int { return -mesh.paused }); n < groups {
		t.Fatalf("%d slices", n)
	}
	if mesh.paused != groups {
		t.Fatalf("%d of %d groups are paused", mesh.paused, groups)
	}
}

// Whatever a group's member was assigned and has not left is not sent once it has left, however
// much that is.
func TestNothingOfAGroupIsSentAfterItWasLeft(t *testing.T) {
	const each = 500
	h, mesh, c := memberships(t, 1, each)
	if c.Out.Messages() != each {
		t.Fatalf("%d messages are queued", c.Out.Messages())
	}
	h.Feed(c.Slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1}), 1)
	for h.Work(4096) {
	}
	if c.Out.Messages() != 0 || mesh.settled != each {
		t.Fatalf("%d messages are queued after Unsubscribe, %d of %d were given back", c.Out.Messages(), mesh.settled, each)
	}
}

// Count finds the members of groups that many connections are in.
func TestMembersAreCountedInSlices(t *testing.T) {
	const conns = 1000
	mesh := &teller{}
	h := newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	var slots []uint32
	for range conns {
		slot, _ := h.Open()
		slots = append(slots, slot)
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+", Group: "g"}), 1)
		h.Event(exchange.GroupJoined{Conn: h.Handle(slot), Sub: h.conns.Get(slot).Groups[0].Ref})
	}
	var counts []uint64
	h.Event(exchange.Count{Topics: []string{"room/1", "talk"}, Reply: func(c []uint64) { counts = c }})
	if n := steps(h); n < conns/fanSlice {
		t.Fatalf("%d members were counted in %d slices", conns, n)
	}
	if len(counts) != 2 || counts[0] != conns || counts[1] != 0 {
		t.Fatalf("counted %v", counts)
	}
	h.Event(exchange.Count{Topics: []string{"room/1"}, Reply: func(c []uint64) { counts = c }})
	h.Work(1)
	for _, slot := range slots { // all leave in the middle of it
		h.groups.leave(h.conns.Get(slot).Groups[0])
	}
	for h.Work(4096) {
	}
	if len(counts) != 1 || counts[0] > conns || h.groups.room.Len() != 0 {
		t.Fatalf("counted %v, %d filters of groups are left", counts, h.groups.room.Len())
	}
}
