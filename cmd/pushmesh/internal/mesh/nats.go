package mesh

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// Fixed ports of the first nats-server, after those of the tiers; each further one's are 10 higher.
// The second is for its cluster.
const (
	natsPort    = 7404
	clusterPort = 7405
)

// maxNATSServers keeps fixed ports apart.
const maxNATSServers = 7

// layoutNATS adds the NATS servers, which are a cluster where there are several. Every tier is told
// of all.
func (m *Mesh) layoutNATS() error {
	var urls, routes []string
	for i := range m.set.NATSServers {
		addr, err := m.set.addr(natsPort + 10*i)
		if err != nil {
			return err
		}
		route, err := m.set.addr(clusterPort + 10*i)
		if err != nil {
			return err
		}
		urls, routes = append(urls, "nats://"+addr), append(routes, "nats://"+route)
	}
	for i, url := range urls {
		addr := strings.TrimPrefix(url, "nats://")
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		p := &process{name: "nats", addr: addr, path: m.set.NATSServer, args: []string{"-a", host, "-p", port}}
		if len(urls) > 1 {
			p.name = fmt.Sprintf("nats-%d", i+1)
			others := slices.Delete(slices.Clone(routes), i, i+1)
			p.args = append(p.args, "--cluster_name", "pushmesh", "--cluster", routes[i], "--routes", strings.Join(others, ","))
		}
		m.add(p)
	}
	m.state.NATS = strings.Join(urls, ",")
	return nil
}
