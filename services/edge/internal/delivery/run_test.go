package delivery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/gaps"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

func payloads(first, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%d %s", first+i, strings.Repeat("x", (first+i)%50)))
	}
	return all
}

// Messages that came side by side leave as one piece, and batches that wait together cost one walk
// over the subscribers.
func TestRunsLeaveAsOnePiece(t *testing.T) {
	for _, name := range []string{"room/1", "talk"} {
		w := newWorld(t, Limits{})
		c := w.connect(&wirev1.Hello{})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: name})
		c.expect("Subscribed 1 head=0")
		first := uint64(0)
		for range 3 {
			if name == "talk" {
				w.mesh.Live(upstreamtest.Run(name, 0, 0, payloads(0, 8)...)...)
			} else {
				w.mesh.Send(name, payloads(int(first), 8)...)
				first += 8
			}
		}
		serial := w.h.fan.serial
		w.settle()
		if n := w.h.fan.serial - serial; n != 1 {
			t.Errorf("%s: %d walks for 3 batches", name, n)
		}
		if n := len(w.h.Gather(c.slot, nil, 0)); n != 3 {
			t.Errorf("%s: %d pieces for 3 batches of 8 messages", name, n)
		}
		c.take()
		if len(c.got) != 24 {
			t.Errorf("%s: %d of 24 messages", name, len(c.got))
		}
	}
}

// A track whose messages are ACKed still gets runs, and its timers start message by message.
func TestRunIsACKedInParts(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	c.expect("Subscribed 1 head=0")
	m := w.mesh.Send("room/1", payloads(0, 5)...)
	w.settle()
	if n := len(w.h.Gather(c.slot, nil, 0)); n != 1 {
		t.Errorf("%d pieces for a run", n)
	}
	w.h.Wrote(c.slot, len(m[0].Frame)+len(m[1].Frame)+3)
	w.h.SetTime(w.h.now+int64(3e9), w.h.wall+3_000_000) // longer than the ACK timeout
	for w.h.Tick(1000) {
	}
	w.settle()
	c.in = append(append(append([]byte{}, m[0].Frame...), m[1].Frame...), m[2].Frame[:3]...)
	c.expect("room/1/1", "room/1/2", "room/1/3", "room/1/4", "room/1/5", "room/1/1 attempt=1", "room/1/2 attempt=1")
	c.ack("room/1", 5, true)
	if got := w.h.Stats(); got.Unacked != 0 || got.Acks != 5 {
		t.Fatalf("un-ACKed %d, ACKs %d", got.Unacked, got.Acks)
	}
}

// reader takes what it is owed byte by byte, and knows what it must be.
type reader struct {
	*client
	next  uint64 // seq in room/1
	heard int    // of talk: the last one
	talks int    // of talk: how many
}

// some takes n bytes of what the next write would hold, or all.
func (r *reader) some(n int) {
	taken := 0
	for _, b := range r.w.h.Gather(r.slot, nil, 0) {
		b = b[:min(n-taken, len(b))]
		r.in = append(r.in, b...)
		taken += len(b)
	}
	r.w.h.Wrote(r.slot, taken)
	r.w.settle()
	r.decode()
}

func (r *reader) check(t *rapid.T) {
	for _, fr := range r.got {
		switch m := fr.m.(type) {
		case *wirev1.Progress:
			if m.GetFrom() != r.next || m.GetTo() < m.GetFrom() || m.GetCode() != wirev1.Code_CODE_QUEUE_FULL {
				t.Fatalf("%s, want a gap from %d on", fr.text(), r.next)
			}
			r.next = m.GetTo() + 1
		case *wirev1.Message:
			var number int
			if _, err := fmt.Sscan(string(m.GetPayload()), &number); err != nil || string(m.GetPayload()) != payloads(number, 1)[0] {
				t.Fatalf("%s holds %q", fr.text(), m.GetPayload())
			}
			switch {
			case m.GetTopic() == "talk" && number <= r.heard:
				t.Fatalf("%d of talk after %d", number, r.heard)
			case m.GetTopic() == "talk":
				r.heard, r.talks = number, r.talks+1
			case m.GetSeq() != r.next || uint64(number) != r.next:
				t.Fatalf("%s with %d, want %d", fr.text(), number, r.next)
			default:
				r.next++
			}
		default:
			t.Fatalf("%s", fr.text())
		}
	}
	r.got = nil
}

