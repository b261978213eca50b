package delivery

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// in has messages expire in so many seconds.
func (w *world) in(seconds int, all ...*exchange.Message) []*exchange.Message {
	for _, m := range all {
		m.ExpiresAt = wallStart + uint64(w.now/1000) + uint64(seconds)*1e6
	}
	return all
}

func (w *world) expired(t tester, want uint64) {
	t.Helper()
	if s := w.h.Stats(); s.Drops[wirev1.Code_CODE_EXPIRED] != want {
		t.Fatalf("%d are counted expired, want %d", s.Drops[wirev1.Code_CODE_EXPIRED], want)
	}
}

func TestMessagesExpireInTheQueue(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(0)
	m := w.mesh.Append("room/1", "a", "b", "c", "d", "e", "f")
	w.in(1, m[1], m[2], m[5])
	w.mesh.Live(m...)
	talk := upstreamtest.Run("talk", 0, 0, "a", "b", "c")
	w.in(1, talk[0], talk[1])
	w.mesh.Live(talk...)
	w.settle()
	w.pass(2 * time.Second)
	c.reads("room/1/1", "Progress room/1 2..3 EXPIRED", "room/1/4", "room/1/5", "Progress room/1 6..6 EXPIRED", "talk=c")
	w.expired(t, 5)
	w.mesh.Send("room/1", "g")
	c.reads("room/1/7")
}

// Of one that has begun to leave the rest must follow.
func TestWhatHasBegunDoesNotExpire(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(0)
	w.mesh.Live(w.in(1, upstreamtest.Run("talk", 0, 0, "a", "b")...)...)
	w.settle()
	c.in = append(c.in, w.h.Gather(c.slot, nil, 0)[0][:5]...)
	w.h.Wrote(c.slot, 5)
	w.pass(2 * time.Second)
	c.reads("talk=a")
	w.expired(t, 1)
}

// A queue all of which has expired owes nothing.
func TestWholeQueueExpires(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(0)
	for range 100 {
		w.mesh.Live(w.in(1, upstreamtest.Run("talk", 0, 0, "a")...)...)
	}
	w.settle()
	w.pass(2 * time.Second)
	if bufs := w.h.Gather(c.slot, nil, 0); len(bufs) != 0 || w.h.Status(c.slot).Owes || w.h.Stats().QueuedBytes != 0 {
		t.Fatalf("%d pieces, %+v", len(bufs), w.h.Status(c.slot))
	}
	w.h.Wrote(c.slot, 0)
	w.expired(t, 100)
	w.mesh.Live(upstreamtest.Run("talk", 0, 0, "b")...)
	c.reads("talk=b")
}

// Who waits for room goes on once what filled the queue has expired, without a write.
func TestExpiryMakesRoom(t *testing.T) {
	w := newWorld(t, Limits{QueueMessages: 8})
	c := w.lazy(0)
	w.mesh.Live(w.in(1, upstreamtest.Run("talk", 0, 0, payloads(0, 8)...)...)...)
	w.mesh.Send("room/1", "a", "b")
	w.settle()
	w.pass(2 * time.Second)
	if n := len(w.h.Gather(c.slot, nil, 0)); n != 0 {
		t.Fatalf("%d pieces", n)
	}
	w.settle()
	if !w.h.Status(c.slot).Owes {
		t.Fatal("who is behind did not go on")
	}
	c.reads("room/1/1", "room/1/2")
}

// What lies behind one write's worth is looked at when its turn comes.
func TestExpiryInALongQueue(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(0)
	for range sendq.GatherItems + 10 {
		w.mesh.Live(upstreamtest.Run("talk", 0, 0, "a")...)
	}
	w.mesh.Live(w.in(1, upstreamtest.Run("talk", 0, 0, payloads(0, 5)...)...)...)
	w.settle()
	w.pass(2 * time.Second)
	c.slow = false
	if c.take(); len(c.got) != sendq.GatherItems+10 {
		t.Fatalf("%d messages", len(c.got))
	}
	w.expired(t, 5)
}

// The window of what expired opens again.
func TestExpiredUnsentIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: 2})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	c.expect("Subscribed 1 head=0")
	c.slow = true
	m := w.mesh.Append("room/1", "a", "b", "c")
	w.in(1, m[0], m[1])
	w.mesh.Live(m...)
	w.settle()
	w.pass(2 * time.Second)
	c.reads("Progress room/1 1..2 EXPIRED", "room/1/3")
	w.expired(t, 2)
	c.ack("room/1", 3, false)
	if s := w.h.Stats(); s.Unacked != 0 || s.DeadLetters != 0 {
		t.Fatalf("%+v", s)
	}
}

