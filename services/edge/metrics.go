package edge

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream"
)

// collector reads plain counters at scrape, so that counting costs the loops nothing.
type collector struct {
	loops func() []loop.Stats
	mesh  func() []upstream.Figure
	parts []func(chan<- prometheus.Metric) // of parts beside the loops
}

func (e *Edge) metrics() prometheus.Collector {
	c := &collector{mesh: e.mesh.Figures, loops: func() []loop.Stats {
		all := make([]loop.Stats, len(e.loops))
		for i, l := range e.loops {
			all[i] = l.Stats()
		}
		return all
	}}
	c.parts = append(c.parts, e.sendFollowed)
	if e.handshakes != nil {
		c.parts = append(c.parts, e.sendTLS)
	}
	if e.gate != nil {
		c.parts = append(c.parts, e.sendIdentity)
	}
	return c
}

// Describe sends nothing: the set depends on what has happened, which makes the collector
// unchecked.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends everything.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	all := c.loops()
	for _, f := range sums {
		total := 0.0
		for i := range all {
			total += f.of(&all[i])
		}
		send(ch, f.name, f.help, f.kind, total)
	}
	for _, f := range byCode {
		var total counters.ByCode
		for i := range all {
			for k, n := range f.of(&all[i]) {
				total[k] += n
			}
		}
		sendByCode(ch, f.name, f.help, total)
	}
	sendClaims(ch, all)
	refused := uint64(0)
	for i := range all {
		refused += all[i].MailboxRefused
	}
	sendByCode(ch, "mailbox_refused_total", "Events refused because a loop's mailbox was full.", counters.ByCode{wirev1.Code_CODE_OVERLOADED: refused})
	sendLag(ch, all)
	sendSpread(ch, all)
	sendModes(ch, all)
	sendRTT(ch, all)
	sendQueueSizes(ch, all)
	for _, part := range c.parts {
		part(ch)
	}
	for _, f := range c.mesh() {
		kind := prometheus.CounterValue
		if f.Gauge {
			kind = prometheus.GaugeValue
		}
		var labels, values []string
		if f.Label != "" {
			labels, values = []string{f.Label}, []string{f.Value}
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("pushmesh_edge_"+f.Name, f.Help, labels, nil), kind, f.N, values...)
	}
}

func send(ch chan<- prometheus.Metric, name, help string, kind prometheus.ValueType, v float64) {
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("pushmesh_edge_"+name, help, nil, nil), kind, v)
}

func sendByCode(ch chan<- prometheus.Metric, name, help string, counts counters.ByCode) {
	desc := prometheus.NewDesc("pushmesh_edge_"+name, help, []string{"code"}, nil)
	for k, n := range counts {
		if n > 0 {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), code.Name(wirev1.Code(k)))
		}
	}
}

// sendClaims sends the number of claim requests by operation and result.
func sendClaims(ch chan<- prometheus.Metric, all []loop.Stats) {
	desc := prometheus.NewDesc("pushmesh_edge_claim_requests_total", "Claim requests of clients, by operation and result.", []string{"op", "code"}, nil)
	for op := range wirev1.Claim_Op(claims.Ops) {
		var total counters.ByCode
		for i := range all {
			for k, n := range all[i].Claims.Requests[op] {
				total[k] += n
			}
		}
		for k, n := range total {
			if n > 0 {
				name := strings.ToLower(strings.TrimPrefix(op.String(), "OP_"))
				ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), name, code.Name(wirev1.Code(k)))
			}
		}
	}
}

