package delivery

import (
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
	"github.com/pushmesh/pushmesh/services/edge/internal/starts"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// starter begins subscriptions: it works out where each begins, answers, and makes its tracks.
type starter struct {
	hub      *Hub
	pendings slab.Pool[pending]
}

// kindOf the track that a subscription has.
func kindOf(st *starts.Start) trackKind {
	switch st.Mode {
	case wirev1.Start_START_LIVE:
		return kindPlain
	case wirev1.Start_START_SESSION:
		return kindSession
	}
	return kindOwn
}

// storeFirst has the session's first positions stored before Subscribed; false where nothing is
// new.
func (b *starter) storeFirst(s *sub, w *meshv1.SessionWrite) bool {
	sess := s.c.sess
	if w == nil {
		w = sess.Write()
	}
	sess.AddFilter(s.filter(), w)
	if len(w.Cursors) == 0 && len(w.AddFilters) == 0 {
		return false
	}
	sess.Store(s.ref)
	b.hub.mesh.Save(b.hub.handle(s.c), s.ref, w, true)
	return true
}

// activation is a subscription that becomes active. It stands among the live messages in the order
// that the mesh sent them, because its heads are measured against those before it. Its tracks are
// made some at a time; live messages wait meanwhile, so that none slips between.
type activation struct {
	hub     *Hub
	c       *conn
	gen     uint32 // of the connection
	sub     subRef
	placing starts.Placing[trackRef]
	at      int  // the next of the places to make a track at
	begun   bool // it was answered
}

// activate goes on with an activation and says how much it did, and whether it is done.
func (b *starter) activate(j *activation) (n int, done bool) {
	s := j.sub.get()
	if s == nil || s.dead || s.c.state != stateOpen {
		return b.undo(j)
	}
	for n < teardownSlice && !j.placing.Done() {
		did, err := j.placing.Step(s.start, &s.answer, j, &b.hub.cost)
		if n += did + b.hub.takeCost(); err != nil {
			b.hub.refuseSub(s, err)
			return n, false
		}
	}
	if !j.placing.Done() {
		return n, false
	}
	if !j.begun {
		j.begun = true
		b.answerAt(s, j.placing.First)
	}
	for n < teardownSlice && j.at < len(j.placing.Places) {
		b.startTrack(s, &j.placing.Places[j.at])
		j.at++
		n += 1 + b.hub.takeCost()
	}
	if j.at < len(j.placing.Places) {
		return n, false
	}
	s.active = true
	b.hub.rooms.presence.Moved(b.hub.handle(s.c), s.filter(), s.wildcard)
	if s.wildcard {
		b.hub.wildcards.log.Add(s.handle())
	} else {
		b.ownTrack(s)
	}
	return n + 1, true
}

// Filter implements starts.Delivery, as the others do.
func (j *activation) Filter() string { return j.sub.s.filter() }

// Shared is the track that the subscription will share.
func (j *activation) Shared(topic string) (r trackRef, epoch, pos uint64, is bool) {
	ts := j.hub.topics.byName.Get(topic)
	if ts == nil {
		return r, 0, 0, false
	}
	t := j.hub.tracks.sharedBy(j.sub.s, ts)
	if t == nil {
		return r, 0, 0, false
	}
	return t.ref(), t.epoch, t.pos, true
}

// Hold has a track stay where it is.
func (j *activation) Hold(r trackRef) (pos uint64, held bool) {
	t := r.get()
	if t == nil {
		return 0, false
	}
	t.told = true
	return t.pos, true
}

// Subscriptions of the connection; none for one with a track of its own, which it shares with
// nobody.
func (j *activation) Subscriptions() int {
	if j.sub.s.kind != kindPlain {
		return 0
	}
	return j.c.subs.Len()
}

// Awaits reports whether the i-th is a plain subscription with wildcards that has heard nothing yet
// of a topic that matches: for it the topic appeared later, so that the track that they will share
// starts at seq 1.
func (j *activation) Awaits(i int, name string) bool {
	s := j.c.subs.At(i)
	return s.active && s.wildcard && s.kind == kindPlain && !s.headless && topic.Match(s.filter(), name)
}

// Session of the connection.
func (j *activation) Session() *sessions.Session { return &j.c.sess.Session }

// undo goes on with giving up an activation whose subscription is over: tracks that it shares go
// on, and the session has the positions again that no track has taken up.
func (b *starter) undo(j *activation) (n int, done bool) {
	if j.c.gen != j.gen || j.c.state != stateOpen {
		return 1, true // its tracks are gone, or are going
	}
	for ; n < teardownSlice && j.at < len(j.placing.Places); n++ {
		p := &j.placing.Places[j.at]
		j.at++
		b.goOn(p.Shared.get())
		if p.Cursor != nil && !p.Fresh {
			j.c.sess.Put(p.Head.Topic, p.Cursor.Encode(p.Head.Topic))
		}
	}
	return n + 1, j.at == len(j.placing.Places)
}

// answerAt answers Subscribed, for a session once its first positions are stored.
func (b *starter) answerAt(s *sub, first *meshv1.SessionWrite) {
	s.start = nil
	if s.kind == kindSession && b.storeFirst(s, first) {
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
		b.hub.jobs.Push(&opening{sub: s.handle(), remaining: s.c.tracks.Len()})
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
	sub       subRef
	remaining int
}

func (j *opening) step(h *Hub) bool {
	s := j.sub.get()
	if s == nil || s.dead || s.c.state != stateOpen {
		return true
	}
	tracks := &s.c.tracks
	end := min(j.remaining, tracks.Len())
	j.remaining = max(end-lookSlice, 0)
	for i := j.remaining; i < end; i++ { // none goes meanwhile
		h.starter.letOut(tracks.At(i), s)
	}
	return j.remaining == 0
}

// letOut has a track go on that waited for the subscription to open.
func (b *starter) letOut(t *track, s *sub) {
	if t.held && t.has(s) {
		t.held = false
		b.catchUp(t, t.asked)
	}
}

// goOn has a track go on whose place is in an answer.
func (b *starter) goOn(t *track) {
	if t == nil || !t.told {
		return
	}
	if t.told = false; t.behind {
		b.hub.replay.enqueue(t)
	}
}

// startTrack makes the subscription's track in one topic.
func (b *starter) startTrack(s *sub, p *starts.Place[trackRef]) {
	ts := b.hub.topic(p.Head.Topic)
	shared := b.hub.tracks.sharedBy(s, ts)
	if shared != nil {
		b.hub.tracks.share(shared, s)
	}
	b.goOn(p.Shared.get())
	if shared != nil {
		return
	}
	t := b.hub.tracks.add(s, ts)
	if s.wildcard {
		s.topics++
	}
	t.epoch, t.pos = p.Head.Epoch, p.Pos
	if p.Cursor != nil {
		b.hub.tracks.more(t).cur = p.Cursor
	}
	b.catchUp(t, p.Head.Head)
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
