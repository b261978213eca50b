package assignment

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Whatever members do, and however dispatchers end, nothing is missing, what comes twice says so,
// windows hold, a key is with one member at a time and keeps its order, and each message is ACKed
// or a dead letter once.
func TestWhateverHappens(t *testing.T) {
	for _, k := range []string{"", "topic", "header:k"} {
		t.Run("key "+k, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { happen(newWorld(t, k)) })
		})
	}
}

func happen(w *world) {
	t := w.t
	for range rapid.IntRange(10, 120).Draw(t, "steps") {
		all, busy := w.members(false), w.members(true)
		switch step := rapid.IntRange(0, 99).Draw(t, "step"); {
		case step < 30:
			topic := rapid.SampledFrom(topics).Draw(t, "topic")
			w.publish(topic, rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(t, "k"), rapid.IntRange(0, 9).Draw(t, "live") > 0)
		case step < 40 && len(all) < 5:
			w.join(nil)
		case step < 46 && len(all) > 0: // a member dies
			m := rapid.SampledFrom(all).Draw(t, "dies")
			for _, a := range w.has[m] {
				w.refused[id(a.Message)]++
			}
			w.gone(m)
			w.c.Leave(m)
		case step < 47 && len(all) > 0: // an edge dies
			edge := rapid.SampledFrom(all).Draw(t, "edge").Edge
			for _, m := range all {
				if m.Edge == edge {
					w.gone(m)
				}
			}
			w.c.LeaveEdge(edge)
		case step < 50 && len(all) > 0: // its edge says again what it has
			w.rejoin(rapid.SampledFrom(all).Draw(t, "again"))
		case step < 54 && len(all) > 0: // it takes nothing more, or takes messages again
			m := rapid.SampledFrom(all).Draw(t, "pauses")
			w.paused[m] = !w.paused[m]
			w.rejoin(m)
		case step < 56 && len(all) > 0:
			// nobody takes anything, and the dispatcher may move meanwhile
			w.pauseAll()
			switch rapid.IntRange(0, 2).Draw(t, "moves") {
			case 1: // as planned
				w.save(true)
				w.renew(!w.c.Clean())
			case 2: // it is killed
				w.strict = false
				w.renew(true)
			}
		case step < 90 && len(busy) > 0:
			m := rapid.SampledFrom(busy).Draw(t, "member")
			a := w.take(m, rapid.IntRange(0, len(w.has[m])-1).Draw(t, "which"))
			how := rapid.SampledFrom([]meshv1.GroupSettle_How{
				meshv1.GroupSettle_HOW_ACKED, meshv1.GroupSettle_HOW_ACKED, meshv1.GroupSettle_HOW_ACKED,
				meshv1.GroupSettle_HOW_TIMEOUT, meshv1.GroupSettle_HOW_NACKED,
			}).Draw(t, "how")
			w.settle(m, a, how, uint32(rapid.IntRange(0, 3).Draw(t, "delay")))
		case step < 93:
			w.save(false)
		case step < 95: // a planned handover: members keep what they have
			w.save(true)
			w.renew(!w.c.Clean())
		case step < 97: // the dispatcher is killed; its members say what they have
			w.strict = false
			w.renew(true)
		case step < 98: // with its members
			w.strict = false
			clear(w.windows)
			clear(w.paused)
			clear(w.has)
			clear(w.words)
			w.renew(true)
		default:
			w.now += 2e6
			w.c.Advance(w.now, 1)
			w.full = rapid.Bool().Draw(t, "full")
		}
		w.step()
	}
	w.finish()
}

// renew begins a new dispatcher.
func (w *world) renew(unclean bool) {
	w.begin(true, unclean)
	for _, m := range w.members(false) {
		w.rejoin(m)
	}
}

// finish has members that ACK everything take what is left.
func (w *world) finish() {
	w.full = false
	all := w.members(false)
	for _, m := range all { // nobody else comes: those that paused take what is left
		w.paused[m] = false
		w.rejoin(m)
	}
	if len(all) == 0 {
		w.join(nil)
	}
	for topic := range w.logs {
		w.publish(topic, "", true) // shows what live messages were lost
	}
	for range 1000 {
		w.now += 1e9
		w.c.Advance(w.now, 1)
		w.step()
		busy := w.members(true)
		if len(busy) == 0 {
			break
		}
		for _, m := range busy {
			for len(w.has[m]) > 0 {
				w.settle(m, w.take(m, 0), meshv1.GroupSettle_HOW_ACKED, 0)
			}
		}
	}
	w.save(true)
	for topic, log := range w.logs {
		cur := w.stored[topic]
		if cur.GetFloor() != uint64(len(log)) || len(cur.GetAcked())+len(cur.GetAttempts()) > 0 {
			w.t.Fatalf("%s ends at %v, its log at %d", topic, cur, len(log))
		}
		for _, m := range log {
			k := id(m)
			if !w.acked[k] && w.letters[k] == 0 {
				w.t.Fatalf("%v was neither ACKed nor made a dead letter", k)
			}
			if w.letters[k] > 1 {
				w.t.Fatalf("%v is a dead letter %d times", k, w.letters[k])
			}
		}
	}
	if w.c.queued != 0 || w.c.bytes != 0 || w.c.tasks != 0 || w.c.kept != 0 || len(w.c.lanes) != 0 || len(w.c.delayed) != 0 {
		w.t.Fatalf("left: %d queued, %d bytes, %d lanes, %d delayed", w.c.queued, w.c.bytes, len(w.c.lanes), len(w.c.delayed))
	}
}
