package exchange

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
)

// Permitted answers a question about what a connection's user may do; Serial names it.
type Permitted struct {
	Conn   Conn
	Serial uint64
	Says   identity.Permission
	Why    *code.Error // nil: see Says
}

func (Permitted) event() {}
