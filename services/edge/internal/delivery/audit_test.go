package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
)

// audit looks at everything that must be true of a hub at rest, whatever brought it there: what is
// counted is there, what refers to each other does so from both sides, what is borrowed is in use,
// and nobody who could go on waits. Every test with a world has it done when the hub comes to rest,
// in long ones now and then.
func audit(t tester, h *Hub) {
	t.Helper()
	if h.stats.Connections > auditedMost || h.tracks.slab.Taken() > auditedMost {
		return
	}
	a := &auditor{t: t, h: h, out: map[waitingFor]int{}, topics: map[*topicState]int{}, exact: map[*topicState]int{}, wild: map[*filter]int{}}
	for slot := range h.conns.len() {
		if c := h.conns.get(slot); c.state != stateFree {
			a.conn(c)
		}
	}
	a.totals()
}

// auditedMost bounds how many connections and positions a hub has that is audited: tests with more
// of them are about that alone.
const auditedMost = 64

// waitingFor is where a message is to go: to a track, or to a group's member.
type waitingFor struct {
	t   *track
	sub uint32
	m   *exchange.Message
}

type auditor struct {
	t tester
	h *Hub
	// out are the messages in the queue of the connection in hand.
	out map[waitingFor]int

	conns, subs, tracks, pinned, unacked, stuck, queued, pendings, sharers, trackMores, queues int
	held                                                                                       int64
	topics, exact                                                                              map[*topicState]int
	wild                                                                                       map[*filter]int
	mores                                                                                      int
}

// is fails unless a count is what it should be.
func (a *auditor) is(c *conn, what string, got, want int) {
	if got != want {
		a.t.Helper()
		a.t.Fatalf("connection %d: %s: %d, and there are %d", c.slot, what, got, want)
	}
}

func (a *auditor) holds(c *conn, what string, ok bool) {
	if !ok {
		a.t.Helper()
		a.t.Fatalf("connection %d: not so: %s", c.slot, what)
	}
}

func (a *auditor) conn(c *conn) {
	a.t.Helper()
	a.conns++
	queued := a.queue(c)
	waiting, unacked, timedOut := 0, 0, 0
	for i := range c.tracks.Len() {
		tr := c.tracks.At(i)
		a.track(c, tr, i)
		a.is(c, "messages of "+tr.topic.name+" in the queue", int(tr.Queued()), queued[tr])
		delete(queued, tr)
		if tr.waits {
			waiting++
		}
		unacked += int(tr.unacked)
		if tr.win != nil {
			timedOut += tr.win.Parked()
		}
	}
	a.is(c, "tracks that are gone and have messages in the queue", 0, len(queued))
	for _, g := range c.groups {
		a.group(c, g)
		if g.waits {
			waiting++
		}
		if g.ACK {
			for _, e := range g.Live() {
				if e.Message != nil && e.State != membership.Waiting {
					unacked++
				}
			}
		}
		timedOut += int(g.Late())
	}
	a.is(c, "tracks and groups that wait", int(c.waiting), waiting)
	a.is(c, "un-ACKed", int(c.unacked), unacked)
	a.is(c, "timed out", int(c.timedOut), timedOut)
	a.holds(c, "its window is kept", c.unacked <= c.window)
	a.unacked += unacked
	a.subscriptions(c)
	a.index(c)
	if m := c.connMore; m != noConnMore {
		a.mores++
		a.holds(c, "connMore is kept for something", c.state != stateOpen || m.byID != nil || m.byTop != nil || m.pubs != nil || m.sess != nil || m.groups != nil || m.claims != nil || m.profile != nil ||
			m.ackAt != 0 || m.ackSerial != 0 || m.turn != 0 || m.begun != 0 || m.sealed != 0 || m.secure || m.hungUp)
	}
	a.holds(c, "no walk over those that wait is left", !c.waking)
}

