package upstreamtest

import (
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Claims of connections: what was asked, and what is answered.
type Claims struct {
	Asked []*meshv1.ClaimOp
	Ended []uint64
	// Answer of an op; nil: GRANTED, with the number of the op as token.
	Answer func(op *meshv1.ClaimOp) *meshv1.ClaimResult
	conns  map[uint64]exchange.Conn
}

// Claim implements exchange.Mesh.
func (m *Mesh) Claim(conn exchange.Conn, id uint32, op *meshv1.ClaimOp) {
	m.mu.Lock()
	m.Claims.Asked = append(m.Claims.Asked, op)
	if m.Claims.conns == nil {
		m.Claims.conns = map[uint64]exchange.Conn{}
	}
	m.Claims.conns[op.GetConn()] = conn
	r := &meshv1.ClaimResult{State: &wirev1.ClaimState{Resource: op.GetResource(), Token: uint64(len(m.Claims.Asked))}}
	if m.Claims.Answer != nil {
		r = m.Claims.Answer(op)
	}
	m.mu.Unlock()
	m.send(exchange.Claimed{Conn: conn, ID: id, Result: r})
}

// EndClaims implements exchange.Mesh.
func (m *Mesh) EndClaims(connectionID uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Claims.Ended = append(m.Claims.Ended, connectionID)
}

// TellClaim tells the connection of an op of a state.
func (m *Mesh) TellClaim(op *meshv1.ClaimOp, st *wirev1.ClaimState) {
	m.mu.Lock()
	conn := m.Claims.conns[op.GetConn()]
	m.mu.Unlock()
	m.send(exchange.ClaimTold{Conn: conn, State: st})
}
