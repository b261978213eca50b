package edge

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream"
)

// collector reads plain counters at scrape, so that counting costs the loops nothing.
type collector struct {
	loops func() []loop.Stats
	mesh  func() []upstream.Figure
	tls   func(chan<- prometheus.Metric) // nil: there is none
}

func (e *Edge) metrics() prometheus.Collector {
	c := &collector{mesh: e.mesh.Figures, loops: func() []loop.Stats {
		all := make([]loop.Stats, len(e.loops))
		for i, l := range e.loops {
			all[i] = l.Stats()
		}
		return all
	}}
	if e.certs != nil {
		c.tls = e.sendTLS
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
		var total delivery.ByCode
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
	sendByCode(ch, "mailbox_refused_total", "Events that found a loop's mailbox full.", delivery.ByCode{wirev1.Code_CODE_OVERLOADED: refused})
	sendLag(ch, all)
	sendSpread(ch, all)
	sendModes(ch, all)
	sendRTT(ch, all)
	sendDepths(ch, all)
	if c.tls != nil {
		c.tls(ch)
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

func sendByCode(ch chan<- prometheus.Metric, name, help string, counts delivery.ByCode) {
	desc := prometheus.NewDesc("pushmesh_edge_"+name, help, []string{"code"}, nil)
	for k, n := range counts {
		if n > 0 {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), code.Name(wirev1.Code(k)))
		}
	}
}

// sendClaims sends what was asked of claims, by what and by what came of it.
func sendClaims(ch chan<- prometheus.Metric, all []loop.Stats) {
	desc := prometheus.NewDesc("pushmesh_edge_claim_requests_total", "Claims of clients, by op and by what came of them.", []string{"op", "code"}, nil)
	for op := range wirev1.Claim_Op(claims.Ops) {
		var total delivery.ByCode
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
	send(ch, "fullest_loop_connections", "Connections of the loop that holds the most.", prometheus.GaugeValue, float64(most))
	send(ch, "emptiest_loop_connections", "Connections of the loop that holds the fewest.", prometheus.GaugeValue, float64(least))
}

// sendModes sends how many loops send in which way.
func sendModes(ch chan<- prometheus.Metric, all []loop.Stats) {
	modes := map[loop.SendMode]int{}
	for i := range all {
		if m := all[i].SendMode; m != "" {
			modes[m]++
		}
	}
	desc := prometheus.NewDesc("pushmesh_edge_send_mode", "Loops that send this way: uring, many connections with a system call, or write, one.", []string{"mode"}, nil)
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
			stuck[k] += all[i].SparedStuck[k]
		}
	}
	buckets := map[float64]uint64{}
	for k, us := range linkhealth.Bounds {
		buckets[float64(us)/1e6] = counts[k]
	}
	ch <- prometheus.MustNewConstHistogram(prometheus.NewDesc("pushmesh_edge_rtt_seconds", "Round trips, one for each heartbeat that counts: the greater of what the client reports and the kernel sees.", nil, nil), n, sum, buckets)
	desc := prometheus.NewDesc("pushmesh_edge_rtt_discarded_total", "Heartbeats whose round trip does not count, for it was the edge's doing: lag (a loop was late meanwhile), queue (the answer waited behind what the connection was owed).", []string{"reason"}, nil)
	ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(late), "lag")
	ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(queued), "queue")
	desc = prometheus.NewDesc("pushmesh_edge_unhealthy_spared_total", "Heartbeats after which an unhealthy connection was not closed: by report (--unhealthy), lag (of the edge), together (more than 5 % turned unhealthy within a minute), cap (1 % were closed within ten seconds).", []string{"reason"}, nil)
	sendSpared(ch, desc, &spared)
	desc = prometheus.NewDesc("pushmesh_edge_stuck_spared_total", "Times that a connection whose client took nothing for --stuck-timeout was not closed: by lag (of the edge), together (more than 5 % came to that within a minute), cap (1 % were closed within ten seconds).", []string{"reason"}, nil)
	sendSpared(ch, desc, &stuck)
}

func sendSpared(ch chan<- prometheus.Metric, desc *prometheus.Desc, spared *[linkhealth.Reasons]uint64) {
	for k, times := range spared {
		if reason := linkhealth.Reason(k); reason != linkhealth.None {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(times), reason.String())
		}
	}
}

