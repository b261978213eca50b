package procmesh

import (
	"slices"
	"strings"
)

// own is what a process runs when the mesh is made: the tier's program that was built here.
type own struct {
	path string
	args []string
}

// RunFrom has a tier's process run from that pushmesh binary the next time that it is started, with
// the same settings; "" is what was built here.
func (m *Mesh) RunFrom(pushmesh string, p *Process) {
	if m.owns == nil {
		m.owns = map[string]own{}
	}
	mine, known := m.owns[p.Name]
	if !known {
		mine = own{p.Path, slices.Clone(p.Args)}
		m.owns[p.Name] = mine
	}
	p.Path, p.Args = mine.path, mine.args
	if pushmesh != "" {
		tier, _, _ := strings.Cut(p.Name, "-")
		p.Path, p.Args = pushmesh, append([]string{tier}, mine.args...)
	}
}

// Tiers are the processes of every tier, without NATS.
func (m *Mesh) Tiers() []*Process {
	return slices.Concat(m.Stores, []*Process{m.Compute}, m.Routers, m.Edges)
}
