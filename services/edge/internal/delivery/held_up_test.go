package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/count"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/budget"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// A member of a group whose filter covers several namespaces has for each message the time that the
// message's own namespace gives, whatever came in between.
func TestEachMessageOfAMemberHasItsNamespacesTime(t *testing.T) {
	w := newWorld(t, Limits{})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "slow", Policy: &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(10 * time.Second)}},
		{Prefix: "fast", Policy: &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(time.Second)}},
	})
	c, m := w.member(&wirev1.Hello{HeartbeatMs: 600_000}, &wirev1.Subscribe{Ack: true})
	for seq, name := range []string{"slow/1", "fast/1", "slow/1", "fast/2", "fast/1"} {
		w.mesh.Assign(m, 0, upstreamtest.Encode(name, upstreamtest.BaseEpoch, uint64(seq+1), "x"))
	}
	c.expect("slow/1/1 subs=[5]", "fast/1/2 subs=[5]", "slow/1/3 subs=[5]", "fast/2/4 subs=[5]", "fast/1/5 subs=[5]")
	w.pass(time.Second)
	w.expectSettled("2 TIMEOUT, 4 TIMEOUT, 5 TIMEOUT")
	w.pass(8900 * time.Millisecond)
	w.expectSettled("")
	w.pass(Tick)
	w.expectSettled("1 TIMEOUT, 3 TIMEOUT")
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "slow", Policy: &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(5 * time.Second)}}})
	w.h.Event(exchange.PoliciesChanged{}) // from here on
	w.mesh.Assign(m, 0, upstreamtest.Encode("slow/1", upstreamtest.BaseEpoch, 6, "x"))
	c.expect("slow/1/6 subs=[5]")
	w.pass(5 * time.Second)
	w.expectSettled("6 TIMEOUT")
}

// Attempts are a session's to use up: who has none gets a message as often as its namespace sends
// it on one connection, and then it is let go.
func TestAttemptsAreUsedUpBySessionsAlone(t *testing.T) {
	redeliveries := uint32(4)
	for _, session := range []bool{false, true} {
		w := newWorld(t, Limits{})
		w.table = policy.NewTable([]*pushmeshv1.Namespace{
			{Prefix: "room", Policy: &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(time.Second), MaxRedeliveries: &redeliveries, MaxAttempts: 3}},
		})
		c := w.session()
		sub := &wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true}
		if session {
			sub.Start = wirev1.Start_START_SESSION
		}
		c.subscribe(sub)
		w.mesh.Send("room/1", "a")
		var came []string
		for range 8 {
			came = append(came, c.texts()...)
			w.pass(time.Second)
		}
		n := 0
		for _, text := range came {
			if strings.HasPrefix(text, "room/1/1") {
				n++
			}
		}
		if want := map[bool]int{false: 5, true: 3}[session]; n != want || len(w.mesh.Letters) != b2i(session) || w.h.Stats().Unacked != 0 {
			t.Fatalf("session %v: it came %d times, want %d: %q; %d dead letters", session, n, want, came, len(w.mesh.Letters))
		}
	}
}

