package loop

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// A client that does what costs much: it subscribes to a filter that very many topics match, gets a
// message of each, ACKs half of them, breaks off, comes back to its session, and unsubscribes. Each
// of these takes many turns, and a neighbour's Ping is answered in every one of them.
func TestNeighboursAreAnsweredBetweenTheSlicesOfOne(t *testing.T) {
	const topics = 4000
	l, mesh := byHand(t, poll.ModeWrite, Limits{WildcardTopics: topics, QueueMessages: topics})
	l.partTime = 0 // always over: a turn does the least
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprintf("room/%d", i)
		mesh.Append(names[i], "before")
	}
	neighbour := dial(t, l)
	neighbour.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	turnUntil(t, l, "the neighbour is there", func() bool { return l.hub.Stats().Frames == 1 && !l.turn() })
	neighbour.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})

	// until turns until done, and says in how many turns.
	pings := uint64(0)
	until := func(what string, least int, done func(s *counters.Stats) bool) {
		t.Helper()
		turns := 0
		calm := func() bool { return !l.hub.Busy() && l.box.Empty() && len(l.reads) == 0 && len(l.flushes) == 0 }
		turnUntil(t, l, what, func() bool {
			s := l.hub.Stats()
			if calm() && done(&s) {
				return true
			}
			pings++
			neighbour.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: pings})
			neighbour.arrived(l)
			l.turn()
			pong := &wirev1.Pong{}
			if neighbour.read(wirev1.FrameType_FRAME_TYPE_PONG, pong); pong.GetSentAt() != pings {
				t.Fatalf("%s: Pong %d for Ping %d", what, pong.GetSentAt(), pings)
			}
			turns++
			return false
		})
		if turns < least {
			t.Fatalf("%s: in %d turns, want %d at least", what, turns, least)
		}
	}
	dialSession := func() *client {
		c := dial(t, l)
		c.write(append(
			frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "ann", Session: "inbox", ReceiveWindow: topics}),
			frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true, Start: wirev1.Start_START_SESSION})...))
		go func() { // takes whatever comes until it is closed
			for buf := make([]byte, 64<<10); ; {
				if _, err := c.Conn.Read(buf); err != nil {
					return
				}
			}
		}()
		return c
	}
	const slices = topics / workSlice

	c := dialSession()
	until("it subscribes", slices, func(s *counters.Stats) bool { return s.Subscriptions == 1 })
	for i, name := range names {
		if mesh.Send(name, "hello"); i%1000 == 999 {
			until("it is sent what comes", 1, func(s *counters.Stats) bool { return s.Unacked == int64(i)+1 })
		}
	}
	m := &wirev1.Ack{}
	for _, name := range names[:topics/2] {
		m.Entries = append(m.Entries, &wirev1.Ack_Entry{Topic: name, Seq: 2})
	}
	c.send(wirev1.FrameType_FRAME_TYPE_ACK, m)
	until("it ACKs", 3, func(s *counters.Stats) bool { return s.Acks == topics/2 })
	_ = c.Close()
	until("it breaks off", slices, func(s *counters.Stats) bool { return s.Connections == 1 })

	c = dialSession()
	until("it resumes", slices, func(s *counters.Stats) bool { return s.Unacked == topics/2 })
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	until("it unsubscribes", slices, func(s *counters.Stats) bool { return s.Subscriptions == 0 })
	if s := mesh.Session("client:ann", "inbox"); len(s.Filters) != 0 || len(s.Cursors) != 0 {
		t.Fatalf("the session has %d filters and %d topics yet", len(s.Filters), len(s.Cursors))
	}
}