// sendLag sends the worst loop's quantiles: of its last 100 samples, and since start.
func sendLag(ch chan<- prometheus.Metric, all []loop.Stats) {
	var recent, ever loop.Quantiles
	worst := func(a, b loop.Quantiles) loop.Quantiles {
		return loop.Quantiles{P50: max(a.P50, b.P50), P95: max(a.P95, b.P95), P99: max(a.P99, b.P99), Max: max(a.Max, b.Max)}
	}
	for i := range all {
		recent, ever = worst(recent, all[i].Lag.Recent()), worst(ever, all[i].Lag.SinceStart())
	}
	desc := prometheus.NewDesc("pushmesh_edge_loop_lag_seconds", "Lag of the worst loop, sampled every 100 ms.", []string{"of", "quantile"}, nil)
	for of, q := range map[string]loop.Quantiles{"last_100": recent, "start": ever} {
		for name, v := range map[string]float64{"0.5": q.P50.Seconds(), "0.95": q.P95.Seconds(), "0.99": q.P99.Seconds(), "1": q.Max.Seconds()} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, of, name)
		}
	}
}

// sendSpread sends how evenly the kernel spreads connections over loops.
func sendSpread(ch chan<- prometheus.Metric, all []loop.Stats) {
	least, most := all[0].Connections, all[0].Connections
	for i := range all {
		least, most = min(least, all[i].Connections), max(most, all[i].Connections)
	}
	send(ch, "loops", "Event loops.", prometheus.GaugeValue, float64(len(all)))
	send(ch, "loop_connections_max", "Connections of the loop that holds the most.", prometheus.GaugeValue, float64(most))
	send(ch, "loop_connections_min", "Connections of the loop that holds the fewest.", prometheus.GaugeValue, float64(least))
}

// sendModes sends how many loops send in which way.
func sendModes(ch chan<- prometheus.Metric, all []loop.Stats) {
	modes := map[loop.SendMode]int{}
	for i := range all {
		if m := all[i].SendMode; m != "" {
			modes[m]++
		}
	}
	desc := prometheus.NewDesc("pushmesh_edge_send_mode", "Loops that send in this mode: uring (one system call for many connections) or write (one for each).", []string{"mode"}, nil)
	for m, n := range modes {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), string(m))
	}
}

// sendRTT sends what heartbeats told of links, and what spared unhealthy connections.
func sendRTT(ch chan<- prometheus.Metric, all []loop.Stats) {
	var counts [len(linkhealth.Bounds)]uint64
	var spared, stuck [linkhealth.Reasons]uint64
	n, sum, late, queued := uint64(0), 0.0, uint64(0), uint64(0)
	for i := range all {
		late, queued = late+all[i].RTTLate, queued+all[i].RTTQueued
		h, below := &all[i].RTT, uint64(0)
		for k := range linkhealth.Bounds {
			below += h.Counts[k]
			counts[k] += below
		}
		n += below + h.Counts[len(linkhealth.Bounds)]
		sum += float64(h.Sum) / 1e6
		for k, times := range all[i].Spared {
			spared[k] += times
			stuck[k] += all[i].SparedStalled[k]
		}
	}
	buckets := map[float64]uint64{}
	for k, us := range linkhealth.Bounds {
		buckets[float64(us)/1e6] = counts[k]
	}
	ch <- prometheus.MustNewConstHistogram(prometheus.NewDesc("pushmesh_edge_rtt_seconds", "Round-trip times, one for each heartbeat that counts: the greater of what the client reports and what the kernel measures.", nil, nil), n, sum, buckets)
	desc := prometheus.NewDesc("pushmesh_edge_rtt_discarded_total", "Heartbeats whose round trip does not count because the edge delayed it: lag (a loop was late meanwhile), queue (the answer waited behind the connection's queue).", []string{"reason"}, nil)
	ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(late), "lag")
	ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(queued), "queue")
	desc = prometheus.NewDesc("pushmesh_edge_unhealthy_spared_total", "Heartbeats after which an unhealthy connection was not closed, by reason: report (--unhealthy), lag (of the edge), together (more than 5 % turned unhealthy within a minute), cap (1 % were closed within ten seconds).", []string{"reason"}, nil)
	sendSpared(ch, desc, &spared)
	desc = prometheus.NewDesc("pushmesh_edge_stuck_spared_total", "Times that a connection whose client read nothing for --stuck-timeout was not closed, by reason: lag (of the edge), together (more than 5 % of the connections within a minute), cap (1 % were closed within ten seconds).", []string{"reason"}, nil)
	sendSpared(ch, desc, &stuck)
}