// sendDepths sends how much connections owe, and how far the last subscription is behind.
func sendDepths(ch chan<- prometheus.Metric, all []loop.Stats) {
	deepest, longest := int64(0), int64(0)
	desc := prometheus.NewDesc("pushmesh_edge_queued_connections", "Connections that are owed at least so many bytes, what the kernel holds for stuck ones included.", []string{"at_least"}, nil)
	for i, bytes := range delivery.Depths {
		owing := int64(0)
		for k := range all {
			owing += all[k].Owing[i]
		}
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(owing), strconv.Itoa(bytes))
	}
	for i := range all {
		deepest, longest = max(deepest, all[i].Deepest), max(longest, all[i].LongestLag)
	}
	send(ch, "deepest_queue_bytes", "Bytes owed to the connection that is owed most, to an eighth.", prometheus.GaugeValue, float64(deepest))
	send(ch, "longest_lag_messages", "Messages between the subscription that is furthest behind and the head of its topic.", prometheus.GaugeValue, float64(longest))
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
	{"connections", "Connections held.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Connections) }},
	{"subscriptions", "Subscriptions held.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Subscriptions) }},
	{"topics", "Topics that loops hold, each counted once for every loop.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Topics) }},
	{"unacked_messages", "Messages sent and not ACKed yet.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Unacked) }},
	{"queued_bytes", "Bytes owed to connections.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.QueuedBytes) }},
	{"queue_memory_used_bytes", "Bytes of --queue-memory that are used: what is owed to connections, the queues' own memory, and what the kernel holds for stuck sockets.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.BudgetBytes) }},
	{"kernel_bytes", "Bytes that the kernel holds for stuck sockets.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.KernelBytes) }},
	{"stuck_connections", "Connections of which the kernel takes nothing now.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Stats.Stuck) }},
	{"queue_payments_total", "Times that a connection gave up some of what it was owed, because --queue-memory was used up.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Payments) }},
	{"slow_consumer_events_held_back_total", "Crossings of half or four fifths of a queue that were not told of as events, because the connection or too many others had just been.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.HeldBack) }},
	{"subscriptions_standing", "Subscriptions of sessions that stand still, as of the last second: 65,536 messages behind one that is not ACKed.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.StandingNow) }},
	{"stand_stills_total", "Messages that were sent again because a session stood still behind them.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.StandStills) }},
	{"stuck_closes_total", "Connections closed because their client took nothing for --stuck-timeout.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.StuckCloses) }},
	{"group_unread_total", "Messages of groups that went back because their member did not read.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Recalled) }},
	{"subscriptions_behind", "Subscriptions that read on from the log, as of the last second.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.BehindNow) }},
	{"lag_messages", "Messages between subscriptions that are behind and the heads of their topics, together.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Stats.Lag) }},
	{"frame_bytes", "Bytes kept of frames of clients that have not come whole.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.FrameMemory) }},
	{"deliveries_total", "Message frames that left for the kernel.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Deliveries) }},
	{"redeliveries_total", "Message frames sent again.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Redeliveries) }},
	{"frames_read_total", "Frames of clients.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Frames) }},
	{"behind_total", "Times that a subscription fell behind.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Behind) }},
	{"resumed_total", "Times that a subscription came level with its topic again.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Resumed) }},
	{"log_reads_total", "Ranges that loops asked for.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.LogReads) }},
	{"acks_total", "Messages ACKed.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Acks) }},
	{"nacks_total", "Messages Nacked.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Nacks) }},
	{"stale_acks_total", "ACKs of nothing that was un-ACKed.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.StaleAcks) }},
	{"ack_timeouts_total", "Messages that left a window un-ACKed.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.AckTimeouts) }},
	{"dead_letters_total", "Messages given up by sessions.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.DeadLetters) }},
	{"stale_events_total", "Answers for connections that were gone.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Stats.StaleEvents) }},
	{"accepts_total", "Connections accepted.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Accepts) }},
	{"accept_full_total", "Times that no descriptor was left for a connection.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.AcceptFull) }},
	{"accept_waits_total", "Times that connections were left to the kernel until the next tick of a loop, because of --accept-rate.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.AcceptWaits) }},
	{"address_refusals_total", "Connections refused because of their address: too many of it, or too many in a second.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.AddressRefusals) }},
	{"proxy_headers_total", "Headers of the PROXY protocol that were read.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.ProxyHeaders) }},
	{"socket_reads_total", "Reads of sockets.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Reads) }},
	{"socket_read_bytes_total", "Bytes read of sockets.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.ReadBytes) }},
	{"reads_deferred_total", "Times that a connection was not read for the rest of a millisecond, because it had used its share.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Deferred) }},
	{"reads_paced_total", "Times that a connection was not read for 100 ms, because it had sent more than --max-frame-rate or --max-byte-rate allow.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Paced) }},
	{"socket_writes_total", "Writes to sockets.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Writes) }},
	{"socket_write_bytes_total", "Bytes written to sockets.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.WriteBytes) }},
	{"loop_turns_total", "Turns of event loops.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Turns) }},
	{"loop_lag_warnings_total", "Samples of loop lag above 50 ms.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Lag.Warnings) }},
	{"shedding_loops", "Loops that refuse new connections and subscriptions now, because they are late.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return oneIf(s.Shedding) }},
	{"sheds_total", "Times that a loop began to refuse new connections and subscriptions.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Sheds) }},
	{"unhealthy_connections", "Connections whose round trips show that their link is ill.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Unhealthy) }},
	{"unhealthy_total", "Times that a connection turned unhealthy.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.UnhealthyTimes) }},
	{"claims_open", "Resources that connections have a place at or watch.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Claims.Held) }},
	{"claim_pushes_total", "States of claims that clients were told unasked.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Claims.Pushes) }},
	{"tls_connections", "Connections with TLS, those that shake hands among them.", prometheus.GaugeValue, func(s *loop.Stats) float64 { return float64(s.Secure) }},
	{"tls_records_opened_total", "Records of TLS that clients sent.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Records) }},
	{"tls_records_sealed_total", "Records of TLS that clients were sent.", prometheus.CounterValue, func(s *loop.Stats) float64 { return float64(s.Sealed) }},
}

var byCode = []struct {
	name, help string
	of         func(*loop.Stats) *delivery.ByCode
}{
	{"drops_total", "Messages that did not come, by why.", func(s *loop.Stats) *delivery.ByCode { return &s.Drops }},
	{"unranked_total", "Messages that were to be ranked for a subscription and were not, by why.", func(s *loop.Stats) *delivery.ByCode { return &s.Unranked }},
	{"closes_total", "Connections ended, by why; OK: by the client.", func(s *loop.Stats) *delivery.ByCode { return &s.Closes }},
	{"refused_total", "Requests of clients that were refused, by why.", func(s *loop.Stats) *delivery.ByCode { return &s.Refused }},
}