// queue counts what is queued, and gives how many messages each track has there.
func (a *auditor) queue(c *conn) map[*track]int {
	a.t.Helper()
	q := &c.out
	clear(a.out)
	if q.IsEmpty() {
		a.is(c, "items of nobody", int(q.Len()), 0)
		return nil
	}
	a.queues++
	a.holds(c, "its queue is for something", q.Len() > 0 || q.IsStalled())
	queued, last := map[*track]int{}, map[*track]uint64{}
	bytes, msgs, dead := 0, 0, 0
	for i := range q.Len() {
		it := q.At(i)
		bytes += len(it.Bytes())
		tr := trackOf(it.Stream())
		switch it.Kind() {
		case sendq.Dead:
			dead++
			continue
		case sendq.Message, sendq.Rest:
			msgs += int(it.Count())
			if tr != nil {
				queued[tr] += int(it.Count())
			}
		}
		for m, n := it.Message(), it.Count(); m != nil && n > 0; m, n = m.Next, n-1 {
			if tr != nil {
				a.out[waitingFor{t: tr, m: m}]++
			} else {
				a.out[waitingFor{sub: it.Subscription(), m: m}]++
			}
		}
		if it.Kind() != sendq.Message {
			continue
		}
		for m, n := it.Message(), it.Count(); n > 0; m, n = m.Next, n-1 {
			a.holds(c, "a run is as long as it says", m != nil)
			if tr != nil && m.Seq > 0 && !it.Again() && m.Epoch == tr.epoch && tr.rank == nil {
				a.holds(c, "first deliveries of a topic are in order", m.Seq > last[tr] && m.Seq <= tr.pos)
				last[tr] = m.Seq
			}
		}
	}
	a.is(c, "bytes in the queue", q.Bytes(), bytes)
	a.is(c, "messages in the queue", q.Messages(), msgs)
	a.is(c, "dead items", int(q.Dead()), dead)
	a.holds(c, "a queue counts for the budget", q.Held() > bytes)
	a.held += int64(q.Held())
	a.queued += bytes
	if q.IsStalled() {
		a.stuck++
	}
	return queued
}

func (a *auditor) track(c *conn, t *track, i int) {
	a.t.Helper()
	a.tracks++
	a.topics[t.topic]++
	a.holds(c, "a track knows its places", t.c == c && int(t.atConn) == i && t.topic.tracks.At(int(t.atTopic)) == t)
	if t.trackMore != noTrackMore {
		a.trackMores++
		m := t.trackMore
		a.holds(c, "trackMore is kept for something", m.also != nil || m.win != nil || m.gap.IsOpen() || m.retryAt != 0 || m.few || m.rng != nil || m.latest != nil || m.cur != nil ||
			m.rank != nil || m.changed || m.unnamed || m.first != 0 || t.held || t.reading || c.state != stateOpen)
	}
	if t.rng != nil {
		a.pinned++
		a.holds(c, "a range in hand is of the track's topic", t.rng.Topic == t.topic.name && t.rngAt <= len(t.rng.Messages))
	}
	a.window(c, t)
	a.shares(c, t)
	if c.state != stateOpen || c.draining {
		return
	}
	if t.kind == kindSession && t.cur != nil && !c.detached {
		a.holds(c, "a session's position is of the track's epoch, and not ahead of it", t.cur.Epoch == t.epoch && (t.cur.Floor <= t.pos || t.behind || t.rank != nil))
		listed := slices.ContainsFunc(c.sess.changed, func(r trackRef) bool { return r.get() == t })
		a.holds(c, "a position that changed is to be saved, and soon", t.changed == listed && (!t.changed || c.sess.SaveAt() != 0))
	}
	a.goesOn(c, t)
}

