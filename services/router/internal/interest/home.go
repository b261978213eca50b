package interest

// Home is an edge as a place for connections.
type Home struct {
	Edge
	// Connections it had a second ago or so.
	Connections uint32
	// Draining: it is about to stop.
	Draining bool
}

// Homes appends every edge known.
func (t *Table) Homes(dst []Home) []Home {
	for _, e := range t.edges {
		dst = append(dst, Home{Edge: e.Edge, Connections: e.connections, Draining: e.draining})
	}
	return dst
}
