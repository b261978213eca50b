package groups

// neighbour is what another edge has to do with groups here.
type neighbour struct {
	// dispatchers here of groups that have members there, shares of members here that are
	// dispatched there.
	dispatchers map[*dispatcher]bool
	shares      map[*share]bool
}

func (g *Groups) neighbour(edge string) *neighbour {
	p := g.neighbours[edge]
	if p == nil {
		p = &neighbour{map[*dispatcher]bool{}, map[*share]bool{}}
		g.neighbours[edge] = p
	}
	return p
}

// setAt notes which edge dispatches for a group; "": it is not known.
func (g *Groups) setAt(s *share, edge string) {
	if s.at != "" && s.at != g.cfg.Edge {
		p := g.neighbour(s.at)
		delete(p.shares, s)
		g.unneeded(s.at, p)
	}
	if s.at = edge; edge != "" && edge != g.cfg.Edge {
		g.neighbour(edge).shares[s] = true
	}
}

// meets notes whether another edge has members of a group that is dispatched here.
func (g *Groups) meets(d *dispatcher, edge string, has bool) {
	if edge == g.cfg.Edge {
		return
	}
	p := g.neighbour(edge)
	if has {
		p.dispatchers[d] = true
		return
	}
	delete(p.dispatchers, d)
	g.unneeded(edge, p)
}

func (g *Groups) unneeded(edge string, p *neighbour) {
	if len(p.dispatchers)+len(p.shares) == 0 {
		delete(g.neighbours, edge)
	}
}

// needs reports whether an edge has members of a group that is dispatched here, or dispatches for
// members here.
func (g *Groups) needs(edge string) bool { return g.neighbours[edge] != nil }
