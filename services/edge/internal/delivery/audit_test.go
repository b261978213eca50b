package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/unacked"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
)

// audit looks at everything that must be true of a hub at rest, whatever brought it there: what is
// counted is there, what refers to each other does so from both sides, what is borrowed is in use,
// and nobody who could go on waits. Every test with a world has it done when the hub comes to rest,
// in long ones now and then.
func audit(t tester, h *Hub) {
	t.Helper()
	if h.stats.Connections > auditedMost || h.tracks.Slab.Taken() > auditedMost {
		return
	}
	a := &auditor{t: t, h: h, out: map[waitingFor]int{}, topics: map[*state.Topic]int{}, exact: map[*state.Topic]int{}, wild: map[*state.Filter]int{}}
	for slot := range h.conns.Len() {
		if c := h.conns.Get(slot); c.Phase != state.Free {
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
	t   *state.Track
	sub uint32
	m   *exchange.Message
}

type auditor struct {
	t tester
	h *Hub
	// out are the messages in the queue of the connection in hand.
	out map[waitingFor]int

	conns, subs, tracks, pinned, unacked, stuck, queued, pendings, sharers, trackMores, queues, kept int
	held                                                                                             int64
	topics, exact                                                                                    map[*state.Topic]int
	wild                                                                                             map[*state.Filter]int
	mores, watches                                                                                   int
}

// is fails unless a count is what it should be.
func (a *auditor) is(c *state.Conn, what string, got, want int) {
	if got != want {
		a.t.Helper()
		a.t.Fatalf("connection %d: %s: %d, and there are %d", c.Slot, what, got, want)
	}
}

func (a *auditor) holds(c *state.Conn, what string, ok bool) {
	if !ok {
		a.t.Helper()
		a.t.Fatalf("connection %d: not so: %s", c.Slot, what)
	}
}

func (a *auditor) conn(c *state.Conn) {
	a.t.Helper()
	a.conns++
	kept := a.kept
	queued := a.queue(c)
	waiting, unacked, timedOut := 0, 0, 0
	for i := range c.Tracks.Len() {
		tr := c.Tracks.At(i)
		a.track(c, tr, i)
		a.is(c, "messages of "+tr.Topic.Name()+" in the queue", int(tr.Queued()), queued[tr])
		delete(queued, tr)
		if tr.Waits {
			waiting++
		}
		unacked += int(tr.Unacked)
		if tr.Win != nil {
			timedOut += tr.Win.Parked()
		}
	}
	a.is(c, "tracks that are gone and have messages in the queue", 0, len(queued))
	for _, g := range c.Groups {
		a.group(c, g)
		if g.Waits {
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
	a.is(c, "tracks and groups that wait", int(c.Waiting), waiting)
	a.is(c, "un-ACKed", int(c.Unacked), unacked)
	a.is(c, "timed out", int(c.TimedOut), timedOut)
	a.holds(c, "its window is kept", c.Unacked <= c.Window)
	a.unacked += unacked
	a.subscriptions(c)
	if c.Session != nil {
		a.kept += c.Session.Kept
	}
	for _, p := range c.Publishes {
		a.kept += int(p.Bytes)
	}
	a.kept += c.Claims.Kept() + a.h.rooms.permissions.Kept(c.Slot) + a.h.rooms.members.Kept(c.Slot)
	a.watches += a.h.rooms.members.Watches(c.Slot)
	a.is(c, "bytes kept for it", int(a.h.kept.Of(c.Slot)), a.kept-kept)
	a.index(c)
	if m := c.ConnMore; m != state.NoConnMore {
		a.mores++
		a.holds(c, "ConnMore is kept for something", c.Phase != state.Open || m.ByID != nil || m.ByTopic != nil || m.Publishes != nil || m.Session != nil || m.Groups != nil || m.Claims != nil || m.Profile != nil ||
			m.AckAt != 0 || m.AckSerial != 0 || m.Turn != 0 || m.Begun != 0 || m.Outside != 0 || m.Secure != 0 || m.HungUp || m.Parked)
	}
	a.holds(c, "no walk over those that wait is left", !c.Waking)
}

// queue counts what is queued, and gives how many messages each track has there.
func (a *auditor) queue(c *state.Conn) map[*state.Track]int {
	a.t.Helper()
	q := &c.Out
	clear(a.out)
	if q.IsEmpty() {
		a.is(c, "items of nobody", int(q.Len()), 0)
		return nil
	}
	a.queues++
	a.holds(c, "its queue is for something", q.Len() > 0 || q.IsStalled() || c.Outside > 0)
	queued, last := map[*state.Track]int{}, map[*state.Track]uint64{}
	bytes, msgs, dead := 0, 0, 0
	for i := range q.Len() {
		it := q.At(i)
		bytes += len(it.Bytes())
		tr := state.TrackOf(it.Stream())
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
			if tr != nil && m.Seq > 0 && !it.Again() && m.Epoch == tr.Epoch && tr.Rank == nil {
				a.holds(c, "first deliveries of a topic are in order", m.Seq > last[tr] && m.Seq <= tr.Pos)
				last[tr] = m.Seq
			}
		}
	}
	a.is(c, "bytes in the queue", q.Bytes(), bytes)
	a.is(c, "messages in the queue", q.Messages(), msgs)
	a.is(c, "dead items", int(q.Dead()), dead)
	a.holds(c, "a queue counts for the budget", q.Held() > bytes)
	a.held += int64(q.Held())
	a.queued += bytes + int(c.Outside)
	if q.IsStalled() {
		a.stuck++
	}
	return queued
}

func (a *auditor) track(c *state.Conn, t *state.Track, i int) {
	a.t.Helper()
	a.tracks++
	a.topics[t.Topic]++
	a.holds(c, "a track knows its places", t.Conn == c && int(t.AtConn) == i && t.Topic.Tracks.At(int(t.AtTopic)) == t)
	if t.TrackMore != state.NoTrackMore {
		a.trackMores++
		m := t.TrackMore
		a.holds(c, "TrackMore is kept for something", m.Also != nil || m.Win != nil || m.Gap.IsOpen() || m.RetryAt != 0 || m.Few || m.Range != nil || m.Latest != nil || m.Cursor != nil ||
			m.Rank != nil || m.Changed || m.Unnamed || m.First != 0 || t.Held || t.Reading || c.Phase != state.Open)
	}
	if t.Range != nil {
		a.pinned++
		a.holds(c, "a range in hand is of the track's topic", t.Range.Topic == t.Topic.Name() && t.RangeAt <= len(t.Range.Messages))
	}
	a.window(c, t)
	a.shares(c, t)
	if c.Phase != state.Open || c.Draining {
		return
	}
	if t.Kind == state.KindSession && t.Cursor != nil && !c.Detached {
		a.holds(c, "a session's position is of the track's epoch, and not ahead of it", t.Cursor.Epoch == t.Epoch && (t.Cursor.Floor <= t.Pos || t.Behind || t.Rank != nil))
		listed := slices.ContainsFunc(c.Session.Changed, func(r state.TrackRef) bool { return r.Get() == t })
		a.holds(c, "a position that changed is to be saved, and soon", t.Changed == listed && (!t.Changed || c.Session.SaveAt() != 0))
	}
	a.goesOn(c, t)
}

// goesOn sees to it that who is behind reads on, or waits for something that is not there yet.
func (a *auditor) goesOn(c *state.Conn, t *state.Track) {
	a.t.Helper()
	h := a.h
	name := t.Topic.Name()
	if t.Behind && !t.Held && !t.Told.Any() && t.Rank == nil {
		a.holds(c, "who is behind in "+name+" reads, waits or is in line", t.Runs || t.Reading || t.Waits || t.RetryAt > 0)
	}
	if t.Behind && !t.Held && !t.Told.Any() && t.Rank == nil {
		a.holds(c, "who is behind in "+name+" is counted as such", t.Lags && slices.ContainsFunc(h.lagging.Tracks(), func(r state.TrackRef) bool { return r.Get() == t }))
	}
	if t.Reading && t.Rank == nil {
		a.holds(c, "what is read of "+name+" was asked for", t.Topic.Reads != nil)
	}
	if t.Waits && c.Out.Len() == 0 && t.RetryAt == 0 && t.Behind && !t.Runs && !t.Reading && t.Latest == nil && t.Rank == nil {
		room := h.replay.roomToRead(t)
		a.holds(c, "nobody waits in "+name+" who has room, and whom nothing that leaves wakes", !room.Some || !room.Enough && !t.Waited())
	}
	if t.Latest != nil {
		a.holds(c, "the newest message of "+name+" waits for something", t.Waits || t.Queued() > 0 || t.RetryAt > 0 || t.Behind)
	}
	if !t.Behind && !t.Held && !t.Told.Any() && t.Rank == nil && t.Epoch != 0 && t.Epoch == t.Topic.Epoch && t.Latest == nil {
		a.holds(c, "who is not behind in "+name+" has what came", t.Pos >= t.Topic.Last)
	}
}

func (a *auditor) window(c *state.Conn, t *state.Track) {
	a.t.Helper()
	w := t.Win
	if w == nil {
		a.is(c, "un-ACKed of a topic without a window", int(t.Unacked), 0)
		return
	}
	a.holds(c, "a window has something in it", !w.IsEmpty())
	n, bytes, last := 0, 0, uint64(0)
	for i, e := range w.Live() {
		a.holds(c, "a window is in order", e.Seq > last)
		last = e.Seq
		if e.Message == nil {
			a.holds(c, "what was removed at the ends of a window goes", i > 0 && i < len(w.Live())-1)
			continue
		}
		n++
		bytes += unacked.Kept(e.Message)
		out := a.out[waitingFor{t: t, m: e.Message}]
		if e.Queued {
			a.is(c, "a message that is on its way is in the queue", out, 1)
			a.holds(c, "a message that is on its way is not due", e.Due == 0 || e.Nacked || e.Sends == 0 || c.Phase != state.Open)
		} else {
			a.is(c, "a message that is with the client is in the queue", out, 0)
			a.holds(c, "a message that is with the client is due some time", e.Due != 0)
		}
	}
	for i := range w.First() {
		a.holds(c, "what is before a window was removed", w.At(i).Message == nil)
	}
	a.is(c, "un-ACKed of "+t.Topic.Name(), int(t.Unacked), n)
	a.is(c, "bytes of the window of "+t.Topic.Name(), w.Bytes(), bytes)
	a.kept += bytes
	a.holds(c, "there is a window where messages are ACKed", t.ACK)
	a.holds(c, "a track's own window is kept", t.Window == 0 || t.Unacked <= uint32(t.Window) || t.Cursor != nil || t.Rank != nil || len(t.Also) > 0)
}

// shares sees to it that a track asks for what its subscriptions ask for together.
func (a *auditor) shares(c *state.Conn, t *state.Track) {
	a.t.Helper()
	ack, window, ids := false, uint16(0), map[uint32]bool{}
	for _, s := range append([]*state.Subscription{t.First}, t.Also...) {
		a.holds(c, "a track is shared by subscriptions of its connection, of its kind", s.Conn == c && s.Kind == t.Kind && !ids[s.ID])
		ids[s.ID] = true
		ack = ack || s.ACK
		if s.Window > 0 && (window == 0 || s.Window < window) {
			window = s.Window
		}
	}
	a.holds(c, "a track ACKs as its subscriptions do", t.ACK == ack && t.Window == window)
	a.holds(c, "a plain track is shared, one of its own is not", t.Kind != state.KindOwn || len(t.Also) == 0)
}

func (a *auditor) group(c *state.Conn, g *state.Member) {
	a.t.Helper()
	a.subs++
	h := a.h
	a.holds(c, "a member is listed", g.Owner == c && g.Conn == h.handle(c) && !g.Ended() && g.Listed())
	a.holds(c, "a member's messages are counted", g.CountedUnacked == g.Unacked() && g.CountedLate == g.Late() && g.CountedBytes == g.Bytes())
	a.kept += g.Bytes()
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
	if waits > 0 && c.Phase == state.Open && !c.Draining {
		a.holds(c, "a member with messages that wait waits, or is in line", g.Waits || g.Runs)
		a.holds(c, "no member waits that has room", g.Runs || g.Stalled() || g.ACK && c.Unacked >= c.Window || !h.drained(c))
	}
	a.holds(c, "a member whose client does not read waits", !g.Stalled() || g.Waits)
}

// auditTimes looks for what was due and was not done, after a tick: a timer that was not set, or
// was set too late, shows here.
func auditTimes(t tester, h *Hub) {
	t.Helper()
	if h.stats.Connections > auditedMost || h.tracks.Slab.Taken() > auditedMost {
		return
	}
	for slot := range h.conns.Len() {
		c := h.conns.Get(slot)
		to := func(what string, due int64) {
			if due <= h.now-int64(2*Tick) {
				// times are kept to within a tick, and tests let parts of one go by
				t.Helper()
				t.Fatalf("connection %d: %s was due %d ms ago", slot, what, (h.now-due)/1e6)
			}
		}
		switch c.Phase {
		case state.Fresh, state.Hello, state.Waiting:
			to("Hello", c.Deadline)
			continue
		case state.Open:
		default:
			continue
		}
		to("its silence", c.SilentUntil(h.now, h.ms))
		if c.Draining {
			to("its end", c.Deadline)
		}
		if c.Begun != 0 && !c.Holds(maxAnswers) {
			to("a frame", c.Begun+int64(h.lim.FrameTimeout))
		}
		if s := c.Session; s != nil && s.SaveAt() != 0 {
			to("its positions", s.SaveAt())
		}
		if h.rooms.permissions.Waits(slot) {
			continue // its timers rest
		}
		for _, tr := range c.Tracks.All() {
			if tr.RetryAt != 0 {
				to("a read of "+tr.Topic.Name(), tr.RetryAt)
			}
			if tr.Gap.IsOpen() {
				to("a gap in "+tr.Topic.Name(), tr.Gap.Due)
			}
			if tr.Win == nil {
				continue
			}
			for _, e := range tr.Win.Live() {
				if e.Message != nil && e.Due != 0 {
					to("a message of "+tr.Topic.Name(), e.Due)
				}
			}
		}
		for _, g := range c.Groups {
			for _, e := range g.Live() {
				if e.Message != nil {
					to("a message of a group", e.Due)
				}
			}
		}
	}
}

func (a *auditor) subscriptions(c *state.Conn) {
	a.t.Helper()
	h := a.h
	topics := map[*state.Subscription]int{}
	for _, t := range c.Tracks.All() {
		for _, s := range append([]*state.Subscription{t.First}, t.Also...) {
			topics[s]++
		}
	}
	ids, refs := map[uint32]bool{}, map[uint32]bool{}
	for i := range c.Subs.Len() {
		s := c.Subs.At(i)
		a.subs++
		a.holds(c, "a subscription knows its place, and is alone with its number", s.Conn == c && int(s.AtConn) == i && !ids[s.ID] && !refs[s.Ref] && s.Ref <= c.NextRef)
		ids[s.ID], refs[s.Ref] = true, true
		a.holds(c, "a subscription that is open is active, and needs nothing more for that", !s.Open || s.Pending == nil && (s.Active || s.Dead))
		if s.Pending != nil {
			a.pendings++
		}
		if s.SubscriptionMore != state.NoSubscriptionMore {
			a.sharers++
			a.kept += int(s.Kept)
			a.holds(c, "SubscriptionMore is kept for something", s.Wildcard || s.Picky() || s.TopK != 0)
		}
		if s.Wildcard {
			a.wild[s.Wild]++
			a.holds(c, "a filter is found by its name, and its subscription in it", h.wildcards.index.Find(s.Wild.Name) == s.Wild && s.Wild.Subscriptions.At(int(s.At)) == s)
		} else {
			a.exact[s.Topic]++
			a.holds(c, "a topic is found by its name", h.topics.ByName.Get(s.Topic.Name()) == s.Topic)
			a.holds(c, "a subscription to one topic has one track", topics[s] <= 1)
		}
		delete(topics, s)
		a.holds(c, "a subscription is found by its numbers", c.SubByID(s.ID) == s && c.SubByRef(s.Ref) == s)
	}
	a.is(c, "tracks of subscriptions that are gone", len(topics), 0)
	a.holds(c, "a connection has no more subscriptions than it may", c.Subs.Len()+len(c.Groups) <= h.lim.Subscriptions)
}

// index looks at what finds the subscriptions and tracks of a connection with many.
func (a *auditor) index(c *state.Conn) {
	a.t.Helper()
	a.holds(c, "many subscriptions are indexed", c.Subs.Len() <= state.ManyOf || c.ByID != nil)
	if c.ByID != nil {
		a.is(c, "subscriptions by their ids", len(c.ByID), c.Subs.Len())
		a.is(c, "subscriptions by their refs", len(c.ByRef), c.Subs.Len())
		a.holds(c, "an index is given back", c.Subs.Len() > 0)
	}
	a.holds(c, "many tracks are indexed", c.Tracks.Len() <= state.ManyOf || c.ByTopic != nil)
	if c.ByTopic != nil {
		n := 0
		for ts, all := range c.ByTopic {
			n += len(all)
			a.holds(c, "tracks are found by their topic", len(all) > 0 && !slices.ContainsFunc(all, func(t *state.Track) bool { return t.Topic != ts || t.Conn != c }))
		}
		a.is(c, "tracks by their topics", n, c.Tracks.Len())
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
		{"kept bytes", int(s.KeptBytes), a.kept},
		{"queued bytes", int(s.QueuedBytes), a.queued},
		{"topics watched", inUse["topics watched"], a.watches},
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
	needed := map[*state.Topic]bool{}
	for ts, n := range a.topics {
		needed[ts] = true
		if n != ts.Tracks.Len() {
			a.t.Fatalf("%s has %d tracks, and there are %d", ts.Name(), ts.Tracks.Len(), n)
		}
	}
	for ts, n := range a.exact {
		needed[ts] = true
		if n != int(ts.Exact) {
			a.t.Fatalf("%s is subscribed to by name %d times, and %d are counted", ts.Name(), n, ts.Exact)
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
	if h.fan.active() || h.fan.inbox.Len() > 0 || h.starter.waits() || h.waker.Len() > 0 || h.jobs.Len()+h.rooms.jobs.Len() > 0 || !h.groups.room.AtRest() {
		a.t.Fatalf("the hub is not at rest")
	}
}
