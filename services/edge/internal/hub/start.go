package hub

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
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
	byTopic   map[string]*wirev1.Position
	heads     []exchange.Head
}

func startOf(m *wirev1.Subscribe) *start {
	st := &start{mode: m.GetStart(), seq: m.GetSeq(), epoch: m.GetEpoch(), positions: m.GetPositions()}
	if len(st.positions) > 0 && st.mode == wirev1.Start_START_LIVE {
		st.mode = wirev1.Start_START_AFTER_SEQ
	}
	return st
}

// index makes positions quick to find; the first of a topic counts.
func (st *start) index() {
	if len(st.positions) == 0 {
		return
	}
	st.byTopic = make(map[string]*wirev1.Position, len(st.positions))
	for _, p := range st.positions {
		if st.byTopic[p.GetTopic()] == nil {
			st.byTopic[p.GetTopic()] = p
		}
	}
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
	fresh     bool     // cur is not stored yet
	shared    trackRef // that is there already
}

// after is the place behind a position that the client has.
func after(head exchange.Head, epoch, seq uint64) place {
	switch {
	case epoch != 0 && epoch != head.Epoch:
		// That log is gone. What the present one still has comes after the position.
		return place{head: head, pos: head.Oldest - 1, missed: head.Oldest - 1}
	case seq > head.Head:
		// The log was rewound: what it has now is not what the client had under these numbers.
		return place{head: head, pos: head.Oldest - 1, missed: head.Oldest - 1}
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
		if p := st.byTopic[head.Topic]; p != nil {
			return after(head, p.GetEpoch(), p.GetSeq())
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
func (h *Hub) storeFirst(s *sub, w *meshv1.SessionWrite) bool {
	sess := s.c.sess
	if w == nil {
		w = sessionWrite(sess)
	}
	if !slices.Contains(sess.filters, s.filter()) {
		sess.filters = append(sess.filters, s.filter())
		w.AddFilters = []string{s.filter()}
	}
	if len(w.Cursors) == 0 && len(w.AddFilters) == 0 {
		return false
	}
	if sess.waiting == nil {
		sess.waiting = map[uint32]subRef{}
	}
	sess.waiting[s.ref] = s.handle()
	h.mesh.Save(h.handle(s.c), s.ref, w, true)
	return true
}

// dropFilter takes a filter, and cursors that no other filter of the session wants, out of the session.
func (h *Hub) dropFilter(c *conn, name string, topics []string) {
	sess := c.sess
	w := sessionWrite(sess)
	if slices.ContainsFunc(c.subs(), func(o *sub) bool { return o.kind == kindSession && o.filter() == name }) {
		return
	}
	sess.filters = slices.DeleteFunc(sess.filters, func(f string) bool { return f == name })
	w.RemoveFilters = []string{name}
	for _, at := range topics {
		if slices.ContainsFunc(sess.filters, func(f string) bool { return topic.Match(f, at) }) {
			if cur := sess.cursors[at]; cur != nil {
				w.Cursors = append(w.Cursors, cur) // another filter of the session goes on from here
			}
			continue
		}
		delete(sess.cursors, at)
		w.RemoveTopics = append(w.RemoveTopics, at)
	}
	h.mesh.Save(h.handle(c), 0, w, true)
}

// activation is a subscription that becomes active. It stands among the live messages in the order that the mesh sent them, because its heads are
// measured against those before it. Its tracks are made some at a time; live messages wait meanwhile, so that none slips between.
type activation struct {
	sub    subRef
	places []place
	first  *meshv1.SessionWrite // what storeFirst hands in
	at     int
	begun  bool
}

// activate goes on with an activation and says how much it did, and whether it is done.
func (h *Hub) activate(j *activation) (n int, done bool) {
	s := j.sub.get()
	if s == nil || s.dead || s.c.state != stateOpen {
		if s != nil {
			j.putBack(s.c.sess)
		}
		return 1, true
	}
	if !j.begun {
		for ; n < teardownSlice && len(j.places) < len(s.start.heads); n++ {
			h.placeNext(s, j)
		}
		if len(j.places) < len(s.start.heads) {
			return n, false
		}
		j.begun = true
		h.beginAt(s, j)
	}
	for ; n < teardownSlice && j.at < len(j.places); n++ {
		h.startTrack(s, &j.places[j.at])
		j.at++
	}
	if j.at < len(j.places) {
		return n, false
	}
	s.active = true
	if s.wildcard {
		h.wildLog.add(s.handle())
	} else {
		h.ownTrack(s)
	}
	return n + 1, true
}

// putBack gives the session the positions that no track has taken up.
func (j *activation) putBack(sess *session) {
	for i := j.at; sess != nil && i < len(j.places); i++ {
		if p := &j.places[i]; p.cur != nil && !p.fresh {
			sess.cursors[p.head.Topic] = p.cur.Encode(p.head.Topic)
		}
	}
}

// placeNext works out one more place.
func (h *Hub) placeNext(s *sub, j *activation) {
	st, sess := s.start, s.c.sess
	if j.places == nil {
		j.places = make([]place, 0, len(st.heads))
		st.index()
		if s.kind == kindSession {
			j.first = sessionWrite(sess)
		}
	}
	p := h.placeOf(s, st, st.heads[len(j.places)])
	if p.fresh {
		j.first.Cursors = append(j.first.Cursors, p.cur.Encode(p.head.Topic))
	}
	j.places = append(j.places, p)
}

// beginAt answers Subscribed, for a session once its first positions are stored.
func (h *Hub) beginAt(s *sub, j *activation) {
	st := s.start
	s.start = nil
	for i := range j.places {
		if p := &j.places[i]; p.shared.get() != nil { // it may have gone on meanwhile
			p.pos = p.shared.t.pos
			p.head.Head = max(p.head.Head, p.pos)
		}
	}
	s.answer = st.answer(s, j.places)
	if s.kind == kindSession && h.storeFirst(s, j.first) {
		return
	}
	h.openSub(s)
}

// openSub answers Subscribed: from here on messages of the subscription may go out.
func (h *Hub) openSub(s *sub) {
	s.open = true
	h.control(s.c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, s.answer)
	h.begun(s)
	if s.kind != kindSession {
		return
	}
	for _, t := range h.tracksFor(s) {
		if t.held && t.has(s) {
			t.held = false
			h.level(t, t.asked)
		}
	}
}

func (st *start) answer(s *sub, places []place) *wirev1.Subscribed {
	out := &wirev1.Subscribed{Id: s.id, Recovered: true}
	for i := range places {
		p := &places[i]
		out.Recovered = out.Recovered && p.recovered
		out.Missed += p.missed
		if s.wildcard {
			out.Positions = append(out.Positions, &wirev1.Subscribed_TopicPosition{
				Topic: p.head.Topic, Epoch: p.head.Epoch, Head: p.head.Head, Recovered: p.recovered, Missed: p.missed,
			})
			continue
		}
		out.Epoch, out.Head = p.head.Epoch, p.head.Head
	}
	for _, p := range st.gone() {
		out.Recovered = false
		if s.wildcard {
			out.Positions = append(out.Positions, &wirev1.Subscribed_TopicPosition{Topic: p.GetTopic()})
		}
	}
	return out
}

// gone are positions in topics that no log knows.
func (st *start) gone() (out []*wirev1.Position) {
	if len(st.positions) > 0 {
		known := make(map[string]bool, len(st.heads))
		for _, head := range st.heads {
			known[head.Topic] = true
		}
		for _, p := range st.positions {
			if p.GetSeq() > 0 && !known[p.GetTopic()] {
				out = append(out, p)
			}
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
			return place{head: head, pos: t.pos, recovered: true, shared: t.ref()}
		}
	}
	if s.kind == kindPlain && s.c.awaits(head.Topic) {
		return place{head: head, recovered: true}
	}
	if s.kind != kindSession {
		return st.place(head, s.wildcard)
	}
	if cur := s.c.sess.takeCursor(head.Topic); cur != nil {
		return resume(head, cur)
	}
	first := &cursor.Cursor{Epoch: head.Epoch}
	if !slices.ContainsFunc(s.c.sess.filters, func(f string) bool { return topic.Match(f, head.Topic) }) {
		first.Floor = head.Head // a filter of the session knows topics without a cursor: these appeared later
	}
	p := resume(head, first)
	p.fresh = true
	return p
}

// awaits says whether a plain subscription with wildcards has heard nothing of a topic yet that matches: for it the topic appeared later, so that the
// track that they will share starts at seq 1.
func (c *conn) awaits(name string) bool {
	return slices.ContainsFunc(c.subs(), func(s *sub) bool {
		return s.active && s.wildcard && s.kind == kindPlain && !s.headless && topic.Match(s.filter(), name)
	})
}

// startTrack makes the subscription's track in one topic.
func (h *Hub) startTrack(s *sub, p *place) {
	ts := h.topic(p.head.Topic)
	if t := h.trackFor(s, ts); t != nil {
		h.share(t, s)
		return
	}
	t := h.addTrack(s, ts)
	s.topics++
	t.epoch, t.pos = p.head.Epoch, p.pos
	if p.cur != nil {
		h.trackmore(t).cur = p.cur
	}
	h.level(t, p.head.Head)
}

// level has the track read on from the log up to head and to what has come live, where it is not there yet.
func (h *Hub) level(t *track, head uint64) {
	if t.held = !t.open(); t.held {
		t.behind = true
		h.trackmore(t).asked = head
		return
	}
	h.trackless(t)
	if t.topic.epoch == t.epoch {
		head = max(head, t.topic.last)
	}
	if t.behind = t.pos < head; t.behind {
		h.run(t)
	}
}

// ownTrack makes the track of a subscription without wildcards whose topic has no log.
func (h *Hub) ownTrack(s *sub) {
	ts := h.topic(s.filter())
	if t := h.trackFor(s, ts); t == nil {
		h.addTrack(s, ts).held = !s.open
	} else {
		h.share(t, s)
	}
}
