package delivery

import (
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ackEntry is one entry of an Ack, decoded in place.
type ackEntry struct {
	topic   []byte
	seq     uint64
	epoch   uint64
	sub     uint32
	serial  uint32 // tells it from others
	through bool
}

// ackLooks is how much of an Ack is done in one go, as looked counts; an entry costs entryLooks,
// and a message that it settles ackedLooks.
const (
	ackLooks   = 64 * looksAsOne
	entryLooks = 2
	ackedLooks = 4
)

// ackFrame takes an Ack without making garbage of it; ok is false where it is malformed, done where
// the rest of it is for another time: the connection remembers how far it has come.
func (h *Hub) ackFrame(c *conn, body []byte) (done, ok bool) {
	for rest := body[c.ackAt:]; len(rest) > 0; {
		if h.cost.Items >= ackLooks {
			h.ackLater(c, len(body)-len(rest), 0)
			return false, true
		}
		at := len(body) - len(rest)
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return true, false
		}
		rest = rest[n:]
		if n = protowire.ConsumeFieldValue(num, typ, rest); n < 0 {
			return true, false
		}
		field := rest[:n]
		rest = rest[n:]
		h.looked(entryLooks)
		if num != 1 || typ != protowire.BytesType {
			continue
		}
		raw, _ := protowire.ConsumeBytes(field)
		var e ackEntry
		if !e.decode(raw) {
			return true, false
		}
		again := c.ackSerial != 0
		if e.serial = c.ackSerial; !again {
			h.ackSerials = max(h.ackSerials+1, 1)
			e.serial = h.ackSerials
		}
		if !h.ack(c, &e, again) {
			h.ackLater(c, at, e.serial)
			return false, true
		}
		if again {
			h.ackLater(c, 0, 0)
		}
	}
	if c.ackAt != 0 || c.ackSerial != 0 {
		h.ackLater(c, 0, 0)
	}
	return true, true
}

// ackLater notes where an Ack is gone on with: at a byte of its body, with the entry that serial
// names in hand, or 0. 0 and 0: nowhere.
func (h *Hub) ackLater(c *conn, at int, serial uint32) {
	more := h.more(c)
	more.ackAt, more.ackSerial = uint32(at), serial
	h.less(c)
}

func (e *ackEntry) decode(b []byte) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		var v uint64
		switch {
		case num == 1 && typ == protowire.BytesType:
			e.topic, n = protowire.ConsumeBytes(b)
		case num == 5 && typ == protowire.Fixed64Type:
			e.epoch, n = protowire.ConsumeFixed64(b)
		case num >= 2 && num <= 4 && typ == protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
			switch num {
			case 2:
				e.seq = v
			case 3:
				e.through = v != 0
			case 4:
				e.sub = uint32(v)
			}
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

// ack does what an entry says; done is false where there is more to do. again says that it has
// begun before.
func (h *Hub) ack(c *conn, e *ackEntry, again bool) (done bool) {
	found := 0
	if ts := h.topics.Get(unsafe.String(unsafe.SliceData(e.topic), len(e.topic))); ts != nil {
		for _, t := range h.tracksOf(c, ts) {
			if e.sub != 0 && !t.hasID(e.sub) || e.epoch != 0 && e.epoch != t.epoch {
				continue
			}
			n, over := h.ackTrack(t, e)
			found += n
			if !over {
				h.stats.Acks += uint64(found)
				return false
			}
		}
	}
	for _, g := range c.groups {
		found += h.groups.ack(g, e)
	}
	if found == 0 && !again {
		h.stats.StaleAcks++
	}
	h.stats.Acks += uint64(found)
	return true
}

// ackTrack settles what an entry covers and says how many messages that were, and whether these
// were all.
func (h *Hub) ackTrack(t *track, a *ackEntry) (n int, done bool) {
	if t.win == nil {
		return 0, true
	}
	n = h.ackParked(t, a.seq, a.through)
	if t.win == nil {
		return n, true
	}
	if !a.through {
		if e := t.win.find(a.seq); e != nil && e.sends > 0 {
			h.acked(t, e)
			n++
		}
		return n, true
	}
	if t.ackSerial != a.serial {
		// what is sent from here on the entry does not cover, however long it takes
		more := h.trackmore(t)
		more.ackSerial, more.ackTo = a.serial, min(a.seq, t.win.lastSent())
	}
	to, some := t.ackTo, false
	for i := t.win.head; t.win != nil && i < len(t.win.entries); i++ {
		e := &t.win.entries[i]
		if e.seq > to {
			break
		}
		if e.m == nil || e.sends == 0 || e.nacked {
			h.looked(1)
			continue
		}
		if some && h.cost.Items >= ackLooks {
			return n, false
		}
		h.acked(t, e)
		h.looked(ackedLooks)
		n, some = n+1, true
	}
	return n, true
}

func (h *Hub) acked(t *track, e *entry) {
	if t.cur != nil {
		t.cur.Settle(e.seq, e.seq)
		h.sessions.cursorChanged(t)
	}
	h.tellDelivered(t, e.seq)
	h.leaves(t, e)
}

// ackParked takes ACKs that come after their message has left the window.
func (h *Hub) ackParked(t *track, seq uint64, through bool) (n int) {
	w := t.win
	if len(w.parked) == 0 {
		return 0
	}
	h.looked(len(w.parked))
	for _, p := range w.parked {
		if p != seq && (!through || p > seq) {
			continue
		}
		if t.cur != nil {
			t.cur.Settle(p, p)
		}
		h.tellDelivered(t, p)
	}
	h.sessions.cursorChanged(t)
	n = w.unpark(through, seq)
	h.waker.wake(t.c) // the floor may have moved
	t.c.timedOut -= min(t.c.timedOut, uint32(n))
	if len(w.parked) == 0 && len(w.live()) == 0 {
		h.giveWindow(t)
	}
	return n
}

// maxNackDelay bounds how long a Nack may put a redelivery off.
const maxNackDelay = uint32(60 * 60 * 1000)

func (h *Hub) nack(c *conn, m *wirev1.Nack) {
	h.stats.Nacks++
	found := false
	for _, g := range c.groups {
		found = h.groups.nack(g, m) || found
	}
	ts := h.topics.Get(m.GetTopic())
	if ts == nil {
		if !found {
			h.stats.StaleAcks++
		}
		return
	}
	for _, t := range h.tracksOf(c, ts) {
		if m.GetSub() != 0 && !t.hasID(m.GetSub()) || t.win == nil {
			continue
		}
		if e := t.win.find(m.GetSeq()); e != nil && e.sends > 0 && !e.queued {
			e.nacked = true
			e.due = h.now + int64(min(m.GetDelayMs(), maxNackDelay))*1e6
			h.wheel.Sooner(c.slot, e.due)
		}
	}
}
