package doctor

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/survey"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Config of an examination.
type Config struct {
	// Routers to begin with.
	Routers []string
	// Skew is how far clocks may be apart before it is worth a word.
	Skew time.Duration
	// Patience with an answer to one question.
	Patience time.Duration
	// Probe publishes messages and waits up to Arrive for each.
	Probe  bool
	Arrive time.Duration
}

// seen is what one node told.
type seen struct {
	node    *pushmeshv1.Node
	http    error // how /readyz was not answered
	status  int
	lines   []string // of /readyz?verbose
	metrics *survey.Metrics
	direct  error // how gRPC or the handshake was not answered
	took    time.Duration
}

func (s *seen) name() string {
	tier := strings.ToLower(strings.TrimPrefix(s.node.GetTier().String(), "TIER_"))
	if s.node.GetId() == "" {
		return tier + " " + s.node.GetGrpcAddress()
	}
	return tier + " " + s.node.GetId()
}

// Examine looks at everything. It always has a report.
func Examine(ctx context.Context, c Config) *Report {
	r := &Report{}
	defer r.conclude()
	s, err := survey.New(c.Routers)
	if err != nil {
		r.add(Fail, "mesh", strings.Join(c.Routers, ","), err.Error(), "give routers as --router HOST:PORT")
		return r
	}
	defer func() { _ = s.Close() }()
	s.Timeout = c.Patience
	found, err := s.Nodes(ctx)
	if err != nil {
		r.add(Fail, "mesh", strings.Join(c.Routers, ","), err.Error(),
			"no router answers: is one running, is its gRPC port (7401) reachable from here, does --router name it? A router older than MeshService answers UNIMPLEMENTED: renew it")
		return r
	}
	all := look(ctx, s, found.GetNodes(), c.Patience)
	checkTiers(r, found)
	checkViews(ctx, r, all, c.Patience)
	checkReach(r, all)
	checkReady(r, all)
	checkVersions(r, all)
	checkClocks(r, all, c.Skew)
	checkFiles(r, all)
	checkNATS(r, all)
	checkPostgres(r, inspect(ctx, all, c.Patience))
	if c.Probe {
		probe(ctx, r, all, c.Patience, c.Arrive)
	}
	return r
}

