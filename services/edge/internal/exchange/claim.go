package exchange

import (
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Claims is what a loop asks of claims. Its methods never block.
type Claims interface {
	// Claim has the owner of the resource's shard do op; answered by Claimed, whatever happens.
	// op.Conn names the connection: what becomes of the owner's place, and of a resource that it
	// watches, is told by ClaimTold behind the answer. op is the mesh's to keep.
	Claim(conn Conn, id uint32, op *meshv1.ClaimOp)
	// EndClaims says that the connection of an op.Conn is gone. Its places stay for the grace of
	// their policies.
	EndClaims(connectionID uint64)
}

// Claimed answers Claim. The result, which others share, is not changed.
type Claimed struct {
	Conn   Conn
	ID     uint32
	Result *meshv1.ClaimResult
}

// ClaimTold tells of a resource that the connection has a place at, or watches. States of a
// resource come in the order in which they became true, answers among them. The state, which others
// share, is not changed.
type ClaimTold struct {
	Conn  Conn
	State *wirev1.ClaimState
}

func (Claimed) event()   {}
func (ClaimTold) event() {}
