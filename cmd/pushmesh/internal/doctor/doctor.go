package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/survey"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Config of an examination.
type Config struct {
	// Routers to begin with.
	Routers []string
	// Token for edges, called for each connection; nil: none.
	Token func(context.Context) (string, error)
	// Dial is how routers are reached.
	Dial []grpc.DialOption
	// Skew is how far clocks may be apart before it is worth a word.
	Skew time.Duration
	// Operator is shown to stores and compute nodes; nil: they are asked in plain text.
	Operator *tierauth.Identity
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
	s, err := survey.New(c.Routers, c.dial(pushmeshv1.Tier_TIER_ROUTER)...)
	if err != nil {
		r.add(Fail, "mesh", strings.Join(c.Routers, ","), err.Error(), "give routers as --router HOST:PORT")
		return r
	}
	defer func() { _ = s.Close() }()
	s.Timeout = c.Patience
	found, err := s.Nodes(ctx)
	if err != nil {
		r.add(Fail, "mesh", strings.Join(c.Routers, ","), err.Error(), "no router answers: is one running, and does --router name its gRPC port (7401), not that of subscribers (7400) "+
			"or of health (7481)? UNIMPLEMENTED is what another tier's port answers, or a router older than MeshService")
		return r
	}
	all := look(ctx, s, found.GetNodes(), c)
	checkTiers(r, found)
	checkGiven(ctx, r, c, found.GetNodes())
	checkViews(ctx, r, all, c)
	checkReach(r, all)
	checkReady(r, all)
	checkVersions(r, all)
	checkClocks(r, all, c.Skew)
	checkFiles(r, all)
	checkNATS(r, all)
	checkPostgres(r, inspect(ctx, all, c))
	if c.Probe {
		probe(ctx, r, all, c)
	}
	return r
}

// look asks every node what it can be asked.
func look(ctx context.Context, s *survey.Survey, nodes []*pushmeshv1.Node, c Config) []*seen {
	all := make([]*seen, len(nodes))
	survey.Each(nodes, func(i int, n *pushmeshv1.Node) {
		o := &seen{node: n}
		all[i] = o
		if n.GetProblem() != "" && n.GetHttpAddress() == "" {
			return
		}
		var both sync.WaitGroup
		defer both.Wait()
		both.Go(func() {
			var body []byte
			if o.status, body, o.http = s.Get(ctx, n.GetHttpAddress(), "/readyz?verbose"); o.http == nil {
				o.lines = strings.Split(strings.TrimSpace(string(body)), "\n")
				o.metrics, _ = s.Metrics(ctx, n)
			}
		})
		began := time.Now()
		if n.GetTier() == pushmeshv1.Tier_TIER_EDGE {
			o.direct = tokens(c.Token).handshake(ctx, n.GetSubscriberAddress(), c.Patience)
		} else {
			o.direct = healthy(ctx, n.GetGrpcAddress(), c.dial(n.GetTier()), c.Patience)
		}
		o.took = time.Since(began)
	})
	return all
}

// healthy asks for the health of a gRPC server; any answer will do.
func healthy(ctx context.Context, addr string, dial []grpc.DialOption, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return withConn(addr, dial, func(conn *grpc.ClientConn) error {
		_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	})
}

// dial is how the gRPC port of a tier is reached.
func (c Config) dial(tier pushmeshv1.Tier) []grpc.DialOption {
	switch {
	case tier == pushmeshv1.Tier_TIER_STORE:
		return []grpc.DialOption{c.Operator.DialOption(tierauth.Store)}
	case tier == pushmeshv1.Tier_TIER_COMPUTE:
		return []grpc.DialOption{c.Operator.DialOption(tierauth.Compute)}
	case len(c.Dial) > 0:
		return c.Dial
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
}

func withConn(addr string, dial []grpc.DialOption, f func(*grpc.ClientConn) error) error {
	if addr == "" {
		return fmt.Errorf("its gRPC address is not known")
	}
	conn, err := grpc.NewClient(addr, dial...)
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
		if n.GetProblem() == "" {
			count[n.GetTier()]++
		}
	}
	edges, stores := count[pushmeshv1.Tier_TIER_EDGE], count[pushmeshv1.Tier_TIER_STORE]
	summary := fmt.Sprintf("%s, %s, %s, %s, as router %s knows them", some(edges, "edge"), some(count[pushmeshv1.Tier_TIER_ROUTER], "router"), some(stores, "store"),
		some(count[pushmeshv1.Tier_TIER_COMPUTE], "compute node"), found.GetRouterId())
	if edges > 0 && stores > 0 {
		r.ok("mesh", "nodes", "%s", summary)
		return
	}
	r.add(Fail, "mesh", "nodes", summary, "start what is missing. If it runs, the router does not reach it over NATS: compare --nats of all nodes, and look for \"nats\" in their /readyz?verbose")
}

// some is a number of things, in English.
func some(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// checkGiven asks routers that were named and that no node says to be: the first that answers names
// the nodes, so that nobody would miss the others.
func checkGiven(ctx context.Context, r *Report, c Config, nodes []*pushmeshv1.Node) {
	for _, addr := range c.Routers {
		if slices.ContainsFunc(nodes, func(n *pushmeshv1.Node) bool { return n.GetGrpcAddress() == addr }) {
			continue
		}
		if err := healthy(ctx, addr, c.dial(pushmeshv1.Tier_TIER_ROUTER), c.Patience); err != nil {
			r.add(Fail, "reach", "router "+addr, "gRPC: "+plain(err), "--router names it, and no node of the mesh has this address: "+atFault(err, addr))
		}
	}
}

// checkViews asks every router which nodes there are: all must know the same ones.
func checkViews(ctx context.Context, r *Report, all []*seen, c Config) {
	var want map[string]bool
	var whose string
	for _, o := range all {
		if o.node.GetTier() != pushmeshv1.Tier_TIER_ROUTER || o.direct != nil {
			continue
		}
		know := map[string]bool{}
		err := withConn(o.node.GetGrpcAddress(), c.dial(pushmeshv1.Tier_TIER_ROUTER), func(conn *grpc.ClientConn) error {
			ctx, cancel := context.WithTimeout(ctx, c.Patience)
			defer cancel()
			resp, err := pushmeshv1.NewMeshServiceClient(conn).Nodes(ctx, &pushmeshv1.MeshServiceNodesRequest{})
			for _, n := range resp.GetNodes() {
				if n.GetProblem() == "" && n.GetTier() != pushmeshv1.Tier_TIER_COMPUTE {
					// each router is told of its own
					know[(&seen{node: n}).name()] = true
				}
			}
			return err
		})
		switch {
		case err != nil:
			r.add(Fail, "mesh", o.name(), plain(err), "it does not list the nodes it knows: look at its log")
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

// inspect asks stores about their databases.
func inspect(ctx context.Context, all []*seen, c Config) (told []inspected) {
	for _, o := range all {
		if o.node.GetTier() != pushmeshv1.Tier_TIER_STORE || o.direct != nil {
			continue
		}
		i := inspected{store: o.name()}
		i.err = withConn(o.node.GetGrpcAddress(), c.dial(pushmeshv1.Tier_TIER_STORE), func(conn *grpc.ClientConn) error {
			ctx, cancel := context.WithTimeout(ctx, c.Patience)
			defer cancel()
			resp, err := meshv1.NewStoreServiceClient(conn).Inspect(ctx, &meshv1.InspectRequest{})
			i.databases = resp.GetDatabases()
			return err
		})
		told = append(told, i)
	}
	return told
}
