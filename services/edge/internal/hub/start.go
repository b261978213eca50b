package hub

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// start is where a subscription asked to begin, and the heads it is measured against.
type start struct {
	mode      wirev1.Start
	seq       uint64
	epoch     uint64
	positions []*wirev1.Position
	heads     []exchange.Head
}

func startOf(m *wirev1.Subscribe) *start {
	st := &start{mode: m.GetStart(), seq: m.GetSeq(), epoch: m.GetEpoch(), positions: m.GetPositions()}
	if len(st.positions) > 0 && st.mode == wirev1.Start_START_LIVE {
		st.mode = wirev1.Start_START_AFTER_SEQ
	}
	return st
}

func (st *start) kind() trackKind {
	switch st.mode {
	case wirev1.Start_START_LIVE:
		return kindPlain
	case wirev1.Start_START_SESSION:
		return kindSession
	}
	return kindOwn
}

// place is where a track begins in one topic: behind pos. missed messages were asked for and can't be had.
type place struct {
	head      exchange.Head
	pos       uint64
	recovered bool
	missed    uint64
	cur       *cursor.Cursor
}

// after is the place behind a position that the client has.
func after(head exchange.Head, epoch, seq uint64) place {
	switch {
	case epoch != 0 && epoch != head.Epoch:
		// That log is gone. What the present one still has comes after the position.
		return place{head: head, pos: head.Oldest - 1, missed: head.Oldest - 1}
	case seq > head.Head:
		return place{head: head, pos: head.Head} // the log was rewound
	case seq+1 < head.Oldest:
		return place{head: head, pos: head.Oldest - 1, missed: head.Oldest - 1 - seq}
	}
	return place{head: head, pos: seq, recovered: true}
}

// place works out where the subscription begins in the topic of head.
func (st *start) place(head exchange.Head, wildcard bool) place {
	head.Oldest = max(head.Oldest, 1)
	switch st.mode {
	case wirev1.Start_START_EARLIEST:
		return place{head: head, pos: head.Oldest - 1, recovered: true}
	case wirev1.Start_START_LAST_N:
		pos := head.Head - min(head.Head, st.seq)
		return place{head: head, pos: max(pos, head.Oldest-1), recovered: true}
	case wirev1.Start_START_AFTER_SEQ:
		for _, p := range st.positions {
			if p.GetTopic() == head.Topic {
				return after(head, p.GetEpoch(), p.GetSeq())
			}
		}
		if !wildcard && len(st.positions) == 0 {
			return after(head, st.epoch, st.seq)
		}
	}
	return place{head: head, pos: head.Head, recovered: true}
}

// resume is the place of a session that has a cursor in the topic.
func resume(head exchange.Head, cur *cursor.Cursor) place {
	head.Oldest = max(head.Oldest, 1)
	p := after(head, cur.Epoch, cur.Floor)
	p.cur = cur
	if cur.Epoch != head.Epoch || cur.Floor > head.Head {
		p.cur = &cursor.Cursor{Epoch: head.Epoch, Floor: p.pos}
		return p
	}
	if p.missed > 0 {
		p.missed = cur.Missing(cur.Floor+1, head.Oldest-1)
		cur.Settle(cur.Floor+1, head.Oldest-1)
		p.pos = cur.Floor
		p.recovered = p.missed == 0
	}
	return p
}

// storeFirst has the session's first positions stored before Subscribed; false where nothing is new.
func (h *Hub) storeFirst(s *sub) bool {
	sess := s.c.sess
	known := slices.Contains(sess.filters, s.filter)
	w := sessionWrite(sess)
	for _, head := range s.start.heads {
		if sess.cursors[head.Topic] != nil || h.sessionTrack(s.c, head.Topic) != nil {
			continue
		}
		cur := &cursor.Cursor{Epoch: head.Epoch}
		if !known {
			cur.Floor = head.Head
		}
		first := cur.Encode(head.Topic)
		sess.cursors[head.Topic] = first
		w.Cursors = append(w.Cursors, first)
	}
	if known && len(w.Cursors) == 0 {
		return false
	}
	if !known {
		sess.filters = append(sess.filters, s.filter)
		w.AddFilters = []string{s.filter}
	}
	if sess.waiting == nil {
		sess.waiting = map[uint32]*sub{}
	}
	sess.waiting[s.ref] = s
	h.mesh.Save(h.handle(s.c), s.ref, w, true)
	return true
}

func (h *Hub) sessionTrack(c *conn, name string) *track {
	ts := h.topics[name]
	if ts == nil {
		return nil
	}
	for _, t := range h.tracksOf(c, ts) {
		if t.kind == kindSession {
			return t
		}
	}
	return nil
}