// goesOn sees to it that who is behind reads on, or waits for something that is not there yet.
func (a *auditor) goesOn(c *conn, t *track) {
	a.t.Helper()
	h := a.h
	name := t.topic.name
	if t.behind && !t.held && !t.told && t.rank == nil {
		a.holds(c, "who is behind in "+name+" reads, waits or is in line", t.runs || t.reading || t.waits || t.retryAt > 0)
	}
	if t.behind && !t.held && !t.told && t.rank == nil {
		a.holds(c, "who is behind in "+name+" is counted as such", t.lags && slices.ContainsFunc(h.lagging.tracks, func(r trackRef) bool { return r.get() == t }))
	}
	if t.reading && t.rank == nil {
		a.holds(c, "what is read of "+name+" was asked for", t.topic.reads != nil)
	}
	if t.waits && c.out.Len() == 0 && t.retryAt == 0 && t.behind && !t.runs && !t.reading && t.latest == nil && t.rank == nil {
		room := h.replay.roomToRead(t)
		a.holds(c, "nobody waits in "+name+" who has room, and whom nothing that leaves wakes", !room.Some || !room.Enough && !t.waited())
	}
	if t.latest != nil {
		a.holds(c, "the newest message of "+name+" waits for something", t.waits || t.Queued() > 0 || t.retryAt > 0 || t.behind)
	}
	if !t.behind && !t.held && !t.told && t.rank == nil && t.epoch != 0 && t.epoch == t.topic.epoch && t.latest == nil {
		a.holds(c, "who is not behind in "+name+" has what came", t.pos >= t.topic.last)
	}
}

func (a *auditor) window(c *conn, t *track) {
	a.t.Helper()
	w := t.win
	if w == nil {
		a.is(c, "un-ACKed of a topic without a window", int(t.unacked), 0)
		return
	}
	a.holds(c, "a window has something in it", !w.IsEmpty())
	n, last := 0, uint64(0)
	for i, e := range w.Live() {
		a.holds(c, "a window is in order", e.Seq > last)
		last = e.Seq
		if e.Message == nil {
			a.holds(c, "what was removed at the ends of a window goes", i > 0 && i < len(w.Live())-1)
			continue
		}
		n++
		out := a.out[waitingFor{t: t, m: e.Message}]
		if e.Queued {
			a.is(c, "a message that is on its way is in the queue", out, 1)
			a.holds(c, "a message that is on its way is not due", e.Due == 0 || e.Nacked || e.Sends == 0 || c.state != stateOpen)
		} else {
			a.is(c, "a message that is with the client is in the queue", out, 0)
			a.holds(c, "a message that is with the client is due some time", e.Due != 0)
		}
	}
	for i := range w.First() {
		a.holds(c, "what is before a window was removed", w.At(i).Message == nil)
	}
	a.is(c, "un-ACKed of "+t.topic.name, int(t.unacked), n)
	a.holds(c, "there is a window where messages are ACKed", t.ack)
	a.holds(c, "a track's own window is kept", t.window == 0 || t.unacked <= uint32(t.window) || t.cur != nil || t.rank != nil || len(t.also) > 0)
}

// shares sees to it that a track asks for what its subscriptions ask for together.
func (a *auditor) shares(c *conn, t *track) {
	a.t.Helper()
	ack, window, ids := false, uint16(0), map[uint32]bool{}
	for _, s := range append([]*sub{t.first}, t.also...) {
		a.holds(c, "a track is shared by subscriptions of its connection, of its kind", s.c == c && s.kind == t.kind && !ids[s.id])
		ids[s.id] = true
		ack = ack || s.ack
		if s.window > 0 && (window == 0 || s.window < window) {
			window = s.window
		}
	}
	a.holds(c, "a track ACKs as its subscriptions do", t.ack == ack && t.window == window)
	a.holds(c, "a plain track is shared, one of its own is not", t.kind != kindOwn || len(t.also) == 0)
}

func (a *auditor) group(c *conn, g *member) {
	a.t.Helper()
	a.subs++
	h := a.h
	a.holds(c, "a member is listed", g.c == c && g.Conn == h.handle(c) && !g.Ended() && g.Listed())
	a.holds(c, "a member's messages are counted", g.unacked == g.Unacked() && g.late == g.Late())
	waits := 0
	for i, e := range g.Live() {
		if e.Message == nil {
			a.holds(c, "what a member settled first goes", i > 0)
			continue
		}
		n := a.out[waitingFor{sub: g.ID, m: e.Message}]
		want := 0
		switch e.State {
		case membership.Queued:
			want = 1
		case membership.Waiting:
			waits++
		}
		a.is(c, "a member's message is in the queue", n, want)
	}
	if waits > 0 && c.state == stateOpen && !c.draining {
		a.holds(c, "a member with messages that wait waits, or is in line", g.waits || g.runs)
		a.holds(c, "no member waits that has room", g.runs || g.Stalled() || g.ACK && c.unacked >= c.window || !h.drained(c))
	}
	a.holds(c, "a member whose client does not read waits", !g.Stalled() || g.waits)
}