// look asks every node what it can be asked.
func look(ctx context.Context, s *survey.Survey, nodes []*pushmeshv1.Node, patience time.Duration) []*seen {
	all := make([]*seen, len(nodes))
	survey.Each(nodes, func(i int, n *pushmeshv1.Node) {
		o := &seen{node: n}
		all[i] = o
		if n.GetProblem() != "" {
			return
		}
		var body []byte
		if o.status, body, o.http = s.Get(ctx, n.GetHttpAddress(), "/readyz?verbose"); o.http == nil {
			o.lines = strings.Split(strings.TrimSpace(string(body)), "\n")
			o.metrics, _ = s.Metrics(ctx, n)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if n.GetTier() == pushmeshv1.Tier_TIER_EDGE {
			o.direct = handshake(ctx, n.GetSubscriberAddress())
		} else {
			o.direct = withConn(n.GetGrpcAddress(), func(conn *grpc.ClientConn) error {
				_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
				return err
			})
		}
		o.took = time.Since(began)
	})
	return all
}

func withConn(addr string, f func(*grpc.ClientConn) error) error {
	if addr == "" {
		return fmt.Errorf("its gRPC address is not known")
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return f(conn)
}

// checkTiers looks for what no mesh is without.
func checkTiers(r *Report, found *pushmeshv1.MeshServiceNodesResponse) {
	count := map[pushmeshv1.Tier]int{}
	for _, n := range found.GetNodes() {
		count[n.GetTier()]++
	}
	edges, routers, stores := count[pushmeshv1.Tier_TIER_EDGE], count[pushmeshv1.Tier_TIER_ROUTER], count[pushmeshv1.Tier_TIER_STORE]
	summary := fmt.Sprintf("%d edges, %d routers, %d stores, %d compute nodes, as router %s knows them", edges, routers, stores, count[pushmeshv1.Tier_TIER_COMPUTE], found.GetRouterId())
	if edges > 0 && stores > 0 {
		r.ok("mesh", "nodes", "%s", summary)
		return
	}
	r.add(Fail, "mesh", "nodes", summary, "start what is missing; what runs is not heard over NATS: compare --nats of all nodes, and look for \"nats\" in their /readyz?verbose")
}

// checkViews asks every router which nodes there are: all must know the same ones.
func checkViews(ctx context.Context, r *Report, all []*seen, patience time.Duration) {
	var want map[string]bool
	var whose string
	for _, o := range all {
		if o.node.GetTier() != pushmeshv1.Tier_TIER_ROUTER || o.direct != nil {
			continue
		}
		know := map[string]bool{}
		err := withConn(o.node.GetGrpcAddress(), func(conn *grpc.ClientConn) error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			resp, err := pushmeshv1.NewMeshServiceClient(conn).Nodes(ctx, &pushmeshv1.MeshServiceNodesRequest{})
			for _, n := range resp.GetNodes() {
				if n.GetTier() != pushmeshv1.Tier_TIER_COMPUTE { // each router is told of its own
					know[(&seen{node: n}).name()] = true
				}
			}
			return err
		})
		switch {
		case err != nil:
			r.add(Fail, "mesh", o.name(), err.Error(), "it does not say which nodes it knows: look at its log")
		case want == nil:
			want, whose = know, o.name()
		default:
			if missing, more := without(want, know), without(know, want); missing+more != "" {
				r.add(Fail, "mesh", o.name(), fmt.Sprintf("it does not know [%s] and knows [%s] beside what %s knows", missing, more, whose),
					"nodes that started or ended within 3 s explain it: ask again. Otherwise NATS is split: compare the servers that both are connected to, and their cluster routes")
			}
		}
	}
}

func without(all, some map[string]bool) string {
	var names []string
	for n := range all {
		if !some[n] {
			names = append(names, n)
		}
	}
	return strings.Join(sorted(names), ", ")
}

// checkReach looks at both addresses of every node.
func checkReach(r *Report, all []*seen) {
	for _, o := range all {
		n, good := o.node, true
		if n.GetProblem() != "" {
			r.add(Fail, "reach", o.name(), n.GetProblem(), "a router's --computes names it and it does not answer: start it, or take it out")
			continue
		}
		if o.http != nil {
			good = false
			r.add(Fail, "reach", o.name(), "HTTP: "+o.http.Error(), "health and metrics are served on --http; is "+orUnknown(n.GetHttpAddress())+" reachable from here, and is that how the node is reached? A node that listens everywhere says its host name")
		}
		if o.direct != nil {
			good = false
			what, addr := "gRPC", n.GetGrpcAddress()
			if n.GetTier() == pushmeshv1.Tier_TIER_EDGE {
				what, addr = "subscribers", n.GetSubscriberAddress()
			}
			r.add(Fail, "reach", o.name(), what+": "+o.direct.Error(), "is "+orUnknown(addr)+" reachable from here? Routers and stores say --advertise; look for a firewall, and in the node's log for refusals")
		}
		if good {
			r.ok("reach", o.name(), "HTTP and %s answer, in %s", map[bool]string{true: "a subscriber's handshake", false: "gRPC"}[n.GetTier() == pushmeshv1.Tier_TIER_EDGE], o.took.Round(10*time.Microsecond))
		}
	}
}

func orUnknown(addr string) string {
	if addr == "" {
		return "its address (it says none: is the program older?)"
	}
	return addr
}

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
			r.ok("ready", o.name(), "%d checks of its own are ok", max(len(o.lines)-1, 0))
		}
	}
}

// advice on what a node says is missing.
func advice(check string) string {
	switch check {
	case "nats":
		return "is NATS up, and is --nats of this node right? Durable messages are late and ephemeral ones refused meanwhile"
	case "store", "namespaces":
		return "no store answers this node: are stores up, does --stores name them, are the addresses that stores --advertise reachable from it?"
	case "postgres", "database":
		return "the store's database does not answer, or must not be used: the text says which; nothing durable can be published meanwhile"
	case "breaker":
		return "the database fails or is too slow for the work: see \"Postgres in trouble\" in docs/operations.md"
	case "shards":
		return "shards have no owner: a store that starts takes them within seconds; if not, another one's connection to the database still holds them"
	case "interest":
		return "the router has not heard all edges yet: seconds after its start, or NATS loses messages"
	case "routers":
		return "the edge hears no router: start one, or compare --nats"
	case "compute":
		return "no compute node of --computes is connected: ranking is refused"
	case "lag":
		return "an event loop is late and refuses newcomers: give the edge CPU, or more edges the connections"
	case "draining", "serving":
		return "it starts or stops: if that lasts, look at its log"
	case "loops":
		return "an event loop has not turned for 5 s: its stack is in the log; restart the edge"
	}
	return "see docs/operations.md#health"
}

// inspect asks stores about their databases.
func inspect(ctx context.Context, all []*seen, patience time.Duration) (told []inspected) {
	for _, o := range all {
		if o.node.GetTier() != pushmeshv1.Tier_TIER_STORE || o.direct != nil {
			continue
		}
		i := inspected{store: o.name()}
		i.err = withConn(o.node.GetGrpcAddress(), func(conn *grpc.ClientConn) error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			resp, err := meshv1.NewStoreServiceClient(conn).Inspect(ctx, &meshv1.InspectRequest{})
			i.databases = resp.GetDatabases()
			return err
		})
		told = append(told, i)
	}
	return told
}