// dropFilter takes a filter, and cursors that no other filter of the session wants, out of the session.
func (h *Hub) dropFilter(s *sub, topics []string) {
	sess := s.c.sess
	w := sessionWrite(sess)
	if slices.ContainsFunc(s.c.subs, func(o *sub) bool { return o.kind == kindSession && o.filter == s.filter }) {
		return
	}
	sess.filters = slices.DeleteFunc(sess.filters, func(f string) bool { return f == s.filter })
	w.RemoveFilters = []string{s.filter}
	w.RemoveTopics = slices.DeleteFunc(topics, func(name string) bool {
		return slices.ContainsFunc(sess.filters, func(f string) bool { return topic.Match(f, name) })
	})
	h.mesh.Save(h.handle(s.c), 0, w, true)
}

// activation makes a subscription's tracks, some at a time; live messages wait meanwhile, so that none slips between.
type activation struct {
	s      *sub
	places []place
	at     int
}

// activate answers Subscribed and begins.
func (h *Hub) activate(s *sub) {
	c, st := s.c, s.start
	s.start = nil
	j := &activation{s: s, places: make([]place, 0, len(st.heads))}
	for _, head := range st.heads {
		j.places = append(j.places, h.placeOf(s, st, head))
	}
	answer := &wirev1.Subscribed{Id: s.id, Recovered: true}
	for i := range j.places {
		p := &j.places[i]
		answer.Recovered = answer.Recovered && p.recovered
		answer.Missed += p.missed
		if s.wildcard {
			answer.Positions = append(answer.Positions, &wirev1.Subscribed_TopicPosition{
				Topic: p.head.Topic, Epoch: p.head.Epoch, Head: p.head.Head, Recovered: p.recovered, Missed: p.missed,
			})
			continue
		}
		answer.Epoch, answer.Head = p.head.Epoch, p.head.Head
	}
	for _, p := range st.gone() {
		answer.Recovered = false
		if s.wildcard {
			answer.Positions = append(answer.Positions, &wirev1.Subscribed_TopicPosition{Topic: p.GetTopic()})
		}
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, answer)
	h.starts.push(j)
}

// gone are positions in topics that no log knows.
func (st *start) gone() (out []*wirev1.Position) {
	for _, p := range st.positions {
		if p.GetSeq() > 0 && !slices.ContainsFunc(st.heads, func(h exchange.Head) bool { return h.Topic == p.GetTopic() }) {
			out = append(out, p)
		}
	}
	if len(st.heads) == 0 && len(st.positions) == 0 && st.mode == wirev1.Start_START_AFTER_SEQ && st.seq > 0 {
		out = append(out, &wirev1.Position{Seq: st.seq})
	}
	return out
}

// placeOf also takes into account what the connection's tracks have been given already.
func (h *Hub) placeOf(s *sub, st *start, head exchange.Head) place {
	if ts := h.topics[head.Topic]; ts != nil {
		if t := h.trackFor(s, ts); t != nil && t.epoch == head.Epoch {
			head.Head = max(head.Head, t.pos)
			return place{head: head, pos: t.pos, recovered: true}
		}
	}
	if s.kind == kindSession {
		if cur := s.c.sess.takeCursor(head.Topic); cur != nil {
			return resume(head, cur)
		}
		return place{head: head, pos: head.Head, recovered: true, cur: &cursor.Cursor{Epoch: head.Epoch, Floor: head.Head}}
	}
	return st.place(head, s.wildcard)
}

// startSlice goes on with the activation in hand and says how much it did.
func (h *Hub) startSlice() int {
	if h.starts.len() == 0 {
		return 0
	}
	j := *h.starts.peek()
	n := 0
	for ; n < teardownSlice && j.at < len(j.places); n++ {
		if j.s.dead || j.s.c.state != stateOpen {
			j.at = len(j.places)
			break
		}
		h.begin1(j.s, &j.places[j.at])
		j.at++
	}
	if j.at == len(j.places) {
		h.starts.pop()
		h.activated(j.s)
	}
	return n + 1
}

// begin1 makes the subscription's track in one topic.
func (h *Hub) begin1(s *sub, p *place) {
	ts := h.topic(p.head.Topic)
	if t := h.trackFor(s, ts); t != nil {
		h.share(t, s)
		return
	}
	t := h.addTrack(s, ts)
	s.topics++
	t.epoch, t.pos, t.cur = p.head.Epoch, p.pos, p.cur
	level := p.head.Head
	if ts.epoch == t.epoch {
		level = max(level, ts.last)
	}
	if t.pos < level {
		t.behind = true
		h.run(t)
	}
}

func (h *Hub) activated(s *sub) {
	if s.dead || s.c.state != stateOpen {
		return
	}
	s.active = true
	if s.wildcard {
		h.wildLog.add(s)
		return
	}
	ts := h.topic(s.filter)
	if t := h.trackFor(s, ts); t == nil {
		h.addTrack(s, ts)
	} else {
		h.share(t, s)
	}
}
