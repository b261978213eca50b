package feed

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// ring bounds the recent messages of all topics together: beyond the budget the topic that was
// quiet longest loses all of its own.
type ring struct {
	newest, oldest *state
	bytes          int
}

// put keeps a topic's newest message.
func (r *ring) put(st *state, m *exchange.Message, cfg *Config) {
	r.unlink(st)
	st.ring = append(st.ring, m)
	st.size += m.Size()
	r.bytes += m.Size()
	n := 0
	for size := st.size; len(st.ring)-n > cfg.RingMessages || size > cfg.RingTopicBytes; n++ {
		size -= st.ring[n].Size()
	}
	r.trim(st, n)
	r.link(st)
	for r.bytes > cfg.RingBytes && r.oldest != nil {
		r.drop(r.oldest)
	}
}

// trim lets go of a topic's oldest n messages. The array behind the slice is replaced by append
// from time to time, which frees them for good.
func (r *ring) trim(st *state, n int) {
	for i := range n {
		st.size -= st.ring[i].Size()
		r.bytes -= st.ring[i].Size()
		st.ring[i] = nil
	}
	st.ring = st.ring[n:]
}

// drop lets go of all messages of a topic.
func (r *ring) drop(st *state) {
	r.unlink(st)
	r.bytes -= st.size
	st.ring, st.size = nil, 0
}

func (r *ring) link(st *state) {
	st.older = r.newest
	if r.newest != nil {
		r.newest.newer = st
	}
	r.newest = st
	if r.oldest == nil {
		r.oldest = st
	}
}

func (r *ring) unlink(st *state) {
	if r.newest != st && st.newer == nil {
		return // not in the list
	}
	if st.newer != nil {
		st.newer.older = st.older
	} else {
		r.newest = st.older
	}
	if st.older != nil {
		st.older.newer = st.newer
	} else {
		r.oldest = st.newer
	}
	st.newer, st.older = nil, nil
}

// Recent answers a read from the recent messages; false where these don't reach back far enough.
func (f *Feed) Recent(t string, epoch, from, to uint64, maxBytes int) (exchange.Range, bool) {
	st := f.topics[t]
	if st == nil || !st.known || len(st.ring) == 0 || epoch != 0 && epoch != st.epoch ||
		from < st.ring[0].Seq || from > st.last || to > st.last {
		return exchange.Range{}, false
	}
	r := exchange.Range{Topic: t, From: from, Epoch: st.epoch, Head: st.last, Oldest: min(max(st.oldest, 1), st.ring[0].Seq)}
	size := 0
	for _, m := range st.ring[from-st.ring[0].Seq:] {
		if to != 0 && m.Seq > to || maxBytes > 0 && size > 0 && size+m.Size() > maxBytes {
			break
		}
		size += m.Size()
		r.Messages = append(r.Messages, m)
	}
	f.stats.RingReads.Add(1)
	return r, true
}

// Ahead makes a range read from the log fit for loops: its head is never behind what they were
// sent.
func (f *Feed) Ahead(r exchange.Range) exchange.Range {
	st := f.topics[r.Topic]
	if st == nil || !st.known || r.Epoch == 0 {
		return r
	}
	switch {
	case st.epoch > r.Epoch:
		return exchange.Range{
			Topic: r.Topic, From: r.From, Epoch: st.epoch, Head: st.last, Oldest: max(st.oldest, 1),
			Err: code.New(wirev1.Code_CODE_EPOCH_CHANGED, "the topic has a new epoch"),
		}
	case st.epoch == r.Epoch:
		r.Head = max(r.Head, st.last)
	}
	return r
}

// AheadHead is Ahead for a head.
func (f *Feed) AheadHead(h exchange.Head) exchange.Head {
	st := f.topics[h.Topic]
	switch {
	case st == nil || !st.known || st.epoch < h.Epoch:
	case st.epoch > h.Epoch:
		h.Epoch, h.Head, h.Oldest, h.Behind = st.epoch, st.last, max(st.oldest, 1), 0
	default:
		h.Head = max(h.Head, st.last)
	}
	return h
}