// Where the edge has no memory left, a client whose debts are durable keeps its connection, and
// everything: what it is not sent now it reads from the log later. Nothing of what it has begun to
// be sent is taken back.
func TestWhoOwesDurableMessagesKeepsTheConnection(t *testing.T) {
	for _, ack := range []bool{false, true} {
		w, _ := limited(t, 256<<10, 1, Limits{QueueBytes: 64 << 20, QueueMessages: 10_000})
		c, other := w.connect(&wirev1.Hello{HeartbeatMs: 600_000}), w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: ack})
		other.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"})
		c.expect("Subscribed 1 head=0")
		other.expect("Subscribed 1 head=0")
		c.slow, other.slow = true, true
		for range 20 {
			w.mesh.Send("room/1", strings.Repeat("x", 10_000))
			w.settle()
		}
		c.in = append(c.in, w.h.Gather(c.slot, nil, 0)[0][:5]...)
		w.h.Wrote(c.slot, 5)
		for range 10 {
			w.mesh.Live(upstreamtest.Encode("talk", 0, 0, strings.Repeat("e", 10_000)))
			w.settle()
		}
		if s := w.h.Stats(); s.Trims == 0 || s.Closes != (counters.ByCode{}) || s.Drops != (counters.ByCode{}) {
			t.Fatalf("%d trims, closes %v, drops %v", s.Trims, s.Closes, s.Drops)
		}
		c.slow, other.slow = false, false
		if other.take(); len(other.got) != 10 {
			t.Errorf("who owed little got %d", len(other.got))
		}
		for n := 0; len(c.got) < 20 && n < 100; n++ {
			c.take()
			w.pass(Tick)
		}
		for i, f := range c.got {
			if want := fmt.Sprintf("room/1/%d", i+1); f.text() != want {
				t.Fatalf("got %s, want %s", f.text(), want)
			}
		}
		if len(c.got) != 20 {
			t.Fatalf("got %d of 20", len(c.got))
		}
	}
}

// While the answer to a Subscribe names where a topic stands, nothing of that topic is taken back:
// the client would have been told what is not so.
func TestWhatAnAnswerNamesIsNotTakenBack(t *testing.T) {
	for _, overflow := range []wirev1.Overflow{wirev1.Overflow_OVERFLOW_DEFAULT, wirev1.Overflow_OVERFLOW_DROP_OLDEST} {
		w := newWorld(t, Limits{})
		c := w.lazy(overflow)
		w.mesh.Send("room/1", "a", "b")
		w.settle()
		at := w.h.conns.Get(c.slot)
		for _, tr := range at.Tracks.All() {
			tr.Told = state.ToldBehind
		}
		w.h.trimDurable(at, 0)
		w.h.trimOldest(at, 0)
		if at.Out.Messages() != 2 {
			t.Fatalf("%v: %d messages of 2 are left", overflow, at.Out.Messages())
		}
		for _, tr := range at.Tracks.All() {
			w.h.starter.goOn(tr)
		}
		c.reads("room/1/1", "room/1/2")
	}
}

// Two subscriptions that share messages want the same ones where neither has a filter, or both have
// the same, which is known.
func TestWhoWantsAlike(t *testing.T) {
	mk := func(filtered bool, where uint32) *state.Subscription {
		return &state.Subscription{Filtered: filtered, SubscriptionMore: &state.SubscriptionMore{Where: where}}
	}
	all := []*state.Subscription{mk(false, 0), mk(true, 0), mk(true, 1), mk(true, 2)}
	for i, a := range all {
		for j, b := range append(all, mk(false, 0), mk(true, 0), mk(true, 1), mk(true, 2)) {
			j %= len(all)
			same := a == b || i == j && i != 1
			if got := state.WantAlike(a, b); got != same {
				t.Errorf("filters %d (%v) and %d (%v): alike %v", a.Where, a.Filtered, b.Where, b.Filtered, got)
			}
		}
	}
}

// A session with positions that are much to write down hands them in some at a time, and all of
// them soon.
func TestLongPositionsAreHandedInOneByOne(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/+")
	names := []string{"room/1", "room/2", "room/3"}
	for _, name := range names {
		w.mesh.Send(name, "a")
	}
	c.texts()
	w.pass(time.Second)
	at := w.h.conns.Get(c.slot)
	for _, tr := range at.Tracks.All() {
		tr.Cursor = &cursor.Cursor{Epoch: tr.Epoch}
		for seq := uint64(3); seq < 3*collectLooks; seq += 2 {
			tr.Cursor.Settle(seq, seq)
		}
		w.h.sessions.cursorChanged(tr)
	}
	before := w.mesh.Session("client:ann", "inbox").Writes
	stored := func() (n int) {
		for _, name := range names {
			if len(w.mesh.Session("client:ann", "inbox").Cursors[name].GetAcked()) > 0 {
				n++
			}
		}
		return n
	}
	w.h.cost.Items = 0
	w.h.sessions.save(at)
	if n := stored(); n == 0 || n == len(names) {
		t.Fatalf("%d of %d are handed in at once", n, len(names))
	}
	w.pass(time.Second)
	if n := w.mesh.Session("client:ann", "inbox").Writes - before; stored() != len(names) || n < 2 || n > len(names) {
		t.Fatalf("%d of %d are handed in, in %d writes", stored(), len(names), n)
	}
}

