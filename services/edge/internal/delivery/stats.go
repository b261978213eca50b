package delivery

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
)

// InUse counts what is taken of the hub's memory, by what it is. Once every connection has ended
// all of it is 0.
func (h *Hub) InUse() map[string]int {
	return map[string]int{
		"connections": int(h.stats.Connections), "queued bytes": int(h.queues.Bytes()), "un-ACKed": int(h.stats.Unacked), "kept bytes": int(h.kept.Bytes()), "ranges": h.replay.pinned,
		"subscriptions": h.subs.Slab.Taken(), "subscriptions with wildcards": h.subs.Mores.Taken(), "positions": h.tracks.Slab.Taken(), "parts of positions": h.tracks.Mores.Taken(), "beginnings": h.starter.pendings.Taken(),
		"parts of connections": h.conns.Mores.Taken(), "send queues": h.queues.InUse(), "topics": h.topics.Slab.Taken(), "reads": h.replay.reads.Topics(), "reads for those with many positions": h.replay.reads.Many(),
		"filters": h.wildcards.index.Taken(), "names": h.texts.Taken() + h.rooms.principals.Taken(), "records of links": h.links.Book().Taken(), "bytes of lists": h.arrays.Bytes(), "bytes of candidates": h.ranked.room.Bytes(), "claims": int(h.rooms.claims.Stats().Held), "topics watched": int(h.rooms.members.Stats().Watches), "states": int(h.rooms.members.Stats().States), "leases": int(h.rooms.permissions.Stats().Leases), "parked requests": int(h.rooms.permissions.Stats().Parked),
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
	s.Claims, s.Principals, s.Permissions = *h.rooms.claims.Stats(), h.rooms.principals.Stats(), h.rooms.permissions.Stats()
	s.Members = *h.rooms.members.Stats()
	s.HeldBack = h.rooms.report.Suppressed()
	s.AckTimeouts += h.groups.room.Stats().AckTimeouts
	s.Recalled = h.groups.room.Stats().Recalled
	f := h.lagging.Figures()
	s.BehindNow, s.StandingNow, s.Lag, s.LongestLag = f.Behind, f.Standing, f.Lag, f.Longest
	return s
}
