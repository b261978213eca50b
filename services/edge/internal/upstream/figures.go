package upstream

import (
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
	s, f, ss, p, w := &m.stats, m.feed.Stats(), m.sessions, m.publish, m.wheres.Stats()
	judging, rejudging := m.judging.Stats(), m.rejudging.Stats()
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
		count("where_evaluations_total", "Evaluations of content filters: one for each message and distinct filter of its topic.", w.Evaluations.Load()),
		count("where_undefined_total", "Evaluations that had no value, which is false.", w.Undefined.Load()),
		count("where_failed_total", "Evaluations given up because of their cost, which is false.", w.Failed.Load()),
		count("where_refused_total", "Content filters refused.", w.Refused.Load()),
		gauge("where_queue_messages", "Messages that wait for content filters.", float64(judging.Messages.Load()+rejudging.Messages.Load())),
		gauge("where_queue_bytes", "Bytes of messages that wait for content filters.", float64(judging.Bytes.Load()+rejudging.Bytes.Load())),
		coded("where_dropped_total", "Messages for which content filters had no room, by why; durable ones are read from the log.", wirev1.Code_CODE_QUEUE_FULL, judging.Full.Load()),
		coded("where_dropped_total", "Messages for which content filters had no room, by why; durable ones are read from the log.", wirev1.Code_CODE_MEMORY_BUDGET, judging.NoMemory.Load()),
		coded("where_dropped_total", "Messages for which content filters had no room, by why; durable ones are read from the log.", wirev1.Code_CODE_OVERLOADED, rejudging.Full.Load()+rejudging.NoMemory.Load()),
		gauge("joins_waiting", "Subscriptions that wait for routers or heads.", float64(m.waiting.Load())),
		gauge("durable_topics", "Durable topics followed.", float64(f.Topics.Load())),
		gauge("sessions", "Durable sessions held.", float64(ss.Held.Load())),
		count("frames_total", "Frames of routers.", s.Frames.Load()),
		coded("bad_frames_total", "Frames and requests that can't be read.", wirev1.Code_CODE_BAD_FRAME, s.BadFrames.Load()),
		count("foreign_frames_total", "Frames for another incarnation.", s.ForeignFrames.Load()),
		count("broadcast_frames_total", "Frames of routers for every edge.", s.Broadcasts.Load()),
		count("repeated_frames_total", "Frames whose messages had come before, or came after later ones.", s.RepeatedFrames.Load()),
		coded("frames_dropped_total", "Frames of routers let go because too much waited.", wirev1.Code_CODE_OVERLOADED, s.ShedFrames.Load()),
		count("routed_total", "Messages that routers sent.", s.Deliveries.Load()),
		count("unwanted_total", "Messages that no loop wanted: of frames for every edge, or of topics just left.", f.Unwanted.Load()),
		count("duplicates_total", "Messages that had come before.", f.Duplicates.Load()),
		count("old_epoch_total", "Messages of an epoch that is gone.", f.Old.Load()),
		count("epochs_total", "Epochs that began under subscribers.", f.Epochs.Load()),
		count("announcements_total", "Announcements of interest.", s.Announcements.Load()),
		count("snapshots_total", "Snapshots of interest sent to routers.", s.Snapshots.Load()),
		coded("unsent_total", "Announcements, digests and snapshots that could not be sent.", wirev1.Code_CODE_UNAVAILABLE, s.Unsent.Load()),
		count("laggards_total", "Routers that a subscription was not held back for any longer.", s.Laggards.Load()),
		count("joins_without_router_total", "Subscriptions answered while there was no router.", s.WithoutRouter.Load()),
		count("joins_failed_total", "Subscriptions that failed at the mesh.", s.FailedJoins.Load()),
		count("large_filters_total", "Filters that match too many topics to be followed one by one.", s.LargeFilters.Load()),
		count("head_errors_total", "Questions about heads that the store did not answer.", s.HeadErrors.Load()),
		count("late_topics_total", "Topics found behind the store.", s.Late.Load()),
		count("holes_total", "Holes that led to a read of the log.", f.Holes.Load()),
		count("repaired_total", "Messages that came from the log to fill a hole.", f.Repaired.Load()),
		count("repair_errors_total", "Holes whose read failed and is tried again.", f.ReadErrors.Load()),
		count("phantoms_total", "Holes that the log can't fill.", f.Phantoms.Load()),
		coded("held_dropped_total", "Messages ahead of a hole beyond what may be held.", wirev1.Code_CODE_OVERLOADED, f.HeldDropped.Load()),
		count("kept_reads_total", "Ranges answered from what was read from the log for others a moment ago.", s.KeptReads.Load()),
		count("ring_reads_total", "Ranges answered from recent messages.", f.RingReads.Load()),
		coded("refused_runs_total", "Runs of messages that found a loop's mailbox full.", wirev1.Code_CODE_OVERLOADED, s.RefusedRuns.Load()),
		coded("mesh_refused_total", "Work refused or lost behind the loops, by why.", wirev1.Code_CODE_OVERLOADED,
			s.Overloaded.Load()+s.RefusedJoins.Load()+s.RefusedReads.Load()+s.RefusedRequests.Load()),
		count("attaches_total", "Sessions attached.", ss.Attaches.Load()),
		count("takeovers_total", "Sessions lost to another connection, or deleted while they were held.", ss.TakenOver.Load()),
		coded("takeovers_untold_total", "Edges that could not be told that they have lost a session.", wirev1.Code_CODE_UNAVAILABLE, ss.Untold.Load()),
		count("session_writes_total", "Writes of sessions stored.", ss.Written.Load()),
		count("session_writes_stale_total", "Writes of sessions that a newer holder made void.", ss.Stale.Load()),
		count("session_writes_failed_total", "Writes of sessions that are tried again.", ss.Failed.Load()),
		coded("session_writes_dropped_total", "Writes of sessions given up, at the cost of redelivery, by why.", wirev1.Code_CODE_OVERLOADED, ss.Overflowed.Load()),
		coded("session_writes_dropped_total", "Writes of sessions given up, at the cost of redelivery, by why.", wirev1.Code_CODE_INTERNAL, ss.Rejected.Load()),
		coded("client_publishes_total", "Messages of clients, by outcome.", wirev1.Code_CODE_OK, p.Sent.Load()),
		coded("client_publishes_total", "Messages of clients, by outcome.", wirev1.Code_CODE_OVERLOADED, p.Refused.Load()),
		coded("client_publishes_total", "Messages of clients, by outcome.", wirev1.Code_CODE_UNAVAILABLE, p.Unavailable.Load()),
	}
	ps := &m.telling
	out = append(out,
		gauge("presence_filters", "Filters whose members routers watch.", float64(ps.filters.Load())),
		gauge("presence_members", "Members held for them.", float64(ps.members.Load())),
		count("presence_walks_total", "Times the members of all filters had to be looked for again because too many changes waited.", ps.walks.Load()),
		coded("presence_refused_total", "Watches of routers that were refused, by why.", wirev1.Code_CODE_OVERLOADED, ps.overloaded.Load()),
		coded("presence_refused_total", "Watches of routers that were refused, by why.", wirev1.Code_CODE_MEMORY_BUDGET, ps.tooMany.Load()),
	)
	gs := m.GroupStats()
	out = append(out,
		gauge("group_dispatchers", "Groups (shared subscriptions) that this edge dispatches for.", float64(gs.Dispatchers.Load())),
		gauge("group_members", "Members of groups on this edge.", float64(gs.Members.Load())),
		count("group_grants_total", "Leases of groups granted to this edge.", gs.Grants.Load()),
		count("group_lost_total", "Leases of groups lost to another edge.", gs.Lost.Load()),
		count("group_dead_edges_total", "Edges whose members' messages went to others because they did not answer.", gs.Dead.Load()),
		count("group_assigned_total", "Messages assigned to members.", gs.Assigned.Load()),
		count("group_redelivered_total", "Messages assigned again.", gs.Redelivered.Load()),
		coded("group_drops_total", "Messages of groups that did not come, by why.", wirev1.Code_CODE_RETENTION, gs.Missed.Load()),
		coded("group_drops_total", "Messages of groups that did not come, by why.", wirev1.Code_CODE_EXPIRED, gs.Expired.Load()),
		coded("group_drops_total", "Messages of groups that did not come, by why.", wirev1.Code_CODE_NO_SUBSCRIBER, gs.NoMember.Load()),
		count("group_dead_letters_total", "Messages given up by groups.", gs.DeadLetters.Load()),
	)
	if m.cfg.Teller != nil {
		out = append(out, gauge("events_waiting", "Events ($events/…) that wait for a router.", float64(m.cfg.Teller.Waiting())))
		for c, n := range m.cfg.Teller.Counts() {
			out = append(out, coded("events_total", "Events that a router took (OK), or that are lost, by why.", c, n))
		}
	}
	for reason, n := range s.Checks() {
		out = append(out, labelled("head_checks_total", "Comparisons of heads with the store, by what caused them.", "reason", reason, n))
	}
	return append(out, m.readerFigures()...)
}

func (m *Mesh) readerFigures() []Figure {
	var out []Figure
	for name, r := range map[string]*history.Reader{"resume": m.resumes, "repair": m.repairs} {
		out = append(out,
			Figure{Name: "reads_waiting", Help: "Reads of logs that wait.", Gauge: true, Label: "for", Value: name, N: float64(r.Waiting())},
			Figure{Name: "store_reads_total", Help: "Reads of logs asked of the store.", Label: "for", Value: name, N: float64(r.Reads.Load())},
			Figure{Name: "shared_reads_total", Help: "Reads answered by one under way.", Label: "for", Value: name, N: float64(r.Shared.Load())},
			Figure{Name: "refused_reads_total", Help: "Reads refused because too many wait.", Label: "for", Value: name, N: float64(r.Refused.Load())},
			Figure{Name: "failed_reads_total", Help: "Reads that the store did not answer.", Label: "for", Value: name, N: float64(r.Failed.Load())},
		)
	}
	return out
}