// Runs are cut by full queues, by writes that take a part, by what is dropped: what arrives is
// whole, in order, and what doesn't is counted.
func TestRunsAreCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{QueueMessages: rapid.IntRange(1, 40).Draw(t, "queue"), QueueBytes: rapid.IntRange(200, 4000).Draw(t, "bytes")})
		r := &reader{client: w.connect(&wirev1.Hello{HeartbeatMs: 600_000}), next: 1}
		overflow := rapid.SampledFrom([]wirev1.Overflow{wirev1.Overflow_OVERFLOW_DEFAULT, wirev1.Overflow_OVERFLOW_DROP_OLDEST}).Draw(t, "overflow")
		r.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Overflow: overflow})
		r.subscribe(&wirev1.Subscribe{Id: 2, Filter: "talk"})
		r.expect("Subscribed 1 head=0", "Subscribed 2 head=0")
		sent, talked := 0, 0
		// What lies side by side may come in parts, with writes between them.
		var rooms, talks []*exchange.Message
		post := func(waiting *[]*exchange.Message) {
			n := rapid.IntRange(0, len(*waiting)).Draw(t, "posted")
			w.mesh.Live((*waiting)[:n]...)
			*waiting = (*waiting)[n:]
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(1, 10).Draw(t, "n")
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1:
				rooms = append(rooms, w.mesh.Append("room/1", payloads(sent+1, n)...)...)
				sent += n
				post(&rooms)
			case 2:
				talks = append(talks, upstreamtest.Run("talk", 0, 0, payloads(talked+1, n)...)...)
				talked += n
				post(&talks)
			case 3:
				w.settle()
			default:
				w.settle()
				r.some(rapid.IntRange(0, 700).Draw(t, "taken"))
			}
			r.check(t)
		}
		w.mesh.Live(rooms...)
		w.mesh.Live(talks...)
		w.mesh.Send("room/1", payloads(sent+1, 1)...)
		sent++
		for range sent + 2 { // who is behind may get one message a time
			w.settle()
			r.some(1 << 20)
			r.check(t)
		}
		w.pass(gaps.Delay + time.Second) // a gap behind the last message is named late
		r.some(1 << 20)
		r.check(t)
		s := w.h.Stats()
		if r.next != uint64(sent)+1 {
			t.Fatalf("at %d of %d", r.next, sent)
		}
		dropped := talked - r.talks
		if overflow == wirev1.Overflow_OVERFLOW_DEFAULT && s.Drops[wirev1.Code_CODE_QUEUE_FULL] != uint64(dropped) {
			t.Fatalf("%d are missing, %v are counted", dropped, s.Drops)
		}
		if s.QueuedBytes != 0 || !w.h.conns.Get(r.slot).Out.IsEmpty() {
			t.Fatalf("%d bytes are queued still", s.QueuedBytes)
		}
	})
}

// Of a run that a write ended in, one message has begun: the others can be dropped, and one that
// comes later belongs to them.
func TestRunThatHasBegunIsDroppedFrom(t *testing.T) {
	w := newWorld(t, Limits{QueueMessages: 4})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"})
	c.expect("Subscribed 1 head=0")
	m := upstreamtest.Run("talk", 0, 0, payloads(1, 8)...)
	take := func(n int) {
		w.settle()
		taken := n
		for _, b := range w.h.Gather(c.slot, nil, 0) {
			b = b[:min(n, len(b))]
			c.in, n = append(c.in, b...), n-len(b)
		}
		w.h.Wrote(c.slot, taken)
	}
	w.mesh.Live(m[:4]...)
	take(len(m[0].Frame) + 3)
	w.mesh.Live(m[4:6]...)
	take(1)
	w.mesh.Live(m[6:]...)
	w.settle()
	c.slow = false
	c.take()
	var got []string
	for _, fr := range c.got {
		number, _, _ := strings.Cut(string(fr.m.(*wirev1.Message).GetPayload()), " ")
		got = append(got, number)
	}
	if want := "1 2 6 7 8"; strings.Join(got, " ") != want {
		t.Fatalf("got %v, want %s", got, want)
	}
}

// Every subscriber of a large run gets all of it, although it takes several slices and some leave
// meanwhile.
func TestRunsInSlices(t *testing.T) {
	w := newWorld(t, Limits{})
	var all []*client
	for range 50 {
		c := w.connect(&wirev1.Hello{})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
		c.expect("Subscribed 1 head=0")
		all = append(all, c)
	}
	w.h.Event(exchange.Live{Messages: w.mesh.Append("room/1", payloads(0, fanMost+10)...)})
	for i := 0; w.h.Work(1); i++ {
		if i < 10 {
			w.h.Gone(all[i].slot)
			all[i].ended = true
		}
	}
	for _, c := range all[10:] {
		c.take()
		if len(c.got) != fanMost+10 {
			t.Fatalf("%d of %d messages", len(c.got), fanMost+10)
		}
	}
}
