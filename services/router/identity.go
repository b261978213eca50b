package router

import (
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/decisions"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
	"github.com/pushmesh/pushmesh/services/router/internal/gate"
	"github.com/pushmesh/pushmesh/services/router/internal/publish"
)

// identify makes what finds out who calls.
func (r *Router) identify(tel *telemetry.Telemetry) (gate.Config, error) {
	s := r.settings
	cfg := gate.Config{
		Caller: publish.Caller, Decisions: decisions.New("pushmesh_router_decisions_suppressed_total", s.AuditDecisions, tel.Log, tel.Registry), Log: tel.Log, Registry: tel.Registry,
	}
	if s.Backends != "" {
		var follow func() []token.Issuer
		if s.Issuers != "" {
			allow, err := outbound.ParseAllow(s.OutboundAllow)
			if err != nil {
				return cfg, err
			}
			guard := outbound.New(outbound.Config{Metric: "pushmesh_router_outbound_refused_total", Allow: allow, Log: tel.Log, Registry: tel.Registry})
			if r.tokens, err = token.Open(s.Issuers, token.Options{Guard: guard, Log: tel.Log, Registry: tel.Registry, Tier: "router"}); err != nil {
				return cfg, fmt.Errorf("--issuers: %w", err)
			}
			cfg.Tokens, follow = r.tokens, r.tokens.Issuers
		}
		var err error
		if r.backends, err = backends.Open(backends.Config{Path: s.Backends, Follow: follow, Log: tel.Log}); err != nil {
			return cfg, fmt.Errorf("--backends: %w", err)
		}
		cfg.Backends = r.backends
	}
	return cfg, nil
}

// own says which producers have limits of their own; nil: none has.
func (r *Router) own() func(producer string) admission.Limits {
	if r.backends == nil {
		return nil
	}
	return func(producer string) admission.Limits {
		l := r.backends.Limits(producer)
		return admission.Limits{Rate: l.Rate, InFlight: l.InFlight}
	}
}

// checkIdentity finds what does not go together.
func (s *Settings) checkIdentity() error {
	var err error
	switch {
	case s.Backends == "" && !s.Open:
		err = errors.New("the router would let everybody who reaches its port do everything: name the backends that may call it (--backends FILE), or say that everybody may (--open)")
	case s.Backends != "" && s.Open:
		err = errors.New("--open lets everybody do everything, and --backends those who are named: give one of them")
	case s.Backends == "" && s.Issuers != "":
		err = errors.New("--issuers needs --backends, which says whose tokens are taken")
	}
	_, fault := outbound.ParseAllow(s.OutboundAllow)
	return errors.Join(err, fault)
}
