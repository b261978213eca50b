package exchange

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
)

// Identified says who a connection has shown the token of, or why that is not to be known.
type Identified struct {
	Conn Conn
	Who  *identity.Principal // nil: see Why
	Why  *code.Error
}

// RevocationsChanged says that other tokens are revoked than before.
type RevocationsChanged struct{}

// TeamsChanged says that users are in other teams than before, or teams grant something else.
type TeamsChanged struct{}

func (Identified) event()         {}
func (TeamsChanged) event()       {}
func (RevocationsChanged) event() {}

// Security is what protects a connection.
type Security uint8

// Plain is no TLS, TLS that of clients, and TierTLS that between tiers: whoever connected has shown
// a router's certificate.
const (
	Plain Security = iota
	TLS
	TierTLS
)