// Ephemeral candidates for which there is no memory come at once, say that they are not ranked, and
// are counted.
func TestWhatHasNoRoomToGatherComesUnranked(t *testing.T) {
	comesUnranked(t, rankedWorld(t, Limits{QueueMemory: 80_000}, 0))
}

// Of a budget that loops share, the candidates of each have a part.
func TestCandidatesHaveAPartOfTheQueueBudget(t *testing.T) {
	w := rankedWorld(t, Limits{}, 0)
	cfg := w.h.cfg
	cfg.Budget = budget.New(160_000, 2).Share(1)
	w.h = newHub(t, cfg)
	w.pass(0)
	comesUnranked(t, w)
}

func comesUnranked(t *testing.T, w *world) {
	t.Helper()
	c, wild := w.ranked("flash/1", 1), w.connect(&wirev1.Hello{})
	wild.subscribe(&wirev1.Subscribe{Id: 1, Filter: "flash/+", RankTopK: 1})
	wild.expect("Subscribed 1 head=0")
	for i := range 12 { // each gathers, until an eighth of the memory is taken
		name := fmt.Sprint("flash/", 20+i)
		w.mesh.Live(upstreamtest.Run(name, 0, 0, "1."+strings.Repeat("0", 1000))...)
	}
	w.settle()
	w.mesh.Live(upstreamtest.Run("flash/1", 0, 0, "3", "4")...)
	c.expect("flash/1=3 subs=[1] unranked", "flash/1=4 subs=[1] unranked")
	if n := w.h.Stats().Unranked[wirev1.Code_CODE_MEMORY_BUDGET]; n < 4 {
		t.Fatalf("%d are counted", n)
	}
	w.rankAll()
	w.mesh.Live(upstreamtest.Run("flash/1", 0, 0, "3", "4")...)
	c.expect()
	w.rankAll()
	if got := c.texts(); len(got) != 1 || !strings.HasPrefix(got[0], "flash/1=4") || strings.Contains(got[0], "unranked") {
		t.Fatalf("there is room again, and it got %q", got)
	}
}

