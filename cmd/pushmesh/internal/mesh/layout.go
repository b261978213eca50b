package mesh

import (
	"fmt"
	"strconv"
)

// How many of the tiers that scale out.
const (
	edges   = 2
	routers = 2
)

// layout decides every process's address and arguments before any is started, so that each can be
// started again with the same ones.
func (m *Mesh) layout() error {
	if err := m.layoutNATS(); err != nil {
		return err
	}
	store, err := m.tier("store", "store-1", 7403, "--nats", m.state.NATS, "--db", m.state.Postgres)
	if err != nil {
		return err
	}
	compute, err := m.tier("compute", "compute-1", 7402, "--stores", store)
	if err != nil {
		return err
	}
	m.state.Stores, m.state.Computes = []string{store}, []string{compute}
	for i := range routers {
		addr, err := m.tier("router", fmt.Sprintf("router-%d", i+1), 7401+10*i,
			"--nats", m.state.NATS, "--stores", store, "--computes", compute,
			"--producer-rate", strconv.Itoa(m.set.ProducerRate), "--producer-in-flight", strconv.Itoa(m.set.ProducerInFlight),
			"--append-wait", "1s")
		if err != nil {
			return err
		}
		m.state.Routers = append(m.state.Routers, addr)
	}
	for i := range edges {
		addr, err := m.tier("edge", fmt.Sprintf("edge-%d", i+1), 7400+10*i, "--nats", m.state.NATS, "--stores", store, "--computes", compute)
		if err != nil {
			return err
		}
		m.state.Edges = append(m.state.Edges, addr)
	}
	return nil
}

func (m *Mesh) tier(binary, id string, port int, more ...string) (addr string, err error) {
	addr, err = m.set.addr(port)
	if err != nil {
		return "", err
	}
	httpAddr, err := m.set.addr(port + 80)
	if err != nil {
		return "", err
	}
	args := append([]string{"--id", id, "--listen", addr, "--http", httpAddr, "--log-level", m.set.LogLevel}, more...)
	m.add(&process{name: id, addr: addr, http: httpAddr, path: m.set.binary(binary), args: args})
	return addr, nil
}

func (m *Mesh) add(p *process) { m.processes = append(m.processes, p) }
