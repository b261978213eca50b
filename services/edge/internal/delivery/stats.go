package delivery

import (
	"math"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
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
		"parts of connections": h.conns.mores.Taken(), "send queues": h.queues.InUse(), "topics": h.topics.slab.Taken(), "reads": h.replay.reads.Taken(),
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
	s.KernelBytes, s.Stuck = h.queues.KernelBytes()
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
	Topics       int64
	Unacked      int64                  // messages in windows now
	QueuedBytes  int64                  // in send queues now
	BudgetBytes  int64                  // of the budget, used now
	KernelBytes  int64                  // of them, what the kernel holds for sockets that are stuck
	Stuck        int64                  // connections whose socket is stuck now
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
