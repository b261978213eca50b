package delivery

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// busy is a world with traffic of every kind, and a client with a subscription of every kind and a
// place at a resource.
type busy struct {
	*world
	c        *client
	assigned uint64
	asked    []*exchange.Ranking
}

func newBusy(t tester) *busy {
	w := newWorld(t, Limits{})
	rank := &pushmeshv1.RankPolicy{Expression: &pushmeshv1.ExpressionScorer{Expression: "payload"}}
	w.table = policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true}}},
		{Prefix: "open", Policy: &pushmeshv1.Policy{ClientPublish: true}},
		{Prefix: "late", Policy: &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(time.Hour)}},
		{Prefix: "feed", Policy: &pushmeshv1.Policy{Durable: true, Rank: rank}},
		{Prefix: "flash", Policy: &pushmeshv1.Policy{Rank: rank}},
	})
	b := &busy{world: w, c: w.dial()}
	b.c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "ann", Session: "inbox", HeartbeatMs: 600_000})
	for i, m := range []*wirev1.Subscribe{
		{Filter: "late/1", Ack: true},
		{Filter: "room/1"},
		{Filter: "room/1", Ack: true, Start: wirev1.Start_START_EARLIEST},
		{Filter: "room/2", Ack: true, Start: wirev1.Start_START_SESSION},
		{Filter: "hall/+", Start: wirev1.Start_START_SESSION},
		{Filter: "talk/+"},
		{Filter: "talk/1"},
		{Filter: "talk/#", Start: wirev1.Start_START_EARLIEST},
		{Filter: "talk/2", Where: "payload == 7"},
		{Filter: "room/3", Overflow: wirev1.Overflow_OVERFLOW_CONFLATE},
		{Filter: "note", Overflow: wirev1.Overflow_OVERFLOW_CONFLATE},
		{Filter: "room/4", Group: "g", Ack: true},
		{Filter: "feed/1", RankTopK: 2, Ack: true},
		{Filter: "flash/1", RankTopK: 2},
		{Filter: "flash/+", RankTopK: 2},
	} {
		m.Id = uint32(i + 1)
		b.c.subscribe(m)
	}
	b.c.claim(&wirev1.Claim{Id: 99, Op: wirev1.Claim_OP_ACQUIRE, Resource: "seat/1"})
	for _, text := range b.c.texts() {
		if strings.HasPrefix(text, "Error") {
			w.t.Fatal(text)
		}
	}
	return b
}

// traffic posts something for each of the subscriptions and the place. The hub is not given time
// for it.
func (b *busy) traffic() {
	for _, name := range []string{"late/1", "room/1", "room/2", "room/3", "hall/1", "feed/1"} {
		b.mesh.Live(b.mesh.Append(name, "7")...)
	}
	for _, name := range []string{"talk/1", "talk/2", "note", "flash/1", "flash/2", "room/1", "room/2", "hall/2"} {
		b.mesh.Live(upstreamtest.Run(name, 0, 0, "7", "7")...)
	}
	for _, m := range b.mesh.Members() {
		b.assigned++
		b.mesh.Assign(m, 0, upstreamtest.Encode("room/4", upstreamtest.BaseEpoch, b.assigned, "7"))
		b.mesh.Assign(m, 0, upstreamtest.Encode("room/4", 0, 0, "7"))
	}
	b.mesh.TellClaim(b.mesh.Claims.Asked[0], &wirev1.ClaimState{Resource: "seat/1", State: queued, Position: 3})
	b.mesh.EndWindows()
	b.asked = append(b.asked, b.mesh.Rankings()...)
}

// answers the rankings that were asked for.
func (b *busy) answer() {
	b.asked = append(b.asked, b.mesh.Rankings()...)
	for _, r := range b.asked {
		b.mesh.Answer(r, byPayload)
	}
	b.asked = nil
}

// Whatever is queued for a connection, is on its way to it or comes yet, of whatever kind: where
// the edge closes it, its client reads why, and nothing else but answers that were queued before.
func TestTheLastWordIsTheLast(t *testing.T) {
	for name, end := range map[string]func(b *busy){
		"taken over":    func(b *busy) { b.h.Event(exchange.Yield{Conn: b.h.Handle(b.c.slot)}) },
		"refused":       func(b *busy) { b.h.Refuse(b.c.slot, code.New(wirev1.Code_CODE_RATE_LIMITED, "too fast")) },
		"breaks a rule": func(b *busy) { b.h.Feed(b.c.slot, []byte{0, 0, 1, byte(wirev1.FrameType_FRAME_TYPE_PING), 255}, 1) },
	} {
		for _, queue := range []bool{false, true} {
			b := newBusy(t)
			b.c.slow = true
			if queue {
				b.traffic()
				b.settle()
				b.traffic()
				b.settle()
			}
			b.mesh.Hold()
			b.mesh.Append("room/1", "7") // lost: it is read, and the answer is late
			b.traffic()
			b.settle()
			b.mesh.Release()
			b.traffic()
			end(b)
			b.traffic()
			b.answer()
			b.settle()
			b.traffic()
			b.answer()
			b.settle()
			b.pass(time.Second)
			b.c.slow = false
			// answers stay in front of it
			got := slices.DeleteFunc(b.c.texts(), func(text string) bool { return strings.HasPrefix(text, "ClaimState") })
			if len(got) != 1 || !strings.HasPrefix(got[0], "Error") || !b.c.ended {
				t.Fatalf("%s: its client reads %q", name, got)
			}
			if s := b.h.Stats(); s.Connections != 0 || s.Unacked != 0 || s.QueuedBytes != 0 || s.Claims.Held != 0 {
				t.Fatalf("%s: something is left: %+v", name, s)
			}
		}
	}
}

