package delivery

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A session holds one filter all the time, and others come and go, at any step of theirs, with
// messages and connections between: the one gets every message that it has not ACKed, and none that
// it has.
func TestNothingIsLostBesideFiltersThatComeAndGo(t *testing.T) {
	for seed := range 300 {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		w := newWorld(t, Limits{WildcardTopics: 1000})
		topics := 3 + r.IntN(90)
		for i := range topics {
			w.mesh.Append(fmt.Sprint("room/", i), "a")
		}
		kept := []string{"room/1", "room/+", "+/1", "room/#"}[r.IntN(4)]
		others := []string{"room/+", "room/1", "room/#", "#", "+/1", "room/2"}
		c := w.session()
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: kept, Ack: true, Start: wirev1.Start_START_SESSION})
		sent, acked := uint64(1), uint64(1)
		c.take()
		var log []string
		say := func(f string, a ...any) { log = append(log, fmt.Sprintf(f, a...)) }
		id, open := uint32(10), map[uint32]bool{}
		has := true // the kept filter is subscribed to on this connection
		for range 4 + r.IntN(14) {
			switch r.IntN(9) {
			case 0, 1, 2:
				id++
				f := others[r.IntN(len(others))]
				if f == kept {
					continue
				}
				say("subscribe %d %s", id, f)
				start := wirev1.Start_START_SESSION
				ack := true
				if r.IntN(4) == 0 {
					start, ack = wirev1.Start_START_LIVE, false
				}
				c.asks(&wirev1.Subscribe{Id: id, Filter: f, Ack: ack, Start: start})
				open[id] = true
			case 3, 4:
				for o := range open {
					delete(open, o)
					say("unsubscribe %d", o)
					c.kept = append(c.kept, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: o})...)
					c.feed()
					break
				}
			case 5:
				n := 1 + r.IntN(2)
				for range n {
					w.mesh.Send("room/1", "x")
				}
				sent += uint64(n)
				say("sent to %d", sent)
			case 6:
				if has && r.IntN(2) == 0 {
					w.settle()
					c.take()
					if sent > acked && r.IntN(2) == 0 {
						acked = sent - uint64(r.IntN(2))
						say("ack %d", acked)
						c.ack("room/1", acked, true)
					}
				}
			case 7:
				n := r.IntN(6)
				say("work %d", n)
				for range n {
					for _, e := range w.mail[:min(1, len(w.mail))] {
						w.mail = w.mail[1:]
						w.h.Event(e)
					}
					w.h.Work(1)
				}
			case 8:
				if r.IntN(2) == 0 {
					say("reconnect")
					w.h.Gone(c.slot)
					w.settle()
					c = w.session()
					clear(open)
					has = r.IntN(3) > 0
					if has {
						say("kept again")
						c.subscribe(&wirev1.Subscribe{Id: 1, Filter: kept, Ack: true, Start: wirev1.Start_START_SESSION})
					}
				}
			}
		}
		w.settle()
		w.h.Gone(c.slot)
		w.settle()
		c = w.session()
		c.take()
		c.got = nil
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: kept, Ack: true, Start: wirev1.Start_START_SESSION})
		w.settle()
		c.take()
		seen := map[uint64]bool{}
		for _, f := range c.got {
			if m, is := f.m.(*wirev1.Message); is && m.GetTopic() == "room/1" {
				seen[m.GetSeq()] = true
			}
		}
		for seq := uint64(1); seq <= sent; seq++ {
			if seq > acked && !seen[seq] {
				t.Errorf("seed %d, %s, %d topics: %d of %d is lost, %d are ACKed\n%s", seed, kept, topics, seq, sent, acked, strings.Join(log, "\n"))
				break
			}
			if seq <= acked && seen[seq] {
				t.Errorf("seed %d, %s, %d topics: %d of %d comes again, %d are ACKed\n%s", seed, kept, topics, seq, sent, acked, strings.Join(log, "\n"))
				break
			}
		}
		if t.Failed() {
			return
		}
	}
}
