package delivery

import (
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// starter begins subscriptions: it works out where each begins, answers, and makes its tracks.
type starter struct {
	hub      *Hub
	pendings slab.Pool[pending]
}

// start is where a subscription asked to begin, and the heads it is measured against.
type start struct {
	mode      wirev1.Start
	seq       uint64
	epoch     uint64
	positions []*wirev1.Position
	byTopic   map[string]*wirev1.Position // of those, by topics that are not placed yet
	heads     []exchange.Head
}

func startOf(m *wirev1.Subscribe) *start {
	st := &start{mode: m.GetStart(), seq: m.GetSeq(), epoch: m.GetEpoch(), positions: m.GetPositions()}
	if len(st.positions) > 0 && st.mode == wirev1.Start_START_LIVE {
		st.mode = wirev1.Start_START_AFTER_SEQ
	}
	return st
}

// index checks a position, and makes it quick to find.
func (st *start) index(filter string, p *wirev1.Position) error {
	if err := exchange.CheckPosition(filter, p); err != nil {
		return err
	}
	if st.byTopic == nil {
		st.byTopic = make(map[string]*wirev1.Position, len(st.positions))
	}
	if st.byTopic[p.GetTopic()] != nil {
		return exchange.ErrTwoPositions
	}
	st.byTopic[p.GetTopic()] = p
	return nil
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

// place is where a track begins in one topic: behind pos. missed messages were asked for and can't
// be had.
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
	if p := st.byTopic[head.Topic]; p != nil {
		// whatever the start says of topics that are not named
		return after(head, p.GetEpoch(), p.GetSeq())
	}
	switch st.mode {
	case wirev1.Start_START_EARLIEST:
		return place{head: head, pos: head.Oldest - 1, recovered: true}
	case wirev1.Start_START_LAST_N:
		pos := head.Head - min(head.Head, st.seq)
		return place{head: head, pos: max(pos, head.Oldest-1), recovered: true}
	case wirev1.Start_START_AFTER_SEQ:
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

// storeFirst has the session's first positions stored before Subscribed; false where nothing is
// new.
func (b *starter) storeFirst(s *sub, w *meshv1.SessionWrite) bool {
	sess := s.c.sess
	if w == nil {
		w = sessionWrite(sess)
	}
	if !slices.Contains(sess.filters, s.filter()) {
		name := strings.Clone(s.filter())
		sess.filters = append(sess.filters, name)
		w.AddFilters = []string{name}
	}
	if len(w.Cursors) == 0 && len(w.AddFilters) == 0 {
		return false
	}
	if sess.waiting == nil {
		sess.waiting = map[uint32]subRef{}
	}
	sess.waiting[s.ref] = s.handle()
	b.hub.mesh.Save(b.hub.handle(s.c), s.ref, w, true)
	return true
}

// activation is a subscription that becomes active. It stands among the live messages in the order
// that the mesh sent them, because its heads are measured against those before it. Its tracks are
// made some at a time; live messages wait meanwhile, so that none slips between.
type activation struct {
	c      *conn
	gen    uint32 // of the connection
	sub    subRef
	places []place
	first  *meshv1.SessionWrite // what storeFirst hands in
	at     int
	match  walk.Search
	// indexed, told and asked say how many positions were checked and made quick to find, places
	// put into the answer, and positions looked for in vain.
	indexed, told, asked int
	begun                bool // all of that is done
}

// activate goes on with an activation and says how much it did, and whether it is done.
func (b *starter) activate(j *activation) (n int, done bool) {
	s := j.sub.get()
	if s == nil || s.dead || s.c.state != stateOpen {
		return b.undo(j)
	}
	if !j.begun {
		for n < teardownSlice && !j.begun && !s.dead {
			n += b.prepare(s, j)
		}
		if !j.begun {
			return n, false
		}
		b.answerAt(s, j)
	}
	for n < teardownSlice && j.at < len(j.places) {
		b.startTrack(s, &j.places[j.at])
		j.at++
		n += 1 + b.hub.toll()
	}
	if j.at < len(j.places) {
		return n, false
	}
	s.active = true
	b.hub.rooms.presence.Moved(b.hub.handle(s.c), s.filter(), s.wildcard)
	if s.wildcard {
		b.hub.wildcards.log.add(s.handle())
	} else {
		b.ownTrack(s)
	}
	return n + 1, true
}

// undo goes on with giving up an activation whose subscription is over: tracks that it shares go
// on, and the session has the positions again that no track has taken up.
func (b *starter) undo(j *activation) (n int, done bool) {
	if j.c.gen != j.gen || j.c.state != stateOpen {
		return 1, true // its tracks are gone, or are going
	}
	for ; n < teardownSlice && j.at < len(j.places); n++ {
		p := &j.places[j.at]
		j.at++
		b.thaw(p.shared.get())
		if p.cur != nil && !p.fresh {
			j.c.sess.cursors[p.head.Topic] = p.cur.Encode(p.head.Topic)
		}
	}
	return n + 1, j.at == len(j.places)
}

// prepare does one more thing of what comes before the answer, and says how much that was.
func (b *starter) prepare(s *sub, j *activation) (n int) {
	st := s.start
	switch {
	case j.indexed < len(st.positions):
		if err := st.index(s.filter(), st.positions[j.indexed]); err != nil {
			b.hub.refuseSub(s, err)
		}
		j.indexed++
	case len(j.places) < len(st.heads):
		return b.placeNext(s, j)
	case !s.answer.Begun:
		s.answer.Begun, s.answer.Recovered = true, true
	case j.told < len(j.places):
		s.tell(&j.places[j.told])
		j.told++
	case j.asked < len(st.positions):
		s.tellGone(st.positions[j.asked])
		j.asked++
	default:
		j.begun = true
	}
	return 1
}

// placeNext works out one more place, or some of what it depends on, and says how much that was.
func (b *starter) placeNext(s *sub, j *activation) (n int) {
	st, sess := s.start, s.c.sess
	if j.places == nil {
		j.places = make([]place, 0, len(st.heads))
		if s.kind == kindSession {
			j.first = sessionWrite(sess)
		}
	}
	p, done, matched := b.placeOf(s, j, st.heads[len(j.places)])
	if !done {
		return matched
	}
	if p.fresh {
		j.first.Cursors = append(j.first.Cursors, p.cur.Encode(p.head.Topic))
	}
	j.places = append(j.places, p)
	delete(st.byTopic, p.head.Topic)
	return 1 + matched + b.hub.toll()
}

// answerAt answers Subscribed, for a session once its first positions are stored.
func (b *starter) answerAt(s *sub, j *activation) {
	st := s.start
	if len(st.heads) == 0 && len(st.positions) == 0 && st.mode == wirev1.Start_START_AFTER_SEQ && st.seq > 0 {
		s.answer.Recovered = false // no log knows the topic
	}
	s.start = nil
	if s.kind == kindSession && b.storeFirst(s, j.first) {
		return
	}
	b.openSub(s)
}

// openSub answers Subscribed: from here on messages of the subscription may go out.
func (b *starter) openSub(s *sub) {
	s.open = true
	b.hub.rooms.presence.Moved(b.hub.handle(s.c), s.filter(), s.wildcard)
	it := sendq.AnswerOf(s.answer.Frame(s.id))
	b.hub.push(s.c, &it)
	b.forgetPending(s)
	b.hub.rooms.report.Subscribed(b.hub.handle(s.c), s.filter(), "", s.ack)
	if s.kind != kindSession {
		return
	}
	if s.wildcard {
		b.hub.jobs.Push(&opening{sub: s.handle(), left: s.c.tracks.Len()})
		return
	}
	for _, t := range b.hub.tracks.of(s.c, s.topic) {
		b.letOut(t, s)
	}
}

// opening lets out the tracks that waited for a session's subscription to open, some at a time, the
// last ones first: what takes the place of a track that goes meanwhile was looked at, or will be,
// and those that come meanwhile don't wait.
type opening struct {
	sub  subRef
	left int
}

func (j *opening) step(h *Hub) bool {
	s := j.sub.get()
	if s == nil || s.dead || s.c.state != stateOpen {
		return true
	}
	tracks := &s.c.tracks
	end := min(j.left, tracks.Len())
	j.left = max(end-lookSlice, 0)
	for i := j.left; i < end; i++ { // none goes meanwhile
		h.starter.letOut(tracks.At(i), s)
	}
	return j.left == 0
}

// letOut has a track go on that waited for the subscription to open.
func (b *starter) letOut(t *track, s *sub) {
	if t.held && t.has(s) {
		t.held = false
		b.catchUp(t, t.asked)
	}
}

// tell puts a place into the answer. A track that is shared may have gone on meanwhile; from here
// on it stays where it is until the subscription shares it.
func (s *sub) tell(p *place) {
	if t := p.shared.get(); t != nil {
		t.told = true
		p.pos = t.pos
		p.head.Head = max(p.head.Head, p.pos)
	}
	out := &s.answer
	out.Recovered = out.Recovered && p.recovered
	out.Missed += p.missed
	if s.wildcard {
		out.AddPosition(p.head.Topic, p.head.Epoch, p.head.Head, p.recovered, p.missed)
		return
	}
	out.Epoch, out.Head = p.head.Epoch, p.head.Head
}

// thaw has a track go on whose place is in an answer.
func (b *starter) thaw(t *track) {
	if t == nil || !t.told {
		return
	}
	if t.told = false; t.behind {
		b.hub.replay.enqueue(t)
	}
}

// tellGone puts a position into the answer if no log knows its topic.
func (s *sub) tellGone(p *wirev1.Position) {
	if p.GetSeq() == 0 || s.start.byTopic[p.GetTopic()] == nil {
		return
	}
	s.answer.Recovered = false
	if s.wildcard {
		s.answer.AddPosition(p.GetTopic(), 0, 0, false, 0)
	}
}

// placeOf also takes into account what the connection's tracks have been given already. done is
// false where there is more to look at; matched is what it has cost.
func (b *starter) placeOf(s *sub, j *activation, head exchange.Head) (p place, done bool, matched int) {
	c := s.c
	if ts := b.hub.topics.byName.Get(head.Topic); ts != nil {
		if t := b.hub.tracks.sharedBy(s, ts); t != nil && t.epoch == head.Epoch {
			j.match = walk.Search{}
			head.Head = max(head.Head, t.pos)
			return place{head: head, pos: t.pos, recovered: true, shared: t.ref()}, true, 0
		}
	}
	switch s.kind {
	case kindPlain:
		awaits, done, matched := j.match.Step(c.subs.Len(), func(i int) bool { return c.subs.At(i).awaits(head.Topic) })
		if awaits {
			return place{head: head, recovered: true}, true, matched
		}
		return s.start.place(head, s.wildcard), done, matched
	case kindOwn:
		return s.start.place(head, s.wildcard), true, 0
	}
	filters := c.sess.filters
	if c.sess.cursors[head.Topic] == nil {
		known, done, matched := j.match.Step(len(filters), func(i int) bool { return topic.Match(filters[i], head.Topic) })
		if !done {
			return p, false, matched
		}
		first := &cursor.Cursor{Epoch: head.Epoch}
		if !known {
			// a filter of the session knows topics without a cursor: these appeared later
			first.Floor = head.Head
		}
		p = resume(head, first)
		p.fresh = true
		return p, true, matched
	}
	j.match = walk.Search{}
	cur, size := c.sess.takeCursor(head.Topic)
	b.hub.looked(size)
	return resume(head, cur), true, 0
}

// awaits reports whether it is a plain subscription with wildcards that has heard nothing yet of a
// topic that matches: for it the topic appeared later, so that the track that they will share
// starts at seq 1.
func (s *sub) awaits(name string) bool {
	return s.active && s.wildcard && s.kind == kindPlain && !s.headless && topic.Match(s.filter(), name)
}

// startTrack makes the subscription's track in one topic.
func (b *starter) startTrack(s *sub, p *place) {
	ts := b.hub.topic(p.head.Topic)
	shared := b.hub.tracks.sharedBy(s, ts)
	if shared != nil {
		b.hub.tracks.share(shared, s)
	}
	b.thaw(p.shared.get())
	if shared != nil {
		return
	}
	t := b.hub.tracks.add(s, ts)
	if s.wildcard {
		s.topics++
	}
	t.epoch, t.pos = p.head.Epoch, p.pos
	if p.cur != nil {
		b.hub.tracks.more(t).cur = p.cur
	}
	b.catchUp(t, p.head.Head)
}

// catchUp has the track read on from the log up to head and to what has come live, where it is not
// there yet.
func (b *starter) catchUp(t *track, head uint64) {
	if t.held = !t.open(); t.held {
		t.behind = true
		b.hub.tracks.more(t).asked = head
		return
	}
	b.hub.tracks.less(t)
	if t.topic.epoch == t.epoch {
		head = max(head, t.topic.last)
	}
	if t.behind = t.pos < head; t.behind {
		b.hub.replay.enqueue(t)
	}
}

// ownTrack makes the track of a subscription without wildcards whose topic has no log.
func (b *starter) ownTrack(s *sub) {
	ts := b.hub.topic(s.filter())
	if t := b.hub.tracks.sharedBy(s, ts); t == nil {
		b.hub.tracks.add(s, ts).held = !s.open
	} else {
		b.hub.tracks.share(t, s)
	}
}