// Behind GoAway a client gets nothing for the first time, of whatever kind it is, and is refused
// what it asks for anew; it may ACK what it has, and the connection ends as soon as it has done so.
func TestBehindGoAwayOnlyWhatHasBegunGoesOn(t *testing.T) {
	for _, behind := range []bool{false, true} {
		b := newBusy(t)
		b.traffic()
		b.settle()
		b.answer()
		if b.c.texts(); behind { // some of it is read from the log just now
			b.mesh.Hold()
			b.mesh.Append("room/1", "7")
			b.traffic()
			b.settle()
		}
		b.h.Event(exchange.Rebalance{Share: 1})
		b.settle()
		b.mesh.Release()
		for range 2 {
			b.traffic()
			b.answer()
			b.settle()
			b.answer()
		}
		b.pass(time.Second)
		var got []string
		for _, text := range b.c.texts() {
			if !strings.Contains(text, "attempt=") && !strings.HasPrefix(text, "ClaimState") {
				got = append(got, text)
			}
		}
		if i := slices.Index(got, "GoAway"); i < 0 || i != len(got)-1 {
			t.Fatalf("behind: %v: it reads %q", behind, got)
		}
		settled := b.mesh.Settled()
		if len(settled) < 2 || settled[len(settled)-1].How.String() != "HOW_UNSENT" {
			t.Fatalf("what its group assigned since has not gone back: %v", settled)
		}
		b.c.subscribe(&wirev1.Subscribe{Id: 50, Filter: "talk/9"})
		b.c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 51, Topic: "open/1"})
		b.c.claim(&wirev1.Claim{Id: 52, Op: wirev1.Claim_OP_ACQUIRE, Resource: "seat/2"})
		b.c.claim(&wirev1.Claim{Id: 53, Op: wirev1.Claim_OP_RELEASE, Resource: "seat/1", Token: 1})
		b.c.expect("Error DRAINING ref=50", "Error DRAINING ref=51", "Error DRAINING ref=52", "ClaimState 53 seat/1 GRANTED token=2")
		if b.c.ended {
			t.Fatal("it had no time to ACK what it has")
		}
		for _, name := range []string{"late/1", "room/1", "room/2", "room/4", "feed/1"} {
			b.c.ack(name, 1<<40, true)
		}
		b.pass(2 * Tick)
		if b.c.take(); !b.c.ended || b.h.Stats().Closes[wirev1.Code_CODE_DRAINING] != 1 {
			t.Fatalf("it stays, with %d un-ACKed", b.h.Stats().Unacked)
		}
	}
}

// Who is not there yet, or is leaving, is not among those that hand over to other edges; a planned
// stop turns the first away, and lets the last word of the second be its last.
func TestWhoIsNotThereIsNotAskedToGo(t *testing.T) {
	for _, stop := range []bool{false, true} {
		w := newWorld(t, Limits{})
		open, leaving, waiting := w.connect(&wirev1.Hello{ClientId: "open"}), w.connect(&wirev1.Hello{}), w.dial()
		leaving.slow = true
		w.h.Event(exchange.Yield{Conn: w.h.Handle(leaving.slot)})
		w.mesh.Hold()
		waiting.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Session: "s", HeartbeatMs: 600_000})
		fresh, half := w.dial(), w.dial()
		half.bytes([]byte{0, 0, 9, byte(wirev1.FrameType_FRAME_TYPE_HELLO)})
		if stop {
			w.h.Event(exchange.Drain{DeadlineMS: 60_000})
		} else {
			w.h.Event(exchange.Rebalance{Share: 1})
		}
		w.settle()
		w.mesh.Release()
		w.settle()
		leaving.slow = false
		leaving.expect("Error SESSION_TAKEN_OVER ref=0")
		open.expect("GoAway")
		if stop {
			waiting.expect("Welcome", "GoAway")
			fresh.expect("GoAway")
			half.expect("GoAway")
			if fresh.take(); !fresh.ended || !half.ended {
				t.Fatal("who came during a stop is let in")
			}
			late := w.dial()
			if late.expect("GoAway"); !late.ended {
				t.Fatal("who came during a stop is let in")
			}
			continue
		}
		waiting.expect("Welcome")
		for _, c := range []*client{fresh, half} {
			c.kept = nil
			if c == fresh {
				c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
				c.expect("Welcome")
			} else if c.expect(); c.ended {
				t.Fatal("who has not said Hello was sent away")
			}
		}
	}
}
