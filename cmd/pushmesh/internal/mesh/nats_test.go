package mesh

import (
	"io"
	"strings"
	"testing"
)

func TestACluster(t *testing.T) {
	m := &Mesh{set: Settings{NATSServers: 3}.withDefaults(), out: io.Discard}
	if err := m.layout(); err != nil {
		t.Fatal(err)
	}
	const all = "nats://127.0.0.1:7404,nats://127.0.0.1:7414,nats://127.0.0.1:7424"
	if m.state.NATS != all {
		t.Errorf("servers %s", m.state.NATS)
	}
	addrs := map[string]bool{}
	for _, p := range m.processes {
		if addrs[p.addr] {
			t.Errorf("%s: %s is another's", p.name, p.addr)
		}
		addrs[p.addr] = true
		args := strings.Join(p.args, " ")
		switch {
		case p.name == "nats-2":
			if !strings.Contains(args, "--cluster nats://127.0.0.1:7415 --routes nats://127.0.0.1:7405,nats://127.0.0.1:7425") {
				t.Errorf("%s: %s", p.name, args)
			}
		case p.name == "store-1" || strings.HasPrefix(p.name, "router") || strings.HasPrefix(p.name, "edge"):
			if !strings.Contains(args, "--nats "+all) {
				t.Errorf("%s: %s", p.name, args)
			}
		}
	}
	if err := (Settings{NATSServers: 8}).Check(); err == nil || !strings.Contains(err.Error(), "--nats-servers") {
		t.Errorf("8 servers: %v", err)
	}
}
