package delivery

import (
	"bytes"
	"cmp"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// taker is a client that ACKs what it is sent in a way of its own, and counts by topic what came
// for the first time.
type taker struct {
	*client
	unacked []spot
	came    map[string]int
}

// look takes what came.
func (r *taker) look() {
	r.take()
	for _, fr := range r.got {
		if m, ok := fr.m.(*wirev1.Message); ok {
			r.unacked = append(r.unacked, spot{m.GetTopic(), m.GetSeq()})
			if m.GetAttempt() == 0 {
				r.came[m.GetTopic()]++
			}
		}
	}
	r.got = nil
}

func (r *taker) ackAt(i int) {
	at := r.unacked[i]
	r.unacked = append(r.unacked[:i], r.unacked[i+1:]...)
	r.ack(at.name, at.seq, false)
}

// fallenBehind connects a client with n subscriptions that all have a backlog of so many messages.
func fallenBehind(w *world, n, backlog int, window uint32, start func(i int) *wirev1.Subscribe) *taker {
	w.t.Helper()
	r := &taker{client: w.dial(), came: map[string]int{}}
	r.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "ann", Session: "s", HeartbeatMs: 600_000, ReceiveWindow: window})
	for i := range n {
		m := start(i)
		m.Id, m.Filter, m.Ack = uint32(i)+1, fmt.Sprintf("room/%d", i), true
		r.subscribe(m)
	}
	for i := range n {
		w.mesh.Append(fmt.Sprintf("room/%d", i), payloads(0, backlog)...)
	}
	for i := range n {
		w.mesh.Send(fmt.Sprintf("room/%d", i), "last")
	}
	return r
}

func fromTheBeginning(int) *wirev1.Subscribe {
	return &wirev1.Subscribe{Start: wirev1.Start_START_EARLIEST}
}

func TestASmallWindowIsSharedByAllWhoAreBehind(t *testing.T) {
	for _, window := range []uint32{1, 2, 8, 64} {
		w := newWorld(t, Limits{})
		r := fallenBehind(w, 3, 400, window, fromTheBeginning)
		for range 300 {
			if r.look(); len(r.unacked) > 0 {
				r.ackAt(0)
			}
			w.pass(20 * time.Millisecond)
		}
		for i := range 3 {
			if n := r.came[fmt.Sprintf("room/%d", i)]; n < 60 {
				t.Errorf("window %d: of 300 messages ACKed %d were of room/%d: %v", window, n, i, r.came)
			}
		}
	}
}

// However small the window is, whatever kinds of subscriptions are behind and however the client
// ACKs: each of them has its part of what is delivered.
func TestEveryoneWhoIsBehindGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Uint32Range(1, 64).Draw(t, "window")
		n := rapid.IntRange(2, 6).Draw(t, "subscriptions")
		w := newWorld(t, Limits{QueueMessages: rapid.SampledFrom([]int{16, 64, 1024}).Draw(t, "queue"), ReadBytes: rapid.SampledFrom([]int{200, 4000, 128 << 10}).Draw(t, "read")})
		own := make([]int, n) // windows
		r := fallenBehind(w, n, 600, window, func(i int) *wirev1.Subscribe {
			m := &wirev1.Subscribe{
				Start:         rapid.SampledFrom([]wirev1.Start{wirev1.Start_START_EARLIEST, wirev1.Start_START_SESSION, wirev1.Start_START_LIVE}).Draw(t, "start"),
				ReceiveWindow: rapid.SampledFrom([]uint32{0, 0, 1, 5}).Draw(t, "own window"),
			}
			own[i] = int(min(window, cmp.Or(m.GetReceiveWindow(), window)))
			return m
		})
		away := rapid.IntRange(-1, n-1).Draw(t, "whose owner is away")
		w.mesh.Away(fmt.Sprintf("room/%d", away), true)
		way := rapid.SampledFrom([]string{"oldest", "any", "all"}).Draw(t, "ACKs")
		total := 0
		for rounds := 0; total < 60*n && rounds < 4000; rounds++ {
			switch r.look(); {
			case len(r.unacked) == 0:
			case way == "oldest":
				r.ackAt(0)
			case way == "any":
				r.ackAt(rapid.IntRange(0, len(r.unacked)-1).Draw(t, "which"))
			default:
				for len(r.unacked) > 0 {
					r.ackAt(0)
				}
			}
			w.pass(20 * time.Millisecond)
			total = 0
			for _, came := range r.came {
				total += came
			}
		}
		for i := range n {
			if i == away {
				continue
			}
			part := 4 * max(n, int(window)/own[i]) // one in so many, at least
			if came := r.came[fmt.Sprintf("room/%d", i)]; came < total/part {
				t.Fatalf("%d of %d messages were of room/%d, whose window is %d of %d: %v", came, total, i, own[i], window, r.came)
			}
		}
	})
}

