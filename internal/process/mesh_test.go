package process

import (
	"strings"
	"testing"
)

func TestACluster(t *testing.T) {
	m, err := New(Options{
		NATSServers: 3, Stores: 1, Computes: 1, Routers: 2, Edges: 2, DBs: []string{"postgres://nowhere"}, FixedPorts: true,
		Binary: func(program string) string { return program },
	})
	if err != nil {
		t.Fatal(err)
	}
	const all = "nats://127.0.0.1:7404,nats://127.0.0.1:7414,nats://127.0.0.1:7424"
	if m.NATSURL != all {
		t.Errorf("servers %s", m.NATSURL)
	}
	addrs := map[string]bool{}
	for _, p := range m.All() {
		if addrs[p.Addr] {
			t.Errorf("%s: %s is another's", p.Name, p.Addr)
		}
		addrs[p.Addr] = true
		args := strings.Join(p.Args, " ")
		switch {
		case p.Name == "nats-2":
			if !strings.Contains(args, "--cluster nats://127.0.0.1:7415 --routes nats://127.0.0.1:7405,nats://127.0.0.1:7425") {
				t.Errorf("%s: %s", p.Name, args)
			}
		case p.Name == "store-1" || strings.HasPrefix(p.Name, "router") || strings.HasPrefix(p.Name, "edge"):
			if !strings.Contains(args, "--nats "+all) {
				t.Errorf("%s: %s", p.Name, args)
			}
		}
	}
}

func TestServersAreReachedByWhatIsBetween(t *testing.T) {
	between := func(server *Process, client, addr string) string { return server.Name + "/" + client + "/" + addr }
	m, err := New(Options{
		NATSServers: 2, Stores: 2, Routers: 1, DBs: []string{"a", "b"}, FixedPorts: true, Reach: between,
		Binary: func(program string) string { return "bin/" + program }, Args: map[string][]string{"router": {"--last"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if env := strings.Join(m.Stores[1].Env, " "); env != PlainTiers+" PUSHMESH_DB=b" {
		t.Errorf("the environment of a store: %s", env)
	}
	for p, want := range map[*Process][]string{
		m.NATS[0]:    {"--cluster nats://127.0.0.1:7405", "--routes nats://nats-2//127.0.0.1:7415"},
		m.Stores[1]:  {"--advertise store-2//127.0.0.1:7413", "--nats nats://nats-1/store-2/127.0.0.1:7404,nats://nats-2/store-2/127.0.0.1:7414"},
		m.Routers[0]: {"--stores store-1//127.0.0.1:7403,store-2//127.0.0.1:7413", "--last"},
	} {
		for _, part := range want {
			if args := strings.Join(p.Args, " "); strings.Contains(args, "--db") || !strings.Contains(args, part) {
				t.Errorf("%s has no %s: %s", p.Name, part, args)
			}
		}
	}
}
