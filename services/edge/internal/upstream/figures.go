package upstream

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
)

// Figure is one number for metrics.
type Figure struct {
	Name, Help   string
	Gauge        bool
	Label, Value string // "": none
	N            float64
}

// Figures of everything behind the loops. It may be called at any time once SetLoops was.
func (m *Mesh) Figures() []Figure {
	s, f, ss, p, w := &m.stats, m.feed.Stats(), m.sessions, m.publish, m.judging.wheres.Stats()
	judging, rejudging := m.judging.routed.Stats(), m.judging.ranges.Stats()
	gauge := func(name, help string, n float64) Figure { return Figure{Name: name, Help: help, Gauge: true, N: n} }
	count := func(name, help string, n uint64) Figure { return Figure{Name: name, Help: help, N: float64(n)} }
	labelled := func(name, help, label, value string, n uint64) Figure {
		return Figure{Name: name, Help: help, Label: label, Value: value, N: float64(n)}
	}
	coded := func(name, help string, c wirev1.Code, n uint64) Figure {
		return labelled(name, help, "code", code.Name(c), n)
	}
	out := []Figure{
		gauge("interest_filters", "Topics and filters announced to routers.", float64(s.Filters.Load())),
		gauge("routers", "Live routers.", float64(m.Routers())),
		gauge("where_programs", "Distinct content filters in use.", float64(w.Programs.Load())),
		gauge("where_subscriptions", "Subscriptions with a content filter.", float64(w.Subscriptions.Load())),
		gauge("where_memory_bytes", "Bytes of what is kept for content filters, as estimated.", float64(w.Memory.Load())),
		count("where_evaluations_total", "Evaluations of content filters: one for each message and distinct filter of its topic.", w.Evaluations.Load()),
		count("where_undefined_total", "Evaluations of content filters without a value, which counts as false.", w.Undefined.Load()),
		count("where_failed_total", "Evaluations of content filters stopped at their cost limit, which counts as false.", w.Failed.Load()),
		count("where_refused_total", "Content filters refused.", w.Refused.Load()),
		gauge("where_queue_messages", "Messages queued for content filters.", float64(judging.Messages.Load()+rejudging.Messages.Load())),
		gauge("where_queue_bytes", "Bytes of messages queued for content filters.", float64(judging.Bytes.Load()+rejudging.Bytes.Load())),
		coded("where_dropped_total", "Messages dropped because the queue for content filters was full, by reason; durable ones are read from the log.", wirev1.Code_CODE_QUEUE_FULL, judging.Full.Load()),
		coded("where_dropped_total", "Messages dropped because the queue for content filters was full, by reason; durable ones are read from the log.", wirev1.Code_CODE_MEMORY_BUDGET, judging.NoMemory.Load()),
		coded("where_dropped_total", "Messages dropped because the queue for content filters was full, by reason; durable ones are read from the log.", wirev1.Code_CODE_OVERLOADED, rejudging.Full.Load()+rejudging.NoMemory.Load()),
		gauge("joins_waiting", "Subscriptions that wait for routers to know them, or for heads of topics.", float64(m.joins.waiting.Load())),
		gauge("upstream_jobs", "Long work of the mesh that is being done in slices: answers of stores, joins, comparisons of heads, members that routers watch.", float64(m.work.Stats().Waiting.Load())),
		count("upstream_slices_total", "Slices of this work, 0.5 ms each.", m.work.Stats().Slices.Load()),
		gauge("upstream_longest_slice_seconds", "The longest of these so far.", time.Duration(m.work.Stats().Longest.Load()).Seconds()),
		gauge("durable_topics", "Durable topics followed.", float64(f.Topics.Load())),
		gauge("sessions", "Sessions attached to this edge.", float64(ss.Held.Load())),
		count("frames_total", "Frames received from routers.", s.Frames.Load()),
		coded("bad_frames_total", "Frames, requests and messages that could not be decoded.", wirev1.Code_CODE_BAD_FRAME, s.BadFrames.Load()),
		count("foreign_frames_total", "Frames for another incarnation of this edge.", s.ForeignFrames.Load()),
		count("broadcast_frames_total", "Frames received that routers send to every edge.", s.Broadcasts.Load()),
		count("repeated_frames_total", "Frames received twice or late.", s.RepeatedFrames.Load()),
		coded("frames_dropped_total", "Frames of routers dropped because too many were queued.", wirev1.Code_CODE_OVERLOADED, s.ShedFrames.Load()),
		count("routed_total", "Messages received from routers.", s.Deliveries.Load()),
		count("unwanted_messages_total", "Messages received that no loop wanted: of frames for every edge, or of topics unsubscribed shortly before.", f.Unwanted.Load()),
		count("duplicates_total", "Messages received twice.", f.Duplicates.Load()),
		count("old_epoch_total", "Messages received of an epoch that has ended.", f.Old.Load()),
		count("epoch_changes_total", "Topics that began a new epoch while they had subscribers.", f.Epochs.Load()),
		count("announcements_total", "Announcements of interest sent to routers.", s.Announcements.Load()),
		count("snapshots_total", "Snapshots of interest sent to routers.", s.Snapshots.Load()),
		coded("announcements_unsent_total", "Announcements, digests and snapshots of interest that could not be sent.", wirev1.Code_CODE_UNAVAILABLE, s.Unsent.Load()),
		count("slow_routers_total", "Times that a subscription was answered although a router had not confirmed it in time.", s.Laggards.Load()),
		count("joins_without_router_total", "Subscriptions answered while no router was known.", s.WithoutRouter.Load()),
		count("joins_failed_total", "Subscriptions that failed upstream.", s.FailedJoins.Load()),
		count("large_filters_total", "Filters that match too many topics to follow each one.", s.LargeFilters.Load()),
		count("head_errors_total", "Questions about heads that the store did not answer.", s.HeadErrors.Load()),
		count("late_topics_total", "Topics found to be behind the store, and repaired.", s.Late.Load()),
		count("gaps_total", "Gaps in topics that led to a read of the log.", f.Holes.Load()),
		count("repaired_messages_total", "Messages read from the log to fill a gap.", f.Repaired.Load()),
		count("repair_errors_total", "Reads to fill a gap that failed and are tried again.", f.ReadErrors.Load()),
		count("gaps_unfillable_total", "Gaps that the log can't fill.", f.Phantoms.Load()),
		coded("ahead_of_gap_dropped_total", "Messages received ahead of a gap and dropped because too many waited for it; they are read from the log.", wirev1.Code_CODE_OVERLOADED, f.HeldDropped.Load()),
		count("cached_reads_total", "Reads of logs answered from ranges that were read shortly before.", s.KeptReads.Load()),
		count("recent_reads_total", "Reads of logs answered from recent messages in memory.", f.RingReads.Load()),
		coded("mailbox_refused_batches_total", "Batches of messages refused because a loop's mailbox was full.", wirev1.Code_CODE_OVERLOADED, s.RefusedRuns.Load()),
		coded("upstream_refused_total", "Work of loops that was refused because too much was queued, by reason.", wirev1.Code_CODE_OVERLOADED,
			s.Overloaded.Load()+s.RefusedJoins.Load()+s.RefusedReads.Load()+s.RefusedRequests.Load()),
		count("attaches_total", "Sessions attached.", ss.Attaches.Load()),
		count("takeovers_total", "Sessions taken over by another connection, or deleted while attached.", ss.TakenOver.Load()),
		coded("takeovers_unnotified_total", "Edges that could not be notified that a session was taken from them.", wirev1.Code_CODE_UNAVAILABLE, ss.Untold.Load()),
		count("session_writes_total", "Writes of sessions that are stored.", ss.Written.Load()),
		count("session_writes_stale_total", "Writes of sessions refused because a newer connection has the session.", ss.Stale.Load()),
		count("session_writes_failed_total", "Writes of sessions that failed and are tried again.", ss.Failed.Load()),
		coded("session_writes_dropped_total", "Writes of sessions given up, by reason; their messages are delivered again.", wirev1.Code_CODE_OVERLOADED, ss.Overflowed.Load()),
		coded("session_writes_dropped_total", "Writes of sessions given up, by reason; their messages are delivered again.", wirev1.Code_CODE_INTERNAL, ss.Rejected.Load()),
		coded("client_publishes_total", "Messages published by clients, by result.", wirev1.Code_CODE_OK, p.Sent.Load()),
		coded("client_publishes_total", "Messages published by clients, by result.", wirev1.Code_CODE_OVERLOADED, p.Refused.Load()),
		coded("client_publishes_total", "Messages published by clients, by result.", wirev1.Code_CODE_UNAVAILABLE, p.Unavailable.Load()),
		coded("client_publishes_total", "Messages published by clients, by result.", wirev1.Code_CODE_RATE_LIMITED, p.TooManyTopics()),
	}
	ps := &m.members
	out = append(out,
		gauge("presence_filters", "Filters whose members routers watch.", float64(ps.filters.Load())),
		gauge("presence_members", "Members of the filters that routers watch.", float64(ps.members.Load())),
		count("presence_walks_total", "Times that the members of all filters had to be listed again because too many changes were queued.", ps.walks.Load()),
		coded("presence_refused_total", "Watches of routers that were refused, by reason.", wirev1.Code_CODE_OVERLOADED, ps.overloaded.Load()),
		coded("presence_refused_total", "Watches of routers that were refused, by reason.", wirev1.Code_CODE_MEMORY_BUDGET, ps.tooMany.Load()),
	)
	gs := m.GroupStats()
	out = append(out,
		gauge("groups", "Groups (shared subscriptions) that have members on this edge or are dispatched by it.", float64(gs.Groups.Load())),
		gauge("group_memory_bytes", "Bytes that groups keep on this edge, about.", float64(gs.Memory.Load())),
		coded("group_refused_total", "Subscriptions that groups of this edge had no room for, by reason.", wirev1.Code_CODE_OVERLOADED, gs.Overloaded.Load()),
		coded("group_refused_total", "Subscriptions that groups of this edge had no room for, by reason.", wirev1.Code_CODE_RATE_LIMITED, gs.RateLimited.Load()),
		coded("group_refused_total", "Subscriptions that groups of this edge had no room for, by reason.", wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, gs.AddressFull.Load()),
		count("group_memory_waits_total", "Times that a group kept messages out until group memory came free.", gs.MemoryWaits.Load()),
		gauge("group_dispatchers", "Groups (shared subscriptions) that this edge dispatches for.", float64(gs.Dispatchers.Load())),
		gauge("group_members", "Members of groups on this edge.", float64(gs.Members.Load())),
		count("group_leases_granted_total", "Leases of groups granted to this edge.", gs.Grants.Load()),
		count("group_leases_lost_total", "Leases of groups lost to another edge.", gs.Lost.Load()),
		count("group_silent_edges_total", "Edges whose members' messages were given to others because they did not answer.", gs.Dead.Load()),
		count("group_assigned_total", "Messages assigned to members.", gs.Assigned.Load()),
		count("group_redeliveries_total", "Messages assigned to a member again.", gs.Redelivered.Load()),
		coded("group_drops_total", "Messages of groups that were not delivered, by reason.", wirev1.Code_CODE_RETENTION, gs.Missed.Load()),
		coded("group_drops_total", "Messages of groups that were not delivered, by reason.", wirev1.Code_CODE_EXPIRED, gs.Expired.Load()),
		coded("group_drops_total", "Messages of groups that were not delivered, by reason.", wirev1.Code_CODE_NO_SUBSCRIBER, gs.NoMember.Load()),
		coded("group_drops_total", "Messages of groups that were not delivered, by reason.", wirev1.Code_CODE_QUEUE_FULL, gs.TooMany.Load()),
		count("group_dead_letters_total", "Messages of groups that became dead letters.", gs.DeadLetters.Load()),
	)
	if m.cfg.Teller != nil {
		out = append(out, gauge("events_waiting", "Events ($events/…) queued for a router.", float64(m.cfg.Teller.Waiting())))
		for c, n := range m.cfg.Teller.Counts() {
			out = append(out, coded("events_total", "Events that a router accepted (OK), or that were dropped, by reason.", c, n))
		}
	}
	for reason, n := range s.Checks() {
		out = append(out, labelled("head_checks_total", "Comparisons of heads with the store, by reason.", "reason", reason, n))
	}
	return append(out, m.reads.figures()...)
}

func (r *reads) figures() []Figure {
	var out []Figure
	for name, reader := range map[string]*history.Reader{"resume": r.resumes, "repair": r.repairs} {
		out = append(out,
			Figure{Name: "reads_waiting", Help: "Reads of logs that are queued.", Gauge: true, Label: "for", Value: name, N: float64(reader.Waiting())},
			Figure{Name: "store_reads_total", Help: "Reads of logs sent to the store.", Label: "for", Value: name, N: float64(reader.Reads.Load())},
			Figure{Name: "shared_reads_total", Help: "Reads of logs answered together with one under way.", Label: "for", Value: name, N: float64(reader.Shared.Load())},
			Figure{Name: "refused_reads_total", Help: "Reads of logs refused because too many were queued.", Label: "for", Value: name, N: float64(reader.Refused.Load())},
			Figure{Name: "failed_reads_total", Help: "Reads that the store did not answer.", Label: "for", Value: name, N: float64(reader.Failed.Load())},
		)
	}
	return out
}
