package hub

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ackEntry is one entry of an Ack, decoded in place.
type ackEntry struct {
	topic   []byte
	seq     uint64
	epoch   uint64
	sub     uint32
	through bool
}

// ackFrame takes an Ack without making garbage of it; false where it is malformed.
func (h *Hub) ackFrame(c *conn, body []byte) bool {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return false
		}
		body = body[n:]
		if num != 1 || typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, body); n < 0 {
				return false
			}
			body = body[n:]
			continue
		}
		raw, n := protowire.ConsumeBytes(body)
		if n < 0 {
			return false
		}
		body = body[n:]
		var e ackEntry
		if !e.decode(raw) {
			return false
		}
		h.ack(c, &e)
	}
	return true
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

func (h *Hub) ack(c *conn, e *ackEntry) {
	found := 0
	if ts := h.topics[string(e.topic)]; ts != nil {
		for _, t := range h.tracksOf(c, ts) {
			if e.sub != 0 && !t.hasID(e.sub) || e.epoch != 0 && e.epoch != t.epoch {
				continue
			}
			found += h.ackTrack(t, e.seq, e.through)
		}
	}
	if found == 0 {
		h.stats.StaleAcks++
	}
	h.stats.Acks += uint64(found)
}

// ackTrack settles what an entry covers and says how many messages that were.
func (h *Hub) ackTrack(t *track, seq uint64, through bool) (n int) {
	if t.win == nil {
		return 0
	}
	n = h.ackParked(t, seq, through)
	if t.win == nil {
		return n
	}
	if !through {
		if e := t.win.find(seq); e != nil && e.sends > 0 {
			h.acked(t, e)
			n++
		}
		return n
	}
	for i := t.win.head; t.win != nil && i < len(t.win.entries); i++ {
		e := &t.win.entries[i]
		if e.seq > seq {
			break
		}
		if e.m != nil && e.sends > 0 && !e.nacked {
			h.acked(t, e)
			n++
		}
	}
	return n
}

func (h *Hub) acked(t *track, e *entry) {
	if t.cur != nil {
		t.cur.Settle(e.seq, e.seq)
		h.cursorChanged(t)
	}
	h.leaves(t, e)
}

// ackParked takes ACKs that come after their message has left the window.
func (h *Hub) ackParked(t *track, seq uint64, through bool) (n int) {
	w := t.win
	if len(w.parked) == 0 {
		return 0
	}
	if t.cur != nil {
		for _, p := range w.parked {
			if p == seq || through && p < seq {
				t.cur.Settle(p, p)
			}
		}
		h.cursorChanged(t)
	}
	n = w.unpark(through, seq)
	h.wake(t.c) // the floor may have moved
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
	ts := h.topics[m.GetTopic()]
	if ts == nil {
		h.stats.StaleAcks++
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
