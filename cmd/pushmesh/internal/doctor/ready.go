package doctor

import (
	"fmt"
	"net/http"
	"strings"
)

// checkReady repeats what nodes say of themselves.
func checkReady(r *Report, all []*seen) {
	for _, o := range all {
		if o.http != nil || o.node.GetProblem() != "" {
			continue
		}
		good := true
		for _, line := range o.lines {
			name, rest, _ := strings.Cut(line, ": ")
			kind, why, _ := strings.Cut(rest, ": ")
			switch kind {
			case "missing":
				good = false
				r.add(Fail, "ready", o.name(), name+": "+why, advice(name))
			case "degraded":
				good = false
				r.add(Warn, "ready", o.name(), name+": "+why, advice(name))
			}
		}
		switch {
		case !good:
		case o.status != http.StatusOK:
			r.add(Fail, "ready", o.name(), fmt.Sprintf("/readyz answers %d", o.status), "look at its log")
		default:
			r.ok("ready", o.name(), "%s", some(max(len(o.lines)-1, 0), "check")+" of its own passed")
		}
	}
}

// advice on what a node says is missing.
func advice(check string) string {
	switch check {
	case "nats":
		return "is NATS up, and is --nats of this node right? Or has no store answered since this node began? Durable messages are late and ephemeral ones refused meanwhile"
	case "namespaces understood":
		return "a newer version of the program wrote that namespace: upgrade this node, or put the namespace anew; its topics are refused here meanwhile"
	case "store", "namespaces":
		return "no store answers this node: are stores up, does --stores name them, are the addresses that stores --advertise reachable from it?"
	case "postgres", "database":
		return "the store's database does not answer, or must not be used: the text says which; nothing durable can be published meanwhile"
	case "clock":
		return "the store's and the database's clocks are apart, and nothing is deleted meanwhile: run a time service (chrony, systemd-timesyncd) on both machines; --trust-clock where the database's is right"
	case "fencing":
		return "a store that hangs keeps its shards, and durable publishing to them stops: do what the text says; see \"Roles\" in docs/operations.md"
	case "breaker":
		return "the database fails or is too slow for the work: see \"Postgres in trouble\" in docs/operations.md"
	case "shards":
		return "shards have no owner: a store that starts takes them within seconds; if not, another one's connection to the database still holds them"
	case "interest":
		return "the router has not heard all edges: for seconds after its start, after many edges died together (see \"reach\"), or because NATS loses messages"
	case "routers":
		return "the edge hears no router: start one, or compare --nats"
	case "compute":
		return "no compute node of --computes is connected: a router refuses to rank, and an edge sends messages on unranked that it does not rank itself"
	case "mesh":
		return "the text says which: two meshes of one name on one NATS are kept apart, but give one another name (--mesh and --new-mesh of its stores); a store of another mesh must not be in --stores; of two processes with one --id one is not heard"
	case "lag":
		return "an event loop is late and refuses newcomers: give the edge CPU, or more edges the connections"
	case "draining", "serving":
		return "it starts or stops: if that lasts, look at its log"
	case "loops":
		return "an event loop has not turned for 5 s: its stack is in the log; restart the edge"
	}
	return "see docs/operations.md#health"
}