// An answer of the mesh for what is over, was never asked for or was answered before changes
// nothing, and is counted: loops and the mesh race with clients all the time.
func TestAnswersForNothingAreCountedAndChangeNothing(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/2", Group: "g"})
	c.expect("Welcome", "Subscribed 1 head=0", "Subscribed 2 head=0")
	at := w.h.conns.Get(c.slot)
	here, gone := w.h.handle(at), w.h.handle(at)
	gone.Gen++
	err := code.New(wirev1.Code_CODE_UNAVAILABLE, "no")
	all := func(conn exchange.Conn) []exchange.Event {
		return []exchange.Event{
			exchange.Joined{Conn: conn, Sub: 77},
			exchange.Joined{Conn: conn, Sub: at.Subs.At(0).Ref, Err: err},
			exchange.Filtered{Conn: conn, Sub: 77},
			exchange.Filtered{Conn: conn, Sub: at.Subs.At(0).Ref, Err: err},
			exchange.Attached{Conn: conn, Err: err},
			exchange.GroupJoined{Conn: conn, Sub: 77},
			exchange.GroupJoined{Conn: conn, Sub: at.Groups[0].Ref, Err: err},
			exchange.Assigned{Conn: conn, Sub: 77},
			exchange.Saved{Conn: conn, Ref: 77, Err: err},
			exchange.Published{Conn: conn, ID: 77},
			exchange.Claimed{Conn: conn, ID: 77},
			exchange.ClaimTold{Conn: conn, State: &wirev1.ClaimState{Resource: "seat/1", State: granted}},
			exchange.Ranked{Serial: 77},
		}
	}
	for i, e := range slices.Concat(all(here), all(gone), []exchange.Event{exchange.Detached{Conn: gone}, exchange.Yield{Conn: gone}, exchange.GroupEnded{Conn: gone, Sub: at.Groups[0].Ref}}) {
		before := w.h.Stats().StaleEvents
		w.h.Event(e)
		if w.settle(); w.h.Stats().StaleEvents != before+1 {
			t.Errorf("%d: %T is not counted", i, e)
		}
		if c.take(); c.ended || len(c.got) > 0 {
			t.Fatalf("%d: %T: it is told %s", i, e, c.got[0].text())
		}
	}
	w.h.Feed(c.slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 3, Filter: "room/3", Where: "payload == 7"}), 1)
	w.mail = nil
	ref := at.Subs.At(1).Ref
	w.h.Feed(c.slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 3}), 1)
	before := w.h.Stats().StaleEvents
	w.h.Event(exchange.Filtered{Conn: here, Sub: ref, Program: 1})
	w.h.Event(exchange.Joined{Conn: here, Sub: ref})
	if w.h.Stats().StaleEvents != before+2 {
		t.Error("answers for a subscription that ends are not counted")
	}
	c.asked[3] = &wirev1.Subscribe{}
	c.expect("Unsubscribed 3")
	w.h.Event(exchange.GroupEnded{Conn: here, Sub: 77})
	w.h.Event(exchange.Published{Conn: here}) // of one that wanted no answer
	w.mesh.Send("room/1", "a")
	c.expect("room/1/1 subs=[1]")
}

// An ACK that comes late, for a message that was let go, settles that message and no other: those
// let go beside it may still be ACKed, and those that came after it are waited for, and come again.
func TestALateAckSettlesItsMessageAlone(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	w.mesh.Send("room/1", "a", "b", "c")
	for range 4 {
		c.take()
		w.pass(2 * time.Second)
	}
	if s := w.h.Stats(); s.AckTimeouts != 3 || s.Unacked != 0 {
		t.Fatalf("%d have timed out, %d are un-ACKed", s.AckTimeouts, s.Unacked)
	}
	c.take()
	c.got = nil
	w.mesh.Send("room/1", "d", "e")
	c.expect("room/1/4 subs=[1]", "room/1/5 subs=[1]")
	for i, seq := range []uint64{2, 2, 3, 1} {
		c.ack("room/1", seq, false)
		if s, want := w.h.Stats(), []uint64{1, 1, 2, 3}[i]; s.Acks != want || s.Unacked != 2 {
			t.Fatalf("%d ACKed, want %d; %d un-ACKed", s.Acks, want, s.Unacked)
		}
	}
	w.pass(2 * time.Second)
	c.expect("room/1/4 attempt=1 subs=[1]", "room/1/5 attempt=1 subs=[1]")
	c.ack("room/1", 5, true)
	if w.pass(time.Second); w.mesh.Session("client:ann", "inbox").Cursors["room/1"].GetFloor() != 5 || w.h.Stats().Unacked != 0 {
		t.Fatalf("the session is at %v", w.mesh.Session("client:ann", "inbox").Cursors["room/1"])
	}
}

// An ACK of a message that is on its way again stops that, and nothing else.
func TestAnAckStopsItsOwnRedelivery(t *testing.T) {
	for acked := range uint64(3) {
		w := newWorld(t, Limits{})
		c := w.session()
		c.subscribeSession("room/1")
		w.mesh.Send("room/1", "a", "b", "c")
		c.expect("Welcome", "Subscribed 1 head=0", "room/1/1 subs=[1]", "room/1/2 subs=[1]", "room/1/3 subs=[1]")
		c.slow = true
		w.pass(2 * time.Second)
		c.ack("room/1", acked+1, false)
		var want []string
		for seq := range uint64(3) {
			if seq != acked {
				want = append(want, fmt.Sprintf("room/1/%d attempt=1 subs=[1]", seq+1))
			}
		}
		c.reads(want...)
	}
}

