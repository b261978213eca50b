package delivery

import (
	"math"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
)

// InUse counts what is taken of the hub's memory, by what it is. Once every connection has ended
// all of it is 0.
func (h *Hub) InUse() map[string]int {
	return map[string]int{
		"connections": int(h.stats.Connections), "queued bytes": int(h.queues.Bytes()), "un-ACKed": int(h.stats.Unacked), "kept bytes": int(h.kept.Bytes()), "ranges": h.replay.pinned,
		"subscriptions": h.subs.Slab.Taken(), "subscriptions with wildcards": h.subs.Mores.Taken(), "positions": h.tracks.Slab.Taken(), "parts of positions": h.tracks.Mores.Taken(), "beginnings": h.starter.pendings.Taken(),
		"parts of connections": h.conns.Mores.Taken(), "send queues": h.queues.InUse(), "topics": h.topics.Slab.Taken(), "reads": h.replay.reads.Topics(),
		"filters": h.wildcards.index.Taken(), "names": h.texts.Taken(), "records of links": h.links.Book().Taken(), "bytes of lists": h.arrays.Bytes(), "bytes of candidates": h.ranked.room.Bytes(), "claims": int(h.rooms.claims.Stats().Held),
	}
}

// Stats of the hub; gauges are up to date.
func (h *Hub) Stats() counters.Stats {
	s := h.stats
	s.Stats = h.links.Stats()
	s.Topics, s.KeptBytes = int64(h.topics.ByName.Len()), h.kept.Bytes()
	s.QueuedBytes, s.BudgetBytes = h.queues.Bytes(), h.queues.Budget().Used()
	s.KernelBytes, s.Stalled = h.queues.KernelBytes()
	s.QueuesBySize[0] = int64(h.queues.InUse())
	h.queues.AtLeast(counters.QueueSizes[1:], s.QueuesBySize[1:])
	if _, held, ok := h.queues.Largest(); ok {
		s.LargestQueue = int64(held)
	}
	s.Claims = *h.rooms.claims.Stats()
	s.HeldBack = h.rooms.report.Suppressed()
	s.AckTimeouts += h.groups.room.Stats().AckTimeouts
	s.Recalled = h.groups.room.Stats().Recalled
	return s
}

// Who is behind is listed, and looked at every second, some at a time: so the lag of subscriptions
// that wait shows too, and others cost nothing.

const (
	lagEvery = time.Second
	// lagSlice is how many tracks are looked at in one go.
	lagSlice = 256
)

// lagging are the tracks that are behind.
type lagging struct {
	hub    *Hub
	tracks []state.TrackRef // behind, or were when they were looked at last
	lookAt int64            // when they are looked at next
}

// add lists a track that is behind.
func (l *lagging) add(t *state.Track) {
	if !t.Lags && t.Behind {
		t.Lags = true
		l.tracks = append(l.tracks, t.Ref())
	}
}

// look begins to look at them, where it is time.
func (l *lagging) look() {
	if l.hub.now < l.lookAt {
		return
	}
	l.lookAt = l.hub.now + int64(lagEvery)
	l.hub.rooms.report.ForgetSlow(l.hub.now)
	if len(l.tracks) == 0 {
		return
	}
	l.lookAt = math.MaxInt64
	l.hub.jobs.Push(&census{})
}

// census is a walk over the tracks that are behind. It forgets those that are not any more.
type census struct {
	at, kept      int
	lag, furthest int64
	standing      int64
}

func (j *census) step(h *Hub) bool {
	for end := min(j.at+lagSlice, len(h.lagging.tracks)); j.at < end; j.at++ {
		r := h.lagging.tracks[j.at]
		t := r.Get()
		if t == nil {
			continue
		}
		if !t.Behind {
			t.Lags = false
			continue
		}
		if h.replay.stands(t) {
			j.standing++
		}
		lag := t.Lag()
		j.lag, j.furthest = j.lag+lag, max(j.furthest, lag)
		h.lagging.tracks[j.kept] = r
		j.kept++
	}
	if j.at < len(h.lagging.tracks) {
		return false
	}
	clear(h.lagging.tracks[j.kept:])
	h.lagging.tracks = h.lagging.tracks[:j.kept]
	h.stats.BehindNow, h.stats.Lag, h.stats.LongestLag, h.stats.StandingNow = int64(j.kept), j.lag, j.furthest, j.standing
	h.lagging.lookAt = h.now + int64(lagEvery)
	return true
}

// count counts, for one topic after the other, the connections with a subscription that matches it.
// Subscriptions that come or go while it is under way may be counted or not.
type count struct {
	topics  []string
	done    func(counts []uint64)
	counts  []uint64
	begun   bool // the topic after counts
	n       uint64
	track   int                 // of its tracks, next
	wild    []*state.Filter     // that match; nil: nobody has that one any more
	at      int                 // subscriptions of the first that are left, at most
	members []*membership.List  // of groups, that match; nil: nobody has that one any more
	visit   func(exchange.Conn) // of each; may be nil
}

// counts lets one count at a time mark connections.
type counts struct {
	serial uint32 // of the topic in hand, so that no connection counts twice
	job    *count
}

func (j *count) step(h *Hub) bool {
	if h.counts.job == nil {
		h.counts.job = j
	}
	if h.counts.job != j {
		return false // the marks on connections are of one count at a time
	}
	if len(j.counts) == len(j.topics) {
		h.counts.job = nil
		j.done(j.counts)
		return true
	}
	name := j.topics[len(j.counts)]
	if !j.begun {
		h.counts.serial++
		j.begun, j.n, j.track, j.wild, j.members = true, 0, 0, nil, nil
		j.at = math.MaxInt
		if request.Topic(name) == nil {
			j.wild = h.wildcards.index.Match(nil, name)
			j.members = h.groups.room.Of(name)
		}
	}
	if !j.slice(h, h.topics.ByName.Get(name)) {
		return false
	}
	j.counts, j.begun = append(j.counts, j.n), false
	return false
}

// slice looks at some subscriptions of the topic in hand, and reports whether that was the end.
func (j *count) slice(h *Hub, ts *state.Topic) bool {
	left := fanSlice
	for ; ts != nil && j.track < ts.Tracks.Len() && left > 0; left-- {
		j.seen(h, ts.Tracks.At(j.track).Conn)
		j.track++
	}
	for ; left > 0 && len(j.wild) > 0; left-- {
		// From the last to the first: what takes the place of one that goes was seen, or will be.
		f := j.wild[0]
		if f != nil {
			j.at = min(j.at, f.Subscriptions.Len())
		}
		if f == nil || j.at == 0 {
			j.wild, j.at = j.wild[1:], math.MaxInt
			continue
		}
		j.at--
		if s := f.Subscriptions.At(j.at); s.Active {
			j.seen(h, s.Conn)
		}
	}
	for ; left > 0 && len(j.members) > 0; left-- {
		l := j.members[0]
		if j.at = min(j.at, len(l.Members)); j.at == 0 {
			j.members, j.at = j.members[1:], math.MaxInt
			continue
		}
		j.at--
		if g := l.Members[j.at]; g.Open() {
			j.seen(h, h.conns.Get(g.Conn.Slot))
		}
	}
	return left > 0
}

func (j *count) seen(h *Hub, c *state.Conn) {
	if c.Counted == h.counts.serial || c.Phase != state.Open {
		return
	}
	c.Counted = h.counts.serial
	j.n++
	if j.visit != nil {
		j.visit(h.handle(c))
	}
}
