package delivery

import (
	"unsafe"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/unacked"
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
)

// ackEntry is one entry of an Ack, decoded in place.
type ackEntry struct {
	frames.AckEntry
	serial uint32 // tells it from others
}

// ackLooks is how much of an Ack is done in one go, as addCost counts; an entry costs entryLooks,
// and a message that it settles ackedLooks.
const (
	ackLooks   = 64 * itemsPerUnit
	entryLooks = 2
	ackedLooks = 4
)

// acks takes what clients answer to messages.
type acks struct {
	hub     *Hub
	serials uint32 // given to entries of Acks
}

// frame takes an Ack without making garbage of it; ok is false where it is malformed, done where
// the rest of it is for another time: the connection remembers how far it has come.
func (k *acks) frame(c *state.Conn, body []byte) (done, ok bool) {
	for at := int(c.AckAt); at < len(body); {
		if k.hub.cost.Items >= ackLooks {
			k.later(c, at, 0)
			return false, true
		}
		field, is, n := frames.NextAckField(body[at:])
		if n == 0 {
			return true, false
		}
		k.hub.addCost(entryLooks)
		begin := at
		if at += n; !is {
			continue
		}
		e := ackEntry{AckEntry: field}
		again := c.AckSerial != 0
		if e.serial = c.AckSerial; !again {
			k.serials = max(k.serials+1, 1)
			e.serial = k.serials
		}
		if !k.entry(c, &e, again) {
			k.later(c, begin, e.serial)
			return false, true
		}
		if again {
			k.later(c, 0, 0)
		}
	}
	if c.AckAt != 0 || c.AckSerial != 0 {
		k.later(c, 0, 0)
	}
	return true, true
}

// later notes where an Ack is gone on with: at a byte of its body, with the entry that serial
// names in hand, or 0. 0 and 0: nowhere.
func (k *acks) later(c *state.Conn, at int, serial uint32) {
	more := k.hub.conns.More(c)
	more.AckAt, more.AckSerial = uint32(at), serial
	k.hub.conns.Less(c)
}

// entry does what an entry says; done is false where there is more to do. again says that it has
// begun before.
func (k *acks) entry(c *state.Conn, e *ackEntry, again bool) (done bool) {
	found := 0
	if ts := k.hub.topics.ByName.Get(unsafe.String(unsafe.SliceData(e.Topic), len(e.Topic))); ts != nil {
		for _, t := range k.hub.tracks.Of(c, ts) {
			if e.Sub != 0 && !t.HasID(e.Sub) || e.Epoch != 0 && e.Epoch != t.Epoch {
				continue
			}
			n, done := k.track(t, e)
			found += n
			if !done {
				k.hub.stats.Acks += uint64(found)
				return false
			}
		}
	}
	found += k.hub.groups.ackEntry(c, e)
	if found == 0 && !again {
		k.hub.stats.StaleAcks++
	}
	k.hub.stats.Acks += uint64(found)
	return true
}

// track settles what an entry covers and says how many messages that were, and whether these
// were all.
func (k *acks) track(t *state.Track, a *ackEntry) (n int, done bool) {
	if t.Win == nil {
		return 0, true
	}
	n = k.parked(t, a.Seq, a.Through)
	if t.Win == nil {
		return n, true
	}
	if !a.Through {
		if e := t.Win.Find(a.Seq); e != nil && e.Sends > 0 {
			k.acked(t, e)
			n++
		}
		return n, true
	}
	if t.AckSerial != a.serial {
		// what is sent from here on the entry does not cover, however long it takes
		more := k.hub.tracks.More(t)
		more.AckSerial, more.AckTo = a.serial, min(a.Seq, t.Win.LastSent())
	}
	to, some := t.AckTo, false
	for i := t.Win.First(); t.Win != nil && i < t.Win.End(); i++ {
		e := t.Win.At(i)
		if e.Seq > to {
			break
		}
		if e.Message == nil || e.Sends == 0 || e.Nacked {
			k.hub.addCost(1)
			continue
		}
		if some && k.hub.cost.Items >= ackLooks {
			return n, false
		}
		k.acked(t, e)
		k.hub.addCost(ackedLooks)
		n, some = n+1, true
	}
	return n, true
}

func (k *acks) acked(t *state.Track, e *unacked.Entry) {
	if t.Cursor != nil {
		t.Cursor.Settle(e.Seq, e.Seq)
		k.hub.sessions.cursorChanged(t)
	}
	k.hub.tellDelivered(t, e.Seq)
	k.hub.windows.remove(t, e)
}

// parked takes ACKs that come after their message has left the window.
func (k *acks) parked(t *state.Track, seq uint64, through bool) (n int) {
	w := t.Win
	if w.Parked() == 0 {
		return 0
	}
	k.hub.addCost(w.Parked())
	n = w.Unpark(through, seq, func(seq uint64) {
		if t.Cursor != nil {
			t.Cursor.Settle(seq, seq)
		}
		k.hub.tellDelivered(t, seq)
	})
	k.hub.sessions.cursorChanged(t)
	k.hub.waker.Wake(t.Conn) // the floor may have moved
	t.Conn.TimedOut -= min(t.Conn.TimedOut, uint32(n))
	k.hub.windows.giveEmpty(t)
	return n
}

// tellDelivered reports that a message was ACKed, in a namespace that asks for that.
func (h *Hub) tellDelivered(t *state.Track, seq uint64) {
	if h.rooms.report.Wants(events.Delivered) && h.topics.Policy(t.Topic).DeliveredEvents {
		h.rooms.report.Delivered(h.handle(t.Conn), t.Topic.Name(), "", t.Epoch, seq)
	}
}

// maxNackDelay bounds how long a Nack may put a redelivery off.
const maxNackDelay = uint32(60 * 60 * 1000)

// keptDelay is the longest such delay, in milliseconds, for which a message is kept: after a longer
// one it is read from the log again. Kept ones hold all that came with them in memory.
const keptDelay = uint32(30 * 1000)

func (k *acks) nack(c *state.Conn, m *wirev1.Nack) {
	k.hub.stats.Nacks++
	found := false
	for _, g := range k.hub.groups.concerned(c, m.GetSub()) {
		found = k.hub.groups.nack(g, m) || found
	}
	ts := k.hub.topics.ByName.Get(m.GetTopic())
	if ts == nil {
		if !found {
			k.hub.stats.StaleAcks++
		}
		return
	}
	for _, t := range k.hub.tracks.Of(c, ts) {
		if m.GetSub() != 0 && !t.HasID(m.GetSub()) || t.Win == nil {
			continue
		}
		if e := t.Win.Find(m.GetSeq()); e != nil && e.Sends > 0 && !e.Queued {
			e.Nacked, e.Wanted = true, false
			e.Due = k.hub.now + int64(min(m.GetDelayMs(), maxNackDelay))*1e6
			k.hub.wheel.Sooner(c.Slot, e.Due)
			if m.GetDelayMs() > keptDelay && !t.Win.IsReleased(e) {
				k.hub.stats.Released++
				k.hub.windows.counted(t, 0, -t.Win.Release(e))
			}
		}
	}
}