// What was queued before a topic's log began anew can't be read again: neither a full queue nor one
// that is trimmed takes it away. What came after it can.
func TestWhatStandsBeforeANewEpochIsNotTakenBack(t *testing.T) {
	for name, take := range map[string]func(w *world, c *state.Conn){
		"it is trimmed":     func(w *world, c *state.Conn) { w.h.trimDurable(c, 0); c.Out.Compact() },
		"the queue is full": func(w *world, _ *state.Conn) { w.mesh.Send("room/1", "z") },
	} {
		w := newWorld(t, Limits{QueueMessages: 4})
		c := w.lazy(0)
		w.mesh.Send("room/1", "a", "b")
		w.mesh.NewEpoch("room/1", 2000)
		w.mesh.Send("room/1", "x", "y")
		w.settle()
		at := w.h.conns.Get(c.slot)
		if at.Out.Messages() != 4 {
			t.Fatalf("%s: %d messages are queued", name, at.Out.Messages())
		}
		take(w, at)
		if w.settle(); at.Out.Messages() != 2 {
			t.Fatalf("%s: %d messages are left", name, at.Out.Messages())
		}
		want := []string{"room/1/1", "room/1/2", "Progress room/1 0..0 EPOCH_CHANGED", "room/1/1", "room/1/2"}
		if name != "it is trimmed" {
			want = append(want, "room/1/3")
		}
		c.slow = false
		var got []string
		for range 10 {
			got = append(got, c.texts()...)
			w.pass(Tick)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: got %q", name, got)
		}
	}
}

// Who is being closed and owes more than anybody else gives all of it up at once where the edge has
// no memory left: nobody pays for a client that does not even read why it was closed.
func TestLargestQueueOfWhoIsClosedIsCut(t *testing.T) {
	w, _ := limited(t, 500<<10, 1, Limits{QueueBytes: 64 << 20, QueueMessages: 10_000})
	c, other := w.connect(&wirev1.Hello{HeartbeatMs: 600_000}), w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	other.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"})
	other.expect("Subscribed 1 head=0")
	c.slow, other.slow = true, true
	c.bytes(slices.Repeat(pingFrame(t), 2500)) // it reads no answers
	at := w.h.conns.Get(c.slot)
	owed := at.Out.Held()
	w.h.Event(exchange.Yield{Conn: w.h.handle(at)})
	w.settle()
	if at.Phase != state.Closing || at.Out.Held() < 100<<10 || at.Out.Held() < owed/2 {
		t.Fatalf("it owes %d of %d", at.Out.Held(), owed)
	}
	n := 0
	for at.Out.Len() > 0 && n < 200 {
		w.mesh.Live(upstreamtest.Encode("talk", 0, 0, strings.Repeat("e", 5000)))
		w.settle()
		n++
	}
	if s := w.h.Stats(); at.Out.Len() != 0 || s.Trims == 0 || s.Drops != (counters.ByCode{}) || !w.h.Status(c.slot).Overdue {
		t.Fatalf("%d items are left, %d trims, drops %v", at.Out.Len(), s.Trims, s.Drops)
	}
	if other.slow = false; len(other.texts()) != n {
		t.Fatal("who has less queued has lost something")
	}
}

// A new connection is told of on its own, though its place was just told of under another.
func TestANewConnectionIsToldOfThoughItsPlaceWas(t *testing.T) {
	w, c, r := talks(t)
	w.say(60)
	w.h.Stalled(c.slot, Held{Memory: 4000})
	expectSlow(t, r, "ann-1 50% 60")
	w.h.Gone(c.slot)
	w.settle()
	again := w.connect(&wirev1.Hello{ClientId: "bob"})
	if again.slot != c.slot {
		t.Fatal("it has another place")
	}
	again.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"})
	again.expect("Subscribed 1 head=0")
	again.slow = true
	w.say(60)
	w.h.Stalled(again.slot, Held{Memory: 4000})
	expectSlow(t, r, "bob 50% 60")
}

