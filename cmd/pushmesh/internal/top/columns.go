package top

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/survey"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// one is what is known of a node, now and at the last refresh; before is nil at the first.
type one struct {
	node        *pushmeshv1.Node
	now, before *survey.Metrics
}

// column of a tier's table. of is what it is sorted by as well; false: nothing to show.
type column struct {
	title string
	of    func(o one) (v float64, ok bool)
	show  func(v float64) string
}

func sum(title, metric string, match survey.Match, show func(float64) string) column {
	return column{title, func(o one) (float64, bool) { return o.now.Sum(metric, match) }, show}
}

func rate(title, metric string, match survey.Match) column {
	return column{title, func(o one) (float64, bool) { return o.now.Rate(o.before, metric, match) }, count}
}

func p99(title, metric string) column {
	return column{title, func(o one) (float64, bool) { return o.now.Quantile(o.before, metric, nil, 0.99) }, seconds}
}

// refused is the rate of everything but one code.
func refused(title, metric string) column {
	return column{title, func(o one) (float64, bool) {
		all, ok := o.now.Rate(o.before, metric, nil)
		good, _ := o.now.Rate(o.before, metric, survey.Match{"code": "OK"})
		return max(all-good, 0), ok
	}, count}
}

// process columns, of every tier.
func process() []column {
	cpu := rate("CPU%", "process_cpu_seconds_total", nil)
	cpu.show = func(v float64) string { return fmt.Sprintf("%.0f", 100*v) }
	return []column{cpu, sum("RSS", "process_resident_memory_bytes", nil, size)}
}

// tier is a table.
type tier struct {
	of      pushmeshv1.Tier
	name    string
	columns []column
	// load and delay are the columns that rows are sorted by.
	load, delay int
}

var tiers = []tier{
	{pushmeshv1.Tier_TIER_EDGE, "EDGES", append([]column{
		{"CONNS", func(o one) (float64, bool) {
			if v, ok := o.now.Sum("pushmesh_edge_connections", nil); ok {
				return v, true
			}
			return float64(o.node.GetConnections()), true
		}, count},
		sum("SUBS", "pushmesh_edge_subscriptions", nil, count),
		rate("DELIVERED/S", "pushmesh_edge_deliveries_total", nil),
		rate("ROUTED/S", "pushmesh_edge_routed_total", nil),
		sum("LAG P99", "pushmesh_edge_loop_lag_seconds", survey.Match{"of": "last_100", "quantile": "0.99"}, seconds),
		sum("LAG MAX", "pushmesh_edge_loop_lag_seconds", survey.Match{"of": "last_100", "quantile": "1"}, seconds),
		sum("SHED", "pushmesh_edge_shedding_loops", nil, count),
		sum("QUEUED", "pushmesh_edge_queued_bytes", nil, size),
		sum("UNACKED", "pushmesh_edge_unacked_messages", nil, count),
		rate("DROPS/S", "pushmesh_edge_drops_total", nil),
		rate("REPAIRED/S", "pushmesh_edge_repaired_messages_total", nil),
	}, process()...), 2, 4},
	{pushmeshv1.Tier_TIER_ROUTER, "ROUTERS", append([]column{
		rate("PUBLISHED/S", "pushmesh_router_publishes_total", survey.Match{"code": "OK"}),
		refused("REFUSED/S", "pushmesh_router_publishes_total"),
		p99("P99", "pushmesh_router_publish_seconds"),
		rate("DELIVERED/S", "pushmesh_router_deliveries_total", nil),
		sum("IN FLIGHT", "pushmesh_router_append_in_flight_messages", nil, count),
		sum("EDGES", "pushmesh_router_edges", nil, count),
		sum("FILTERS", "pushmesh_router_interest_entries", nil, count),
		rate("LOST/S", "pushmesh_router_batches_lost_total", nil),
	}, process()...), 0, 2},
	{pushmeshv1.Tier_TIER_STORE, "STORES", append([]column{
		{"SHARDS", func(o one) (float64, bool) { return float64(o.node.GetShards()), true }, count},
		rate("APPENDED/S", "pushmesh_store_appends_total", survey.Match{"code": "OK"}),
		refused("REFUSED/S", "pushmesh_store_appends_total"),
		p99("COMMIT P99", "pushmesh_store_commit_seconds"),
		p99("WAIT P99", "pushmesh_store_commit_wait_seconds"),
		sum("QUEUE", "pushmesh_store_queue_messages", nil, count),
		sum("DB WAITING", "pushmesh_store_postgres_queued_calls", nil, count),
		sum("DB LIMIT", "pushmesh_store_postgres_call_limit", nil, count),
		{"BREAKER", breaker, showBreaker},
	}, process()...), 1, 3},
	{pushmeshv1.Tier_TIER_COMPUTE, "COMPUTE", append([]column{
		rate("JOBS/S", "pushmesh_compute_jobs_total", survey.Match{"code": "OK"}),
		refused("REFUSED/S", "pushmesh_compute_jobs_total"),
		p99("WAIT P99", "pushmesh_compute_wait_seconds"),
		p99("RUN P99", "pushmesh_compute_run_seconds"),
		sum("QUEUE", "pushmesh_compute_queue_depth", nil, count),
	}, process()...), 0, 2},
}

// breakerStates by how bad they are.
var breakerStates = []string{"closed", "half_open", "open"}

// breaker is the worst state of the store's databases.
func breaker(o one) (worst float64, ok bool) {
	for i, state := range breakerStates {
		if v, there := o.now.Sum("pushmesh_store_postgres_breaker", survey.Match{"state": state}); there {
			ok = true
			if v > 0 {
				worst = float64(i)
			}
		}
	}
	return worst, ok
}

func showBreaker(v float64) string { return strings.ReplaceAll(breakerStates[int(v)], "_", "-") }

// count is a number in at most five characters.
func count(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 9.95 && v != math.Trunc(v):
		return fmt.Sprintf("%.1f", v)
	case v < 99_999.5:
		return fmt.Sprintf("%.0f", v)
	case v < 999_500:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v < 99.95e6:
		return fmt.Sprintf("%.1fM", v/1e6)
	}
	return fmt.Sprintf("%.0fM", v/1e6)
}

// size in bytes, in powers of 1,024.
func size(v float64) string {
	units := []string{"", "K", "M", "G", "T"}
	i := 0
	for ; v >= 1023.5 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i > 0 && v < 9.95 {
		return fmt.Sprintf("%.1f%s", v, units[i])
	}
	return fmt.Sprintf("%.0f%s", v, units[i])
}

// seconds as a time with two digits or so.
func seconds(v float64) string {
	d := time.Duration(v * float64(time.Second))
	switch {
	case d < 10*time.Microsecond:
		return d.Round(100 * time.Nanosecond).String()
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}
