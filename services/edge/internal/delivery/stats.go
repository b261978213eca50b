package delivery

import (
	"math"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
)

// Codes is the room of a counter by code.
const Codes = 64

// ByCode counts by wirev1.Code.
type ByCode [Codes]uint64

func (b *ByCode) add(c wirev1.Code, n uint64) {
	if c >= 0 && c < Codes {
		b[c] += n
	}
}

// InUse counts what is taken of the hub's memory, by what it is. Once every connection has ended
// all of it is 0.
func (h *Hub) InUse() map[string]int {
	return map[string]int{
		"connections": int(h.stats.Connections), "queued bytes": int(h.queues.Bytes()), "un-ACKed": int(h.stats.Unacked), "ranges": h.replay.pinned,
		"subscriptions": h.subSlab.Taken(), "subscriptions with wildcards": h.subMores.Taken(), "positions": h.tracks.slab.Taken(), "parts of positions": h.tracks.mores.Taken(), "beginnings": h.starter.pendings.Taken(),
		"parts of connections": h.conns.mores.Taken(), "send queues": h.queues.InUse(), "topics": h.topics.slab.Taken(), "reads": h.replay.reads.Topics(),
		"filters": h.wildcards.index.Taken(), "names": h.texts.Taken(), "records of links": h.links.Book().Taken(), "bytes of lists": h.arrays.Bytes(), "bytes of candidates": h.ranked.room.Bytes(), "claims": int(h.rooms.claims.Stats().Held),
	}
}

// QueueSizes are the sizes by which queues are counted: bytes at least, kernel memory of stalled
// sockets included.
var QueueSizes = [...]int{1, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

// Stats of the hub; gauges are up to date.
func (h *Hub) Stats() Stats {
	s := h.stats
	s.Stats = h.links.Stats()
	s.Topics = int64(h.topics.byName.Len())
	s.QueuedBytes, s.BudgetBytes = h.queues.Bytes(), h.queues.Budget().Used()
	s.KernelBytes, s.Stalled = h.queues.KernelBytes()
	s.QueuesBySize[0] = int64(h.queues.InUse())
	h.queues.AtLeast(QueueSizes[1:], s.QueuesBySize[1:])
	if _, held, ok := h.queues.Largest(); ok {
		s.LargestQueue = int64(held)
	}
	s.Claims = *h.rooms.claims.Stats()
	s.HeldBack = h.rooms.report.Suppressed()
	s.AckTimeouts += h.groups.room.Stats().AckTimeouts
	s.Recalled = h.groups.room.Stats().Recalled
	return s
}

// Stats are plain counters of one hub, copied for whoever reads them.
type Stats struct {
	Connections   int64 // held now
	Subscriptions int64 // held now
	// with a subscription of their own, or durable and seen under a wildcard
	Topics      int64
	Unacked     int64 // messages in windows now
	QueuedBytes int64 // in send queues now
	BudgetBytes int64 // of the budget, used now
	// of them, what the kernel holds for sockets that are stalled
	KernelBytes  int64
	Stalled      int64                  // connections whose socket is stalled now
	QueuesBySize [len(QueueSizes)]int64 // queues of at least so many bytes now
	// bytes of the largest queue, to an eighth; 0: none is large
	LargestQueue int64
	// of those, the ones that stand still behind a message that is never ACKed
	StandingNow int64
	// subscriptions that read on from the log, as of the last second or so
	BehindNow int64
	// messages between those and the heads of their topics, together
	Lag        int64
	LongestLag int64 // of one of them

	Deliveries   uint64 // Message frames that left for the kernel
	Redeliveries uint64 // of them, with attempt above 0 on this connection
	Frames       uint64 // frames read
	Behind       uint64 // times a subscription fell behind
	Resumed      uint64 // times one came level again
	StandStills  uint64 // messages read again because a session stood still behind them
	LogReads     uint64 // ranges asked for
	// crossings of a level of a queue that were not told, for their number
	HeldBack uint64
	// times that a queue was trimmed, because the budget was used up
	Trims       uint64
	Acks        uint64 // messages ACKed
	Nacks       uint64
	StaleAcks   uint64 // entries of a wrong epoch, or for nothing that was un-ACKed
	AckTimeouts uint64 // messages that left a window un-ACKed
	DeadLetters uint64
	StaleEvents uint64 // events for connections that were gone
	// messages of groups that went back unsent, because their member's client did not read
	Recalled uint64

	linkhealth.Stats

	Claims claims.Stats

	Unranked ByCode // messages that were to be ranked and were not, by why

	Drops   ByCode // messages that did not come, by why
	Closes  ByCode // connections; OK: the client ended it
	Refused ByCode // requests answered with an Error
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
	tracks []trackRef // behind, or were when they were looked at last
	lookAt int64      // when they are looked at next
}

// add lists a track that is behind.
func (l *lagging) add(t *track) {
	if !t.lags && t.behind {
		t.lags = true
		l.tracks = append(l.tracks, t.ref())
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
		t := r.get()
		if t == nil {
			continue
		}
		if !t.behind {
			t.lags = false
			continue
		}
		if h.replay.stands(t) {
			j.standing++
		}
		lag := t.lag()
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

// lag is how many messages lie between the track and the head of its topic, as far as that is
// known.
func (t *track) lag() int64 {
	head := t.pos
	if t.topic.epoch == t.epoch {
		head = max(head, t.topic.last)
	}
	if t.rng != nil && t.rng.Epoch == t.epoch {
		head = max(head, t.rng.Head)
	}
	return int64(head - t.pos)
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
	wild    []*filter           // that match; nil: nobody has that one any more
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
	if !j.slice(h, h.topics.byName.Get(name)) {
		return false
	}
	j.counts, j.begun = append(j.counts, j.n), false
	return false
}

// slice looks at some subscriptions of the topic in hand, and reports whether that was the end.
func (j *count) slice(h *Hub, ts *topicState) bool {
	left := fanSlice
	for ; ts != nil && j.track < ts.tracks.Len() && left > 0; left-- {
		j.seen(h, ts.tracks.At(j.track).c)
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
		if s := f.Subscriptions.At(j.at); s.active {
			j.seen(h, s.c)
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
			j.seen(h, h.conns.get(g.Conn.Slot))
		}
	}
	return left > 0
}

func (j *count) seen(h *Hub, c *conn) {
	if c.counted == h.counts.serial || c.state != stateOpen {
		return
	}
	c.counted = h.counts.serial
	j.n++
	if j.visit != nil {
		j.visit(h.handle(c))
	}
}