// auditTimes looks for what was due and was not done, after a tick: a timer that was not set, or
// was set too late, shows here.
func auditTimes(t tester, h *Hub) {
	t.Helper()
	if h.stats.Connections > auditedMost || h.tracks.slab.Taken() > auditedMost {
		return
	}
	for slot := range h.conns.len() {
		c := h.conns.get(slot)
		to := func(what string, due int64) {
			if due <= h.now-int64(2*Tick) {
				// times are kept to within a tick, and tests let parts of one go by
				t.Helper()
				t.Fatalf("connection %d: %s was due %d ms ago", slot, what, (h.now-due)/1e6)
			}
		}
		switch c.state {
		case stateNew, stateHello, stateWaiting:
			to("Hello", c.deadline)
			continue
		case stateOpen:
		default:
			continue
		}
		to("its silence", h.silentUntil(c))
		if c.draining {
			to("its end", c.deadline)
		}
		if c.begun != 0 && !h.holds(c) {
			to("a frame", c.begun+int64(h.lim.FrameTimeout))
		}
		if s := c.sess; s != nil && s.SaveAt() != 0 {
			to("its positions", s.SaveAt())
		}
		for _, tr := range c.tracks.All() {
			if tr.retryAt != 0 {
				to("a read of "+tr.topic.name, tr.retryAt)
			}
			if tr.gap.IsOpen() {
				to("a gap in "+tr.topic.name, tr.gap.Due)
			}
			if tr.win == nil {
				continue
			}
			for _, e := range tr.win.Live() {
				if e.Message != nil && e.Due != 0 {
					to("a message of "+tr.topic.name, e.Due)
				}
			}
		}
		for _, g := range c.groups {
			for _, e := range g.Live() {
				if e.Message != nil {
					to("a message of a group", e.Due)
				}
			}
		}
	}
}

func (a *auditor) subscriptions(c *conn) {
	a.t.Helper()
	h := a.h
	topics := map[*sub]int{}
	for _, t := range c.tracks.All() {
		for _, s := range append([]*sub{t.first}, t.also...) {
			topics[s]++
		}
	}
	ids, refs := map[uint32]bool{}, map[uint32]bool{}
	for i := range c.subs.Len() {
		s := c.subs.At(i)
		a.subs++
		a.holds(c, "a subscription knows its place, and is alone with its number", s.c == c && int(s.atConn) == i && !ids[s.id] && !refs[s.ref] && s.ref <= c.nextRef)
		ids[s.id], refs[s.ref] = true, true
		a.holds(c, "a subscription that is open is active, and needs nothing more for that", !s.open || s.pending == nil && (s.active || s.dead))
		if s.pending != nil {
			a.pendings++
		}
		if s.subMore != noSubMore {
			a.sharers++
			a.holds(c, "subMore is kept for something", s.wildcard || s.filtered || s.where != 0 || s.topK != 0)
		}
		if s.wildcard {
			a.wild[s.wild]++
			a.holds(c, "a filter is found by its name, and its subscription in it", h.wildcards.index.Find(s.wild.Name) == s.wild && s.wild.Subscriptions.At(int(s.at)) == s)
		} else {
			a.exact[s.topic]++
			a.holds(c, "a topic is found by its name", h.topics.byName.Get(s.topic.name) == s.topic)
			a.holds(c, "a subscription to one topic has one track", topics[s] <= 1)
		}
		delete(topics, s)
		a.holds(c, "a subscription is found by its numbers", c.subByID(s.id) == s && c.subByRef(s.ref) == s)
	}
	a.is(c, "tracks of subscriptions that are gone", len(topics), 0)
	a.holds(c, "a connection has no more subscriptions than it may", c.subs.Len()+len(c.groups) <= h.lim.Subscriptions)
}