// A client may wait for all that its window has room for before it ACKs anything, also where it
// reads from the log, a few messages at a time.
func TestWholeWindowIsFilledFromTheLog(t *testing.T) {
	for _, sub := range []*wirev1.Subscribe{{}, {ReceiveWindow: 7}} {
		w := newWorld(t, Limits{ReadBytes: 1}) // a message
		for range 30 {
			w.mesh.Append("room/1", "x")
		}
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: 8})
		sub.Id, sub.Filter, sub.Ack, sub.Start = 1, "room/1", true, wirev1.Start_START_EARLIEST
		c.subscribe(sub)
		want := []string{"Subscribed 1 head=30"}
		window := int(min(8, max(sub.GetReceiveWindow(), 8-8*min(sub.GetReceiveWindow(), 1))))
		for seq := 1; seq <= window; seq++ {
			want = append(want, fmt.Sprintf("room/1/%d subs=[1]", seq))
		}
		for range 8 {
			w.pass(fewAfter)
		}
		c.expect(want...)
		for seq := window; seq < 30; seq += window {
			c.ack("room/1", uint64(seq), true)
			for range 8 {
				w.pass(fewAfter)
				c.take()
			}
		}
		if c.take(); len(c.got) != 30-window {
			t.Fatalf("got %d of %d", len(c.got), 30-window)
		}
	}
}

func TestSessionsMessageExpiresInTheQueue(t *testing.T) {
	for _, ack := range []bool{true, false} {
		w := newWorld(t, Limits{})
		c := w.session()
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: ack, Start: wirev1.Start_START_SESSION})
		c.expect("Welcome", "Subscribed 1 head=0")
		c.slow = true
		w.mesh.Live(w.in(1, w.mesh.Append("room/1", "a")...)...)
		w.mesh.Live(w.mesh.Append("room/1", "b")...)
		w.settle()
		w.pass(1500 * time.Millisecond)
		c.reads("Progress room/1 1..1 EXPIRED", "room/1/2 subs=[1]")
		c.ack("room/1", 2, false)
		w.pass(1500 * time.Millisecond)
		if len(w.mesh.Letters) != 1 || w.mesh.Letters[0].GetReason() != wirev1.Code_CODE_EXPIRED || w.mesh.Letters[0].GetAttempts() != 0 {
			t.Fatalf("dead letters %v", w.mesh.Letters)
		}
		if s := w.mesh.Session("client:ann", "inbox"); s.Cursors["room/1"].GetFloor() != 2 || w.h.Stats().Unacked != 0 {
			t.Fatalf("cursor %v, %d un-ACKed", s.Cursors["room/1"], w.h.Stats().Unacked)
		}
		w.expired(t, 1)
	}
}

// What the session has already is no part of the hole.
func TestExpiryNamesWhatIsMissingAlone(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	c.expect("Welcome", "Subscribed 1 head=0")
	w.mesh.Live(w.in(3, w.mesh.Append("room/1", "a", "b", "c")...)...)
	c.expect("room/1/1 subs=[1]", "room/1/2 subs=[1]", "room/1/3 subs=[1]")
	c.ack("room/1", 2, false)
	w.pass(1500 * time.Millisecond)
	w.h.Gone(c.slot)
	w.settle()
	c = w.session()
	c.expect("Welcome resumed")
	c.slow = true
	c.subscribeSession("room/1")
	w.settle()
	w.pass(2 * time.Second)
	c.reads("Subscribed 1 head=3", "Progress room/1 1..1 EXPIRED", "Progress room/1 3..3 EXPIRED")
	w.expired(t, 2)
}

func TestRedeliveryExpiresInTheQueue(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	c.expect("Welcome", "Subscribed 1 head=0")
	w.mesh.Live(w.in(3, w.mesh.Append("room/1", "a")...)...)
	c.reads("room/1/1 subs=[1]")
	w.pass(2500 * time.Millisecond) // a redelivery is queued
	w.pass(time.Second)
	c.reads("Progress room/1 1..1 EXPIRED")
	w.pass(1500 * time.Millisecond)
	if len(w.mesh.Letters) != 1 || w.mesh.Letters[0].GetAttempts() != 1 || w.h.Stats().Unacked != 0 || w.h.Stats().QueuedBytes != 0 {
		t.Fatalf("dead letters %v, %+v", w.mesh.Letters, w.h.Stats())
	}
	w.expired(t, 1)
}

