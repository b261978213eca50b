package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func sorted(all []string) []string {
	slices.Sort(all)
	return all
}

// far is how far clocks may be apart before it is a fault: seconds is what the mesh is made for.
const far = 5 * time.Second

// checkClocks compares every clock with that of the router that listed the nodes. What a node says
// is on its way for some milliseconds, which makes its clock seem late.
func checkClocks(r *Report, all []*seen, limit time.Duration) {
	worst := time.Duration(0)
	for _, o := range all {
		n := o.node
		if n.GetClock() == 0 || n.GetHeardAt() == 0 || n.GetProblem() != "" {
			continue
		}
		skew := time.Duration(int64(n.GetClock())-int64(n.GetHeardAt())) * time.Microsecond
		worst = max(worst, skew.Abs())
		if skew.Abs() <= limit {
			continue
		}
		level, direction := Warn, "ahead of"
		if skew.Abs() > far {
			level = Fail
		}
		if skew < 0 {
			direction = "behind"
		}
		r.add(level, "clock", o.name(), fmt.Sprintf("its clock is %s %s the router's", skew.Abs().Round(time.Millisecond), direction),
			"run a time service (chrony, systemd-timesyncd) on both machines: scheduled messages, expiry and retention go by these clocks. A NATS connection that is seconds late looks the same")
	}
	if worst <= limit {
		r.ok("clock", "nodes", "within %s of each other", worst.Round(time.Millisecond))
	}
}

// Shares of the open files a process may have.
const (
	crowded = 0.8
	full    = 0.95
)

// checkFiles compares open files with the limit.
func checkFiles(r *Report, all []*seen) {
	good := 0
	for _, o := range all {
		most, ok := o.metrics.Sum("process_max_fds", nil)
		open, _ := o.metrics.Sum("process_open_fds", nil)
		if !ok || most == 0 {
			continue
		}
		level := OK
		switch share := open / most; {
		case share >= full:
			level = Fail
		case share >= crowded:
			level = Warn
		}
		if level == OK {
			good++
			continue
		}
		advice := "raise its limit (LimitNOFILE, ulimit -n)"
		if o.node.GetTier() == pushmeshv1.Tier_TIER_EDGE {
			advice += fmt.Sprintf(": an edge needs one for each connection (%d now) and 200 more; or start more edges", o.node.GetConnections())
		}
		r.add(level, "files", o.name(), fmt.Sprintf("%.0f of %.0f files are open", open, most), advice)
	}
	if good > 0 {
		r.ok("files", "nodes", "%s with room below the limit", some(good, "node"))
	}
}

// checkNATS looks at what nodes' connections say about their servers.
func checkNATS(r *Report, all []*seen) {
	routers, told, good := 0, 0, true
	alone := 0
	for _, o := range all {
		if o.node.GetTier() == pushmeshv1.Tier_TIER_ROUTER {
			routers++
		}
		payload, ok := o.metrics.Sum("pushmesh_nats_max_payload_bytes", nil)
		if !ok || payload == 0 {
			continue
		}
		told++
		if payload < bus.MaxMessage {
			good = false
			r.add(Fail, "nats", o.name(), fmt.Sprintf("its NATS server takes messages of %.0f bytes at most", payload),
				fmt.Sprintf("set max_payload of every NATS server to %d or more: larger batches are refused", bus.MaxMessage))
		}
		if servers, _ := o.metrics.Sum("pushmesh_nats_servers", nil); servers <= 1 {
			alone++
		}
	}
	if routers > 1 && alone > 0 {
		good = false
		r.add(Warn, "nats", "servers", fmt.Sprintf("%d of %d nodes know only one NATS server", alone, told),
			"run a NATS cluster, and name several servers in --nats: while the only one is away, ephemeral messages are refused and durable ones are late")
	}
	if good && told > 0 {
		r.ok("nats", "servers", "messages of %d bytes pass, as %s say", bus.MaxMessage, some(told, "node"))
	}
}
