package delivery

import (
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
	"github.com/pushmesh/pushmesh/services/edge/internal/starts"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// starter begins subscriptions: it works out where each begins, answers, and makes its tracks.
type starter struct {
	hub      *Hub
	pendings slab.Pool[state.Pending]
}

// storeFirst has the session's first positions stored before Subscribed; false where nothing is
// new.
func (b *starter) storeFirst(s *state.Subscription, w *meshv1.SessionWrite) bool {
	sess := s.Conn.Session
	if w == nil {
		w = sess.Write()
	}
	sess.AddFilter(s.Filter(), w)
	if len(w.Cursors) == 0 && len(w.AddFilters) == 0 {
		return false
	}
	sess.Store(s.Ref)
	b.hub.mesh.Save(b.hub.handle(s.Conn), s.Ref, w, true)
	return true
}

// activation is a subscription that becomes active. It stands among the live messages in the order
// that the mesh sent them, because its heads are measured against those before it. Its tracks are
// made some at a time; live messages wait meanwhile, so that none slips between.
type activation struct {
	hub     *Hub
	c       *state.Conn
	gen     uint32 // of the connection
	sub     state.SubscriptionRef
	placing starts.Placing[state.TrackRef]
	at      int  // the next of the places to make a track at
	begun   bool // it was answered
}

// activate goes on with an activation and says how much it did, and whether it is done.
func (b *starter) activate(j *activation) (n int, done bool) {
	s := j.sub.Get()
	if s == nil || s.Dead || s.Conn.Phase != state.Open {
		return b.undo(j)
	}
	for n < teardownSlice && !j.placing.Done() {
		did, err := j.placing.Step(s.Start, &s.Answer, j, &b.hub.cost)
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
	s.Active = true
	b.hub.rooms.presence.Moved(b.hub.handle(s.Conn), s.Filter(), s.Wildcard)
	if s.Wildcard {
		b.hub.wildcards.log.Add(s.Handle())
	} else {
		b.ownTrack(s)
	}
	return n + 1, true
}

// Filter implements starts.Delivery, as the others do.
func (j *activation) Filter() string { return j.sub.S.Filter() }

// Shared is the track that the subscription will share.
func (j *activation) Shared(topic string) (r state.TrackRef, epoch, pos uint64, is bool) {
	ts := j.hub.topics.ByName.Get(topic)
	if ts == nil {
		return r, 0, 0, false
	}
	t := j.hub.tracks.SharedBy(j.sub.S, ts)
	if t == nil {
		return r, 0, 0, false
	}
	return t.Ref(), t.Epoch, t.Pos, true
}

// Hold has a track stay where it is.
func (j *activation) Hold(r state.TrackRef) (pos uint64, held bool) {
	t := r.Get()
	if t == nil {
		return 0, false
	}
	t.Told = true
	return t.Pos, true
}

// Subscriptions of the connection; none for one with a track of its own, which it shares with
// nobody.
func (j *activation) Subscriptions() int {
	if j.sub.S.Kind != state.KindPlain {
		return 0
	}
	return j.c.Subs.Len()
}

// Awaits reports whether the i-th is a plain subscription with wildcards that has heard nothing yet
// of a topic that matches: for it the topic appeared later, so that the track that they will share
// starts at seq 1.
func (j *activation) Awaits(i int, name string) bool {
	s := j.c.Subs.At(i)
	return s.Active && s.Wildcard && s.Kind == state.KindPlain && !s.Headless && topic.Match(s.Filter(), name)
}

// Session of the connection.
func (j *activation) Session() *sessions.Session { return &j.c.Session.Session }

// undo goes on with giving up an activation whose subscription is over: tracks that it shares go
// on, and the session has the positions again that no track has taken up.
func (b *starter) undo(j *activation) (n int, done bool) {
	if j.c.Gen != j.gen || j.c.Phase != state.Open {
		return 1, true // its tracks are gone, or are going
	}
	for ; n < teardownSlice && j.at < len(j.placing.Places); n++ {
		p := &j.placing.Places[j.at]
		j.at++
		b.goOn(p.Shared.Get())
		if p.Cursor != nil && !p.Fresh {
			j.c.Session.Put(p.Head.Topic, p.Cursor.Encode(p.Head.Topic))
		}
	}
	return n + 1, j.at == len(j.placing.Places)
}

// answerAt answers Subscribed, for a session once its first positions are stored.
func (b *starter) answerAt(s *state.Subscription, first *meshv1.SessionWrite) {
	s.Start = nil
	if s.Kind == state.KindSession && b.storeFirst(s, first) {
		return
	}
	b.openSub(s)
}

// openSub answers Subscribed: from here on messages of the subscription may go out.
func (b *starter) openSub(s *state.Subscription) {
	s.Open = true
	b.hub.rooms.presence.Moved(b.hub.handle(s.Conn), s.Filter(), s.Wildcard)
	it := sendq.AnswerOf(s.Answer.Frame(s.ID))
	b.hub.push(s.Conn, &it)
	b.forgetPending(s)
	b.hub.rooms.report.Subscribed(b.hub.handle(s.Conn), s.Filter(), "", s.ACK)
	if s.Kind != state.KindSession {
		return
	}
	if s.Wildcard {
		b.hub.jobs.Push(&opening{sub: s.Handle(), remaining: s.Conn.Tracks.Len()})
		return
	}
	for _, t := range b.hub.tracks.Of(s.Conn, s.Topic) {
		b.letOut(t, s)
	}
}

// opening lets out the tracks that waited for a session's subscription to open, some at a time, the
// last ones first: what takes the place of a track that goes meanwhile was looked at, or will be,
// and those that come meanwhile don't wait.
type opening struct {
	sub       state.SubscriptionRef
	remaining int
}

func (j *opening) step(h *Hub) bool {
	s := j.sub.Get()
	if s == nil || s.Dead || s.Conn.Phase != state.Open {
		return true
	}
	tracks := &s.Conn.Tracks
	end := min(j.remaining, tracks.Len())
	j.remaining = max(end-lookSlice, 0)
	for i := j.remaining; i < end; i++ { // none goes meanwhile
		h.starter.letOut(tracks.At(i), s)
	}
	return j.remaining == 0
}

// letOut has a track go on that waited for the subscription to open.
func (b *starter) letOut(t *state.Track, s *state.Subscription) {
	if t.Held && t.Has(s) {
		t.Held = false
		b.catchUp(t, t.Asked)
	}
}

// goOn has a track go on whose place is in an answer.
func (b *starter) goOn(t *state.Track) {
	if t == nil || !t.Told {
		return
	}
	if t.Told = false; t.Behind {
		b.hub.replay.enqueue(t)
	}
}

// startTrack makes the subscription's track in one topic.
func (b *starter) startTrack(s *state.Subscription, p *starts.Place[state.TrackRef]) {
	ts := b.hub.topics.Get(p.Head.Topic)
	shared := b.hub.tracks.SharedBy(s, ts)
	if shared != nil {
		b.hub.tracks.Share(shared, s)
	}
	b.goOn(p.Shared.Get())
	if shared != nil {
		return
	}
	t := b.hub.tracks.Add(s, ts)
	if s.Wildcard {
		s.Topics++
	}
	t.Epoch, t.Pos = p.Head.Epoch, p.Pos
	if p.Cursor != nil {
		b.hub.tracks.More(t).Cursor = p.Cursor
	}
	b.catchUp(t, p.Head.Head)
}

// catchUp has the track read on from the log up to head and to what has come live, where it is not
// there yet.
func (b *starter) catchUp(t *state.Track, head uint64) {
	if t.Held = !t.Open(); t.Held {
		t.Behind = true
		b.hub.tracks.More(t).Asked = head
		return
	}
	b.hub.tracks.Less(t)
	if t.Topic.Epoch == t.Epoch {
		head = max(head, t.Topic.Last)
	}
	if t.Behind = t.Pos < head; t.Behind {
		b.hub.replay.enqueue(t)
	}
}

// ownTrack makes the track of a subscription without wildcards whose topic has no log.
func (b *starter) ownTrack(s *state.Subscription) {
	ts := b.hub.topics.Get(s.Filter())
	if t := b.hub.tracks.SharedBy(s, ts); t == nil {
		b.hub.tracks.Add(s, ts).Held = !s.Open
	} else {
		b.hub.tracks.Share(t, s)
	}
}