// What the dispatcher of a group assigned goes back to it, which knows what to do with messages
// that have expired.
func TestAssignedMessageExpiresInTheQueue(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{HeartbeatMs: 600_000}, &wirev1.Subscribe{Ack: true})
	c.slow = true
	msgs := w.log(2)
	w.in(1, msgs[0])
	w.mesh.Assign(m, 0, msgs...)
	w.settle()
	w.pass(1500 * time.Millisecond)
	c.reads("room/1/2 subs=[5]")
	w.expectSettled("1 UNSENT")
	c.ack("room/1", 2, false)
	w.expectSettled("2 ACKED")
	if s := w.h.Stats(); s.Unacked != 0 {
		t.Fatalf("%d un-ACKed", s.Unacked)
	}
}

// CONFLATE: the newest goes out once the one that expired does not keep it any more.
func TestNewestFollowsWhatExpired(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(wirev1.Overflow_OVERFLOW_CONFLATE)
	w.mesh.Live(w.in(1, w.mesh.Append("room/1", "a")...)...)
	w.mesh.Live(w.mesh.Append("room/1", "b")...)
	w.mesh.Live(w.mesh.Append("room/1", "c")...)
	w.settle()
	w.pass(2 * time.Second)
	c.reads("Progress room/1 1..1 EXPIRED", "Progress room/1 2..2 CONFLATED", "room/1/3")
}

// Whatever expires wherever, with priorities, ACKs and writes that end anywhere: every seq comes,
// in order, or is named.
func TestExpiryIsNamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{QueueMessages: rapid.IntRange(1, 30).Draw(t, "queue")})
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: 1000})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: rapid.Bool().Draw(t, "ack")})
		c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "talk"})
		c.expect("Subscribed 1 head=0", "Subscribed 2 head=0")
		sent, next, named := map[string]uint64{}, map[string]uint64{}, uint64(0)
		check := func() {
			c.decode()
			for _, fr := range c.got {
				switch m := fr.m.(type) {
				case *wirev1.Progress:
					if m.GetFrom() == next[m.GetTopic()]+1 && m.GetCode() == wirev1.Code_CODE_EXPIRED {
						named += m.GetTo() - m.GetFrom() + 1
						next[m.GetTopic()] = m.GetTo()
					} else if m.GetTo() > next[m.GetTopic()] {
						t.Fatalf("%s after %d", fr.text(), next[m.GetTopic()])
					}
				case *wirev1.Message:
					if m.GetSeq() == 0 || m.GetAttempt() > 0 {
						continue
					}
					if next[m.GetTopic()]++; next[m.GetTopic()] != m.GetSeq() {
						t.Fatalf("%s, want %d", fr.text(), next[m.GetTopic()])
					}
					c.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: m.GetTopic(), Seq: m.GetSeq()}}})
				}
			}
			c.got = nil
		}
		c.slow = true
		some := func(n int) {
			taken := 0
			for _, b := range w.h.Gather(c.slot, nil, 0) {
				b = b[:min(n-taken, len(b))]
				c.in, taken = append(c.in, b...), taken+len(b)
			}
			w.h.Wrote(c.slot, taken)
			w.settle()
			check()
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1, 2:
				name := rapid.SampledFrom([]string{"room/0", "room/1", "talk"}).Draw(t, "topic")
				texts := payloads(0, rapid.IntRange(1, 8).Draw(t, "run"))
				var all []*exchange.Message
				if name == "talk" {
					all = upstreamtest.Run(name, 0, 0, texts...)
				} else {
					all = w.mesh.Append(name, texts...)
					sent[name] += uint64(len(all))
				}
				for _, m := range urgent(rapid.Uint8Range(0, 9).Draw(t, "priority"), all) {
					if s := rapid.IntRange(0, 3).Draw(t, "ttl"); s > 0 {
						w.in(s, m)
					}
				}
				w.mesh.Live(all...)
				w.settle()
			case 3, 4:
				some(rapid.IntRange(0, 500).Draw(t, "bytes"))
			case 5:
				w.pass(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
				check()
			}
		}
		for range sent["room/0"] + sent["room/1"] + 12 {
			// who is behind may get one a time, and a gap behind the last is named late
			some(1 << 20)
			w.pass(time.Second)
			check()
		}
		if fmt.Sprint(next) != fmt.Sprint(sent) {
			t.Fatalf("at %v of %v", next, sent)
		}
		if s := w.h.Stats(); s.Unacked != 0 || s.QueuedBytes != 0 || s.Drops[wirev1.Code_CODE_EXPIRED] < named {
			t.Fatalf("%d named, %+v", named, s)
		}
	})
}
