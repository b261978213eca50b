package delivery

import (
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
)

// endSub takes a subscription apart, some tracks at a time, and says so at the end.
func (h *Hub) endSub(s *sub, why wirev1.Code, reason string) {
	if s.dead {
		return
	}
	s.dead, s.active = true, false
	h.rooms.presence.Moved(h.handle(s.c), s.filter(), s.wildcard)
	h.jobs.push(&ending{sub: s.handle(), at: s.c.tracks.Len(), why: why, reason: reason})
}

type ending struct {
	sub     subRef
	at      int
	why     wirev1.Code
	reason  string
	refused *code.Error // instead of why, where it was never open
	removal sessions.Removal
}

func (j *ending) step(h *Hub) bool {
	s := j.sub.get()
	if s == nil || s.c.state != stateOpen {
		return true // its connection is taken apart as a whole
	}
	if !j.dropTracks(h, s) {
		return false
	}
	c, id := s.c, s.id
	if j.refused != nil {
		h.forgetSub(s)
		h.refuse(c, id, j.refused)
		return true
	}
	if s.kind == kindSession && !j.dropFilter(h, s) {
		return false
	}
	if s.open {
		h.rooms.report.Unsubscribed(h.handle(c), s.filter(), "", j.why, j.reason)
	}
	h.forgetSub(s)
	h.control(c, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id, Code: j.why, Reason: j.reason})
	return true
}

// dropTracks drops some of the tracks that the subscription has for itself, and reports whether
// these were the last.
func (j *ending) dropTracks(h *Hub, s *sub) bool {
	c := s.c
	at, n := c.tracks.At, c.tracks.Len()
	if !s.wildcard && j.at > 0 { // it has tracks at one topic alone
		all := slices.Clone(h.tracks.of(c, s.topic))
		at, n = func(i int) *track { return all[i] }, len(all)
	}
	j.at = min(j.at, n)
	var parted []*meshv1.SessionCursor
	for n := 0; j.at > 0 && n < teardownSlice; n += 1 + h.toll() {
		j.at--
		t := at(j.at)
		if !t.has(s) || h.tracks.unshare(t, s) {
			continue
		}
		if t.kind == kindSession && j.refused == nil {
			name := strings.Clone(t.topic.name)
			j.removal.Add(name)
			if t.cur != nil {
				cur := h.sessions.encodeCursor(t)
				c.sess.Put(name, cur)
				h.tracks.more(t).cur = nil
				if t.changed || t.unacked > 0 {
					parted = append(parted, cur)
				}
			}
		}
		h.tracks.drop(t)
	}
	if len(parted) > 0 {
		// the connection may end before the subscription has: no track says then what was ACKed
		w := c.sess.Write()
		w.Cursors = parted
		h.mesh.Save(h.handle(c), 0, w, false)
	}
	return j.at == 0
}

// dropFilter takes the filter out of the session, unless another subscription has the same, and
// some of the cursors that no other filter of it wants; it reports whether these were the last.
func (j *ending) dropFilter(h *Hub, s *sub) bool {
	c, sess := s.c, s.c.sess
	w := sess.Write()
	if !j.removal.Begun() {
		h.looked(c.subs.Len())
		for _, o := range c.subs.All() {
			if o != s && o.kind == kindSession && o.filter() == s.filter() {
				return true
			}
		}
		j.removal.Begin(&sess.Session, s.filter(), w)
	}
	done := j.removal.Step(&sess.Session, w, teardownSlice)
	if len(w.RemoveFilters)+len(w.RemoveTopics)+len(w.Cursors) > 0 {
		h.mesh.Save(h.handle(c), 0, w, true)
	}
	return done
}
