package delivery

import (
	"strings"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// A content filter is compiled and evaluated off the loops: a message comes with what each program
// that is in use for its topic says of it. A subscription with a filter names itself in its
// messages, and so has a track of its own or its session's.

// filter has the mesh compile the subscription's content filter; it joins after that.
func (h *Hub) filter(s *sub, m *wirev1.Subscribe) {
	s.filtered, s.unjoined = true, true
	if s.subMore == noSubMore {
		s.subMore = h.subMores.Take()
	}
	if s.kind == kindPlain {
		s.kind = kindOwn
	}
	h.mesh.Filter(h.handle(s.c), s.ref, m.GetFilter(), m.GetWhere())
}

// unfilter ends what filter began.
func (h *Hub) unfilter(s *sub) {
	h.mesh.Unfilter(h.handle(s.c), s.ref)
	s.where = 0
}

// filterReady goes on with a subscription: its messages are judged from here on.
func (h *Hub) filterReady(c *conn, e exchange.Filtered) {
	s := c.subByRef(e.Sub)
	if s == nil || s.dead || !s.unjoined {
		h.stats.StaleEvents++
		return
	}
	if e.Err != nil {
		h.refuseSub(s, e.Err)
		return
	}
	s.where, s.unjoined = e.Program, false
	h.join(s, strings.Clone(s.filter()))
}

// verdict is what content filters say of a message.
type verdict uint8

const (
	passes verdict = iota
	filtered
	unjudged // it came before the filter; the log's reader judges it again
)

// judge reports whether any of the track's subscriptions wants a message.
func (h *Hub) judge(t *track, m *exchange.Message) verdict {
	if t.kind == kindPlain {
		return passes
	}
	v := m.Verdicts.Load()
	all := t.first.judge(v)
	for i := 0; i < len(t.also) && all != passes; i++ {
		if one := t.also[i].judge(v); one != filtered {
			all = one
		}
	}
	h.looked(len(t.also))
	return all
}

func (s *sub) judge(v *exchange.Verdicts) verdict {
	if !s.filtered {
		return passes
	}
	pass, known := v.Of(s.where)
	switch {
	case pass:
		return passes
	case known:
		return filtered
	}
	return unjudged
}

// wanting are the client's numbers of the subscriptions that want a message, which one of them
// does.
func (t *track) wanting(dst []uint32, m *exchange.Message) []uint32 {
	v := m.Verdicts.Load()
	if t.first.open && t.first.judge(v) == passes {
		dst = append(dst, t.first.id)
	}
	for _, s := range t.also {
		if s.open && s.judge(v) == passes {
			dst = append(dst, s.id)
		}
	}
	if len(dst) == 0 {
		return t.ids(dst) // they ended since it was queued
	}
	return dst
}