// A member of a group and the subscriptions beside it share the connection's window too.
func TestAGroupAndItsNeighboursShareTheWindow(t *testing.T) {
	w := newWorld(t, Limits{})
	r := fallenBehind(w, 2, 400, 4, fromTheBeginning)
	r.subscribe(&wirev1.Subscribe{Id: 9, Group: "g", Filter: "room/9", Ack: true})
	member := w.mesh.Members()[0]
	left := w.mesh.Append("room/9", payloads(0, 500)...)
	given := 0
	assign := func(most int) {
		for ; most > 0 && given < 4 && len(left) > 0; most-- {
			w.mesh.Assign(member, 0, left[0])
			left, given = left[1:], given+1
		}
	}
	for range 300 {
		assign(4)
		if r.look(); len(r.unacked) > 0 {
			r.ackAt(0)
		}
		w.pass(20 * time.Millisecond)
		for _, s := range w.mesh.Settled() {
			given--
			if s.How.String() == "HOW_UNSENT" {
				left = append(left, upstreamtest.Encode("room/9", s.Message.Epoch, s.Message.Seq, "x"))
			}
		}
	}
	for _, name := range []string{"room/0", "room/1", "room/9"} {
		if r.came[name] < 50 {
			t.Errorf("of 300 messages ACKed %d were of %s: %v", r.came[name], name, r.came)
		}
	}
}

// Whatever its client does, what a member was assigned does not stay with it unread: within
// ack_timeout of the assignment it has left, or goes back, and within ack_timeout of having left it
// is ACKed or goes back.
func TestWhatIsAssignedDoesNotStayUnread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{QueueMessages: rapid.SampledFrom([]int{2, 16, 1024}).Draw(t, "queue")})
		window := rapid.Uint32Range(1, 8).Draw(t, "window")
		c, m := w.member(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: window}, &wirev1.Subscribe{Ack: rapid.Bool().Draw(t, "ack")})
		c.subscribe(&wirev1.Subscribe{Id: 6, Filter: "talk"})
		with := map[uint64]bool{}
		settle := func() {
			w.settle()
			for _, s := range w.mesh.Settled() {
				if s.How != meshv1.GroupSettle_HOW_ACKED && !with[s.Message.Seq] {
					t.Fatalf("%d is settled twice", s.Message.Seq)
				}
				delete(with, s.Message.Seq)
			}
		}
		gone := func() bool { return len(w.mesh.Members()) == 0 }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if gone() { // it has let a window's worth time out
				return
			}
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0, 1, 2:
				if now := w.mesh.Members()[0]; !now.Paused && len(with) < int(window) {
					msg := w.log(1)[0]
					with[msg.Seq] = true
					w.mesh.Assign(m, 0, msg)
				}
			case 3:
				if c.slow = !c.slow; c.slow {
					w.h.Stalled(c.slot, Held{Memory: 1})
				} else {
					w.h.StallEnded(c.slot)
				}
			case 4:
				w.mesh.Live(upstreamtest.Encode("talk", 0, 0, "x"))
			case 5:
				c.take()
				c.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: rapid.Uint64Range(1, 20).Draw(t, "seq"), Through: rapid.Bool().Draw(t, "through")}}})
			case 6:
				if c.slow && w.h.Status(c.slot).Owes { // the kernel takes a part
					all := bytes.Join(w.h.Gather(c.slot, nil, 0), nil)
					some := all[:rapid.IntRange(0, len(all)-1).Draw(t, "bytes")]
					c.in = append(c.in, some...)
					w.h.Wrote(c.slot, len(some))
				}
			case 7:
				w.pass(time.Duration(rapid.IntRange(0, 2500).Draw(t, "ms")) * time.Millisecond)
			}
			settle()
		}
		w.pass(2 * 2100 * time.Millisecond)
		if settle(); len(with) > 0 && !gone() {
			t.Fatalf("%v stay with a member that does not read or ACK", with)
		}
	})
}
