package delivery

import (
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
	"github.com/pushmesh/pushmesh/services/edge/internal/starts"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// starter begins subscriptions: it works out where each begins, answers, and makes its tracks.
type starter struct {
	hub      *Hub
	pendings slab.Pool[state.Pending]
	lines    map[exchange.Conn]*line // of connections with activations
	turns    walk.FIFO[*line]        // the same
	// exact counts the subscriptions to one topic that have asked to join it, and are not open.
	// firsts are the first seqs that came live of topics without a log so far, while there were
	// any: their answer may tell of no log.
	exact  int
	firsts map[*state.Topic]uint64
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

// activation is a subscription that becomes active: where it begins in each topic is worked out,
// its tracks are made, it is answered, and its tracks are let out, some at a time each. Live
// messages go on meanwhile. Nothing of a topic slips between: what comes of a topic that it matches
// is remembered (hear), so that its track there, which waits until it was answered, reads it from
// the log.
type activation struct {
	hub     *Hub
	c       *state.Conn
	gen     uint32 // of the connection
	sub     state.SubscriptionRef
	placing starts.Placing[state.TrackRef]
	heads   []exchange.Head
	made    int            // places that have their track
	joined  int            // topics of Pending.Heard that have it, too
	heard   []*state.Topic // those, once it was answered
	out     int            // places, and then of heard, whose track was let out
	others  []latecomer    // that wait for the end
	fresh   []string       // topics of positions that may not be stored, where it is given up
}

// latecomer is a subscription that is to have a track at a topic of which something came live.
type latecomer struct {
	sub state.SubscriptionRef
	ts  *state.Topic
}

// line is the activations of one connection, in the order in which they were asked for.
type line struct {
	at exchange.Conn
	walk.FIFO[*activation]
}

// begin has a subscription whose heads are known become active, in its connection's turn.
func (b *starter) begin(s *state.Subscription) {
	at := b.hub.handle(s.Conn)
	l := b.lines[at]
	if l == nil {
		l = &line{at: at}
		b.lines[at] = l
		b.turns.Push(l)
	}
	l.Push(&activation{hub: b.hub, c: s.Conn, gen: s.Conn.Gen, sub: s.Handle(), heads: s.Start.Heads})
	if s.Begins = true; s.Wildcard {
		b.hub.wildcards.log.Add(s.Handle())
	}
}

// came is told of what comes live of a topic before the topic notes it.
func (b *starter) came(ts *state.Topic, m *exchange.Message) {
	if b.exact == 0 || ts.Exact == 0 || ts.Last > 0 {
		return
	}
	if b.firsts == nil {
		b.firsts = map[*state.Topic]uint64{}
	}
	b.firsts[ts] = m.Seq
}

// waits reports whether anything is beginning.
func (b *starter) waits() bool { return b.turns.Len() > 0 }

// slice goes on with the first activation of the next connection, and says how much it did.
func (b *starter) slice() int {
	l, _ := b.turns.Pop()
	n, done := b.activate(*l.Peek())
	if done {
		l.Pop()
	}
	if l.Len() == 0 {
		delete(b.lines, l.at)
		return n + 1
	}
	b.turns.Push(l)
	return n + 1
}

// hear remembers that something of a topic came live for a subscription that is not active yet, and
// reports whether that is so. What a session's activation under way has taken of its cursors is
// nobody else's, so the other subscriptions of its connection wait for its end, too, where the
// topic has a log.
func (b *starter) hear(s *state.Subscription, ts *state.Topic, logged bool) bool {
	switch {
	case !s.Active && !s.Dead && s.Pending != nil && s.Begins:
		if !b.hub.kept.Fits(s.Conn.Slot, heardBytes) {
			b.hub.refuseSub(s, request.NoMemory)
			return true
		}
		b.hub.keepFor(s, heardBytes)
		s.Pending.Heard = append(s.Pending.Heard, ts)
	case logged && s.Active && s.Kind == state.KindSession && len(b.lines) > 0:
		l := b.lines[b.hub.handle(s.Conn)]
		if l == nil {
			return false
		}
		j := *l.Peek()
		j.others = append(j.others, latecomer{s.Handle(), ts})
	default:
		return false
	}
	ts.Heard++
	return true
}

// heardBytes is what is kept for each time that a subscription hears of a topic before it is
// active, twice where there are more and more.
const heardBytes = 16

// takeHeard takes the topics that a subscription has heard of from it.
func (b *starter) takeHeard(s *state.Subscription) []*state.Topic {
	heard := s.Pending.Heard
	s.Pending.Heard = nil
	b.hub.keepFor(s, -heardBytes*len(heard))
	return heard
}

// forget lets go of topics that something was heard of.
func (b *starter) forget(ts *state.Topic) {
	ts.Heard--
	b.hub.letGoTopic(ts)
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
	for ; j.placing.Done() && n < teardownSlice && j.made < len(j.placing.Places); j.made++ {
		b.startTrack(s, &j.placing.Places[j.made])
		n += 1 + b.hub.takeCost()
	}
	if !j.placing.Done() || j.made < len(j.placing.Places) {
		return n, false
	}
	if !s.Active && !b.becomeActive(j, s, &n) {
		return n, false
	}
	return b.letAllOut(j, s, n)
}

// becomeActive makes the tracks in topics that appeared since the heads were read, some at a time,
// and answers; false where there are more. Between the last of them and the answer nothing comes
// live.
func (b *starter) becomeActive(j *activation, s *state.Subscription, n *int) bool {
	for ; j.joined < len(s.Pending.Heard); j.joined++ {
		if *n >= teardownSlice {
			return false
		}
		b.join(s, s.Pending.Heard[j.joined])
		*n += 1 + b.hub.takeCost()
		if s.Dead {
			return false // it is taken apart, and undo goes on
		}
	}
	j.heard = b.takeHeard(s)
	s.Active = true
	b.hub.rooms.presence.Moved(b.hub.handle(s.Conn), s.Filter(), s.Wildcard)
	if s.Wildcard {
		b.answerAt(s, j.placing.First)
		return true
	}
	from, owed := s.OwedFrom(s.Topic, b.firsts[s.Topic], len(j.heads) > 0)
	b.answerAt(s, j.placing.First)
	b.ownTrack(s, from, owed)
	return true
}

// join gives a subscription its track in a topic of which something came live.
func (b *starter) join(s *state.Subscription, ts *state.Topic) {
	b.hub.fan.giveTrack(s, ts, ts.Epoch, ts.Last > 0)
}

// letAllOut lets the tracks out that waited for the answer, some at a time.
func (b *starter) letAllOut(j *activation, s *state.Subscription, n int) (did int, done bool) {
	for ; j.out < len(j.placing.Places)+len(j.heard); j.out++ {
		if n >= teardownSlice {
			return n, false
		}
		var ts *state.Topic
		if j.out < len(j.placing.Places) {
			p := &j.placing.Places[j.out]
			b.goOn(p.Shared.Get())
			ts = b.hub.topics.ByName.Get(p.Head.Topic)
		} else {
			ts = j.heard[j.out-len(j.placing.Places)]
		}
		if ts != nil && s.Open {
			if t := b.hub.tracks.SharedBy(s, ts); t != nil {
				b.letOut(t, s)
			}
		}
		n += 1 + b.hub.takeCost()
	}
	return b.end(j, n)
}

// end lets go of the topics that something was heard of, and has those subscriptions join that
// waited for the end, some at a time.
func (b *starter) end(j *activation, n int) (did int, done bool) {
	for ; len(j.heard) > 0 && n < teardownSlice; n += 1 + b.hub.takeCost() {
		ts := j.heard[len(j.heard)-1]
		j.heard = j.heard[:len(j.heard)-1]
		b.forget(ts)
	}
	for ; len(j.heard) == 0 && len(j.others) > 0 && n < teardownSlice; n += 1 + b.hub.takeCost() {
		o := j.others[len(j.others)-1]
		j.others = j.others[:len(j.others)-1]
		if s := o.sub.Get(); s != nil && s.Active {
			b.join(s, o.ts)
			if t := b.hub.tracks.SharedBy(s, o.ts); t != nil && s.Open {
				t.Behind = t.Behind || t.Pos < o.ts.Last
				b.goOnBehind(t)
			}
		}
		b.forget(o.ts)
	}
	return n + 1, len(j.heard)+len(j.others) == 0
}

// goOnBehind puts a track in line that is behind what came live.
func (b *starter) goOnBehind(t *state.Track) {
	if t.Behind {
		b.hub.replay.enqueue(t)
	}
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
	if !t.Told.Any() {
		t.Told = state.ToldBehind
	}
	if !t.Behind && t.Rank == nil {
		t.Behind, t.Told = true, state.ToldLevel
	}
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
	for here := j.c.Gen == j.gen && j.c.Phase == state.Open; here && j.out < len(j.placing.Places); j.out++ {
		if n++; n > teardownSlice {
			return n, false
		}
		p := &j.placing.Places[j.out]
		b.goOn(p.Shared.Get())
		if p.Fresh {
			j.fresh = append(j.fresh, p.Head.Topic)
		} else if j.out >= j.made && p.Cursor != nil {
			j.c.Session.Put(p.Head.Topic, p.Cursor.Encode(p.Head.Topic))
		}
	}
	if j.c.Gen == j.gen {
		b.hub.tidy(j.c, j.sub, j.heads, j.fresh...)
	}
	j.heads = nil
	return b.end(j, n)
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
	if t == nil || !t.Told.Any() {
		return
	}
	if t.Told == state.ToldLevel {
		t.Behind = t.Pos < t.Topic.Last && t.Epoch == t.Topic.Epoch
	}
	t.Told = state.NotTold
	t.Behind = t.Behind || t.Topic.Epoch > t.Epoch
	b.goOnBehind(t)
}

// startTrack makes the subscription's track in one topic.
func (b *starter) startTrack(s *state.Subscription, p *starts.Place[state.TrackRef]) {
	ts := b.hub.topics.Get(p.Head.Topic)
	if shared := b.hub.tracks.SharedBy(s, ts); shared != nil {
		b.hub.tracks.Share(shared, s)
		return
	}
	t := b.hub.tracks.Add(s, ts)
	if s.Wildcard {
		s.Topics++
	}
	t.Epoch, t.Pos = p.Head.Epoch, p.Pos
	switch {
	case p.Cursor != nil:
		b.hub.tracks.More(t).Cursor = p.Cursor
	case s.Kind == state.KindSession: // the track that it was to share has ended
		cur, size := s.Conn.Session.Take(ts.Name())
		b.hub.addCost(size)
		if cur == nil || cur.Epoch != t.Epoch {
			cur = &cursor.Cursor{Epoch: t.Epoch, Floor: t.Pos}
		}
		b.hub.tracks.More(t).Cursor, t.Pos = cur, cur.Floor
		b.hub.sessions.cursorChanged(t)
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
	t.Behind = t.Pos < head || t.Epoch != 0 && t.Topic.Epoch > t.Epoch
	b.goOnBehind(t)
}

// ownTrack makes the track of a subscription without wildcards whose topic has no log, or has one
// by now that is owed behind from.
func (b *starter) ownTrack(s *state.Subscription, from uint64, owed bool) {
	ts := b.hub.topics.Get(s.Filter())
	if t := b.hub.tracks.SharedBy(s, ts); t != nil {
		b.hub.tracks.Share(t, s)
		return
	}
	t := b.hub.tracks.Add(s, ts)
	if !owed {
		t.Held = !s.Open
		return
	}
	if s.Kind == state.KindSession {
		b.hub.sessions.resumeTrack(t, ts.Epoch)
	} else {
		b.hub.learnEpoch(t, ts.Epoch)
		t.Pos = from
	}
	b.catchUp(t, ts.Last)
}