// Candidates that come while a ranking is under way gather for the next one: the log is not asked
// for what was there just now.
func TestCandidatesGatherWhileOthersAreRanked(t *testing.T) {
	w := rankedWorld(t, Limits{}, 0)
	c := w.ranked("feed/1", 2)
	w.mesh.Send("feed/1", "1", "2")
	w.settle()
	w.mesh.EndWindows()
	w.settle()
	asked := w.mesh.Rankings()
	w.mesh.Send("feed/1", "5")
	w.mesh.Send("feed/1", "4", "6")
	w.settle()
	for _, r := range asked {
		w.mesh.Answer(r, byPayload)
	}
	c.texts()
	w.rankAll()
	if got := c.texts(); len(got) != 3 || w.mesh.Reads != 0 || !strings.HasPrefix(got[0], "feed/1/5") || !strings.HasPrefix(got[1], "feed/1/3") || !strings.HasPrefix(got[2], "feed/1/4") {
		t.Fatalf("%d reads, got %q", w.mesh.Reads, got)
	}
}

// A member has been subscribed since its first subscription that still counts, whatever kind that
// is.
func TestMembersAreSubscribedSinceTheirFirstSubscription(t *testing.T) {
	w := present(t)
	c := w.connect(&wirev1.Hello{ClientId: "a", HeartbeatMs: 600_000})
	var at []uint32
	for i, m := range []*wirev1.Subscribe{{Filter: "seen/1"}, {Filter: "seen/+"}, {Filter: "seen/1", Group: "g"}, {Filter: "seen/#"}, {Filter: "seen/1", Group: "h"}} {
		m.Id = uint32(i + 1)
		c.subscribe(m)
		at = append(at, uint32(w.h.wall/1e6))
		w.pass(3 * time.Second)
	}
	for gone, want := range at {
		if gone > 0 {
			c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: uint32(gone)})
		}
		var page []*presence.Member
		w.h.Event(exchange.ListMembers{Topic: "seen/1", Limit: 7, Reply: func(ms []*presence.Member, _ bool) { page = ms }})
		if w.settle(); len(page) != 1 || page[0].GetSubscribedAt() != want || page[0].GetConnectedAt() != at[0] {
			t.Fatalf("after %d have ended: %v, want %d", gone, page, want)
		}
	}
}

// A Count looks at no more than a slice of the subscriptions of any kind in one go.
func TestCountsOfEachKindAreSliced(t *testing.T) {
	const n = 2*count.Slice + 10
	for _, m := range []*wirev1.Subscribe{{Filter: "room/1"}, {Filter: "room/+"}, {Filter: "room/1", Group: "g"}, {Filter: "room/#", Group: "g"}} {
		mesh := &teller{}
		h := newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
		mesh.h = h
		h.SetTime(1, wallStart)
		m.Id = 1
		for range n {
			slot, _ := h.Open()
			h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
			h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m), 1)
			if c := h.conns.Get(slot); len(c.Groups) > 0 {
				h.Event(exchange.GroupJoined{Conn: h.handle(c), Sub: c.Groups[0].Ref})
			}
		}
		for h.Work(4096) {
		}
		counted := uint64(0)
		h.Event(exchange.Count{Topics: []string{"room/1"}, Reply: func(all []uint64) { counted = all[0] }})
		for before := uint64(0); h.rooms.jobs.Len() > 0; before = h.counts.UnderWay() {
			if h.rooms.jobs.Step(); h.rooms.jobs.Len() > 0 && h.counts.UnderWay()-before > count.Slice {
				t.Fatalf("%v: %d were counted in one slice", m, h.counts.UnderWay()-before)
			}
		}
		if counted != n {
			t.Fatalf("%v: counted %d of %d", m, counted, n)
		}
	}
}