func sendSpared(ch chan<- prometheus.Metric, desc *prometheus.Desc, spared *[linkhealth.Reasons]uint64) {
	for k, times := range spared {
		if reason := linkhealth.Reason(k); reason != linkhealth.None {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(times), reason.String())
		}
	}
}

// sendQueueSizes sends how long the queues of connections are, and the largest lag of a
// subscription.
func sendQueueSizes(ch chan<- prometheus.Metric, all []loop.Stats) {
	largest, longest := int64(0), int64(0)
	desc := prometheus.NewDesc("pushmesh_edge_queued_connections", "Connections with at least so many bytes queued, including what the kernel holds for clients that read nothing.", []string{"at_least"}, nil)
	for i, bytes := range counters.QueueSizes {
		queues := int64(0)
		for k := range all {
			queues += all[k].QueuesBySize[i]
		}
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(queues), strconv.Itoa(bytes))
	}
	for i := range all {
		largest, longest = max(largest, all[i].LargestQueue), max(longest, all[i].LongestLag)
	}
	send(ch, "largest_queue_bytes", "Size of the largest queue of a connection, to an eighth.", prometheus.GaugeValue, float64(largest))
	send(ch, "largest_lag_messages", "Largest number of messages between a subscription and the head of its topic.", prometheus.GaugeValue, float64(longest))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

type sum struct {
	name, help string
	kind       prometheus.ValueType
	of         func(*loop.Stats) float64
}