// index looks at what finds the subscriptions and tracks of a connection with many.
func (a *auditor) index(c *conn) {
	a.t.Helper()
	a.holds(c, "many subscriptions are indexed", c.subs.Len() <= manyOf || c.byID != nil)
	if c.byID != nil {
		a.is(c, "subscriptions by their ids", len(c.byID), c.subs.Len())
		a.is(c, "subscriptions by their refs", len(c.byRef), c.subs.Len())
		a.holds(c, "an index is given back", c.subs.Len() > 0)
	}
	a.holds(c, "many tracks are indexed", c.tracks.Len() <= manyOf || c.byTop != nil)
	if c.byTop != nil {
		n := 0
		for ts, all := range c.byTop {
			n += len(all)
			a.holds(c, "tracks are found by their topic", len(all) > 0 && !slices.ContainsFunc(all, func(t *track) bool { return t.topic != ts || t.c != c }))
		}
		a.is(c, "tracks by their topics", n, c.tracks.Len())
		a.holds(c, "an index is given back", n > 0)
	}
}

// totals compares what the hub counts with what its connections have.
func (a *auditor) totals() {
	a.t.Helper()
	h, s := a.h, a.h.Stats()
	inUse := h.InUse()
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"connections", int(s.Connections), a.conns},
		{"subscriptions", int(s.Subscriptions), a.subs},
		{"un-ACKed", int(s.Unacked), a.unacked},
		{"queued bytes", int(s.QueuedBytes), a.queued},
		{"stuck", int(s.Stalled), a.stuck},
		{"ranges in hand", h.replay.pinned, a.pinned},
		{"positions", inUse["positions"], a.tracks},
		{"parts of positions", inUse["parts of positions"], a.trackMores},
		{"parts of connections", inUse["parts of connections"], a.mores},
		{"send queues", inUse["send queues"], a.queues},
		{"beginnings", inUse["beginnings"], a.pendings},
		{"parts of subscriptions", inUse["subscriptions with wildcards"], a.sharers},
		{"filters", inUse["filters"], len(a.wild)},
		{"filters by name", h.wildcards.index.Len(), len(a.wild)},
		{"owing", int(s.QueuesBySize[0]), a.queues},
		{"topics", int(s.Topics), inUse["topics"]},
	} {
		if c.got != c.want {
			a.t.Fatalf("%s: %d are counted, and there are %d", c.what, c.got, c.want)
		}
	}
	if h.cfg.Budget == nil && s.BudgetBytes != a.held+int64(h.ranked.room.Bytes()) && s.BudgetBytes != a.held {
		a.t.Fatalf("%d bytes of the budget are used, and there are %d", s.BudgetBytes, a.held)
	}
	needed := map[*topicState]bool{}
	for ts, n := range a.topics {
		needed[ts] = true
		if n != ts.tracks.Len() {
			a.t.Fatalf("%s has %d tracks, and there are %d", ts.name, ts.tracks.Len(), n)
		}
	}
	for ts, n := range a.exact {
		needed[ts] = true
		if n != int(ts.exact) {
			a.t.Fatalf("%s is subscribed to by name %d times, and %d are counted", ts.name, n, ts.exact)
		}
	}
	if len(needed) != int(s.Topics) {
		a.t.Fatalf("%d topics are kept, and %d are needed", s.Topics, len(needed))
	}
	for f, n := range a.wild {
		if n != f.Subscriptions.Len() {
			a.t.Fatalf("%s has %d subscriptions, and there are %d", f.Name, f.Subscriptions.Len(), n)
		}
	}
	if h.fan.active() || h.fan.inbox.Len() > 0 || h.waker.walks.Len() > 0 || h.jobs.Len()+h.rooms.jobs.Len() > 0 || !h.groups.room.AtRest() {
		a.t.Fatalf("the hub is not at rest")
	}
}
