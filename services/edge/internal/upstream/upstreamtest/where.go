package upstreamtest

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/filters"
)

// Filter implements exchange.Mesh.
func (m *Mesh) Filter(conn exchange.Conn, sub uint32, filter, text string) {
	id, err := m.Wheres.Add(filters.Key{Conn: conn, Sub: sub}, filter, text)
	m.send(exchange.Filtered{Conn: conn, Sub: sub, Program: id, Err: err})
}

// Unfilter implements exchange.Mesh.
func (m *Mesh) Unfilter(conn exchange.Conn, sub uint32) {
	m.Wheres.Remove(filters.Key{Conn: conn, Sub: sub})
}