var sums = []sum{
	{"connections", "Connections open.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Connections) }},
	{"users_known", "Connections whose user has been proven by a token.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Principals.Known) }},
	{"permissions_parked", "Connections whose request waits for an answer of --permission-hook, and that are not read meanwhile.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Permissions.Parked) }},
	{"permissions_held", "Subscriptions and claims that last because of an answer of --permission-hook; a subscription in a group may count twice.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Permissions.Leases) }},
	{"permissions_denied_total", "Requests that --permission-hook did not allow.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Permissions.Denied) }},
	{"permissions_unknown_total", "Requests that were refused because --permission-hook did not answer.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Permissions.Unknown) }},
	{"permissions_ended_total", "Subscriptions and claims that ended because --permission-hook does not allow them any more.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Permissions.Ended) }},
	{"permissions_ran_out_total", "Subscriptions and claims that ended because --permission-hook did not answer in time.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Permissions.RanOut) }},
	{"tokens_expired_total", "Connections that were closed because their token ended.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Principals.Expired) }},
	{"tokens_revoked_total", "Connections that were closed because their token, or their user's tokens, were revoked.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Principals.Revoked) }},
	{"tokens_refreshed_total", "Tokens that took the place of others on live connections.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Principals.Refreshed) }},
	{"subscriptions_barred_total", "Subscriptions that ended because a namespace was changed to let no client subscribe.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Principals.Barred) }},
	{"subscriptions_left_total", "Subscriptions that ended because the user's teams do not grant them any more.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Principals.Left) }},
	{"subscriptions_lost_total", "Subscriptions that ended because a new token does not grant them.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Principals.Lost) }},
	{"subscriptions", "Subscriptions of all connections.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Subscriptions) }},
	{"topics", "Topics that loops know; one that several loops know counts once for each.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Topics) }},
	{"unacked_messages", "Messages sent whose ACK has not arrived.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Unacked) }},
	{"queued_bytes", "Bytes queued for connections.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.QueuedBytes) }},
	{"queue_memory_used_bytes", "Bytes used of --queue-memory: what is queued for connections, the queues' own memory, and what the kernel holds for sockets whose client reads nothing.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.BudgetBytes) }},
	{"kernel_bytes", "Bytes that the kernel holds for sockets whose client reads nothing.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.KernelBytes) }},
	{"stuck_connections", "Connections whose client reads nothing now, so that the kernel accepts no more bytes for it.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Stats.Stalled) }},
	{"queue_trims_total", "Times that a connection's queue was trimmed because --queue-memory was used up.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Trims) }},
	{"slow_consumer_events_suppressed_total", "Events slow_consumer that were not sent, because the same connection or too many others had one shortly before.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.HeldBack) }},
	{"stalled_subscriptions", "Subscriptions of sessions that are stalled, as of the last second: 65,536 messages behind one that is not ACKed.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.StandingNow) }},
	{"stalled_redeliveries_total", "Messages sent again because a session was stalled behind them.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.StandStills) }},
	{"stuck_closes_total", "Connections closed because their client read nothing for --stuck-timeout.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.StallCloses) }},
	{"group_unread_returns_total", "Messages of groups that were given to another member because theirs did not read them.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Recalled) }},
	{"subscriptions_catching_up", "Subscriptions that read the log to catch up, as of the last second.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.BehindNow) }},
	{"lag_messages", "Messages between subscriptions that catch up and the heads of their topics, added up.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Stats.Lag) }},
	{"kept_bytes", "Bytes kept for connections beside their queues, each message counted for each connection that has not ACKed it, with its part of what it lies with.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.KeptBytes) }},
	{"frame_bytes", "Bytes kept of frames and TLS records that have not arrived whole.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.FrameMemory) }},
	{"deliveries_total", "Message frames passed to the kernel.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Deliveries) }},
	{"redeliveries_total", "Message frames passed to the kernel again.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Redeliveries) }},
	{"frames_read_total", "Frames received from clients.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Frames) }},
	{"catch_ups_started_total", "Times that a subscription fell behind and began to read the log.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Behind) }},
	{"catch_ups_finished_total", "Times that a subscription had caught up with its topic.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Resumed) }},
	{"log_reads_total", "Ranges of logs that loops asked for.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.LogReads) }},
	{"acks_total", "Messages ACKed by clients.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Acks) }},
	{"nacks_total", "Messages Nacked by clients.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Nacks) }},
	{"stale_acks_total", "ACKs of messages that were not un-ACKed.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.StaleAcks) }},
	{"messages_released_total", "Messages that are not ACKed and whose bytes are not kept: they are read from the log where they must be sent again.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Released) }},
	{"ack_timeouts_total", "Messages whose ACK timed out.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.AckTimeouts) }},
	{"dead_letters_total", "Messages of sessions that became dead letters.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.DeadLetters) }},
	{"dead_letters_delayed_total", "How often a message of a session had to wait to become a dead letter (--dead-letter-rate, --user-dead-letter-rate).", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.DeadLettersDelayed) }},
	{"stale_events_total", "Answers that arrived for connections that had ended.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Stats.StaleEvents) }},
	{"accepts_total", "Connections accepted.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Accepts) }},
	{"accept_out_of_descriptors_total", "Connections that could not be accepted because no file descriptor was left.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.AcceptFull) }},
	{"accept_waits_total", "Times that connections had to wait in the kernel because of --accept-rate.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.AcceptWaits) }},
	{"address_refusals_total", "Connections refused because of their address: too many of it, or too many in a second.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.AddressRefusals) }},
	{"proxy_headers_total", "PROXY protocol headers read.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.ProxyHeaders) }},
	{"socket_reads_total", "Reads from sockets.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Reads) }},
	{"socket_read_bytes_total", "Bytes read from sockets.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.ReadBytes) }},
	{"reads_deferred_total", "Times that a connection was not read for the rest of a millisecond because it had used its share of the loop.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Deferred) }},
	{"reads_paced_total", "Times that a connection was not read for 100 ms because it had sent more than --max-frame-rate or --max-byte-rate allow.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Paced) }},
	{"socket_writes_total", "Writes to sockets.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Writes) }},
	{"socket_write_bytes_total", "Bytes written to sockets.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.WriteBytes) }},
	{"loop_turns_total", "Turns of event loops.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Turns) }},
	{"loop_lag_warnings_total", "Samples of loop lag above 50 ms.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Lag.Warnings) }},
	{"shedding_loops", "Loops that refuse new connections and subscriptions now because they are late.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return oneIf(s.Shedding) }},
	{"shedding_started_total", "Times that a loop began to refuse new connections and subscriptions because it was late.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Sheds) }},
	{"unhealthy_connections", "Connections whose round trips show a bad link.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Unhealthy) }},
	{"unhealthy_total", "Times that a connection turned unhealthy.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.UnhealthyTimes) }},
	{"claims_open", "Resources that connections hold, wait for or watch.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Claims.Held) }},
	{"claim_pushes_total", "Changes of claims pushed to clients.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Claims.Pushes) }},
	{"presence_client_watches", "Topics that clients watch who is in, one for each of their connections.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Members.Watches) }},
	{"presence_client_states", "Topics in which clients say something of themselves, one for each of their connections.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Members.States) }},
	{"presence_client_told_total", "Presence frames queued for clients.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Members.Told) }},
	{"presence_client_missed_total", "Times that a client which did not read was told who is in a topic all anew.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Members.Missed) }},
	{"websocket_connections", "Connections that speak WebSocket.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.WebSockets) }},
	{"websocket_pings_total", "WebSocket Pings sent to clients that were silent for half of the time that they may be.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.WebPings) }},
	{"http_upgrades_total", "HTTP requests that became WebSockets.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Upgraded) }},
	{"http_pages_total", "HTTP requests on the subscribers' port that were answered with a page.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Answered) }},
	{"http_refused_total", "HTTP requests on the subscribers' port that were refused.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Denied) }},
	{"tls_connections", "Connections with TLS, including those whose handshake is under way.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Secure) }},
	{"tls_records_opened_total", "TLS records received from clients.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Records) }},
	{"tls_records_sealed_total", "TLS records sent to clients.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Sealed) }},
}

var byCode = []struct {
	name, help string
	of         func(*loop.Stats) *counters.ByCode
}{
	{"drops_total", "Messages that were not delivered, by reason.", func(s *loop.Stats) *counters.ByCode { return &s.Drops }},
	{"unranked_total", "Messages that should have been ranked for a subscription and were delivered unranked, by reason.", func(s *loop.Stats) *counters.ByCode { return &s.Unranked }},
	{"closes_total", "Connections closed, by reason; OK: by the client.", func(s *loop.Stats) *counters.ByCode { return &s.Closes }},
	{"presence_client_ended_total", "Watches of clients that the edge ended, by reason.", func(s *loop.Stats) *counters.ByCode { return (*counters.ByCode)(&s.Members.Ended) }},
	{"refused_total", "Requests of clients that were refused, by reason.", func(s *loop.Stats) *counters.ByCode { return &s.Refused }},
}

// sendFollowed sends the numbers of topics whose members clients watch.
func (e *Edge) sendFollowed(ch chan<- prometheus.Metric) {
	s := e.members.Stats()
	send(ch, "presence_client_topics", "Topics whose members clients watch, and a router tells the edge of.", prometheus.GaugeValue, float64(s.Topics.Load()))
	send(ch, "presence_client_bytes", "Bytes that the users of these topics take, about, with what they say of themselves.", prometheus.GaugeValue, float64(s.Bytes.Load()))
	send(ch, "presence_client_snapshots_total", "Times that a router told all members of such a topic.", prometheus.CounterValue, float64(s.Snapshots.Load()))
	send(ch, "presence_client_gaps_total", "Changes of such topics for which the one before was missing, so that all members were asked for.", prometheus.CounterValue, float64(s.Missed.Load()))
}
