package edge

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/internal/identity/hook"
	"github.com/pushmesh/pushmesh/internal/identity/permission"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/internal/revocation"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/permissions/asker"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals/gate"
)

// principals says who comes in, and makes what checks tokens where issuers are set.
func (e *Edge) principals() (principals.Config, error) {
	s := e.settings
	cfg := principals.Config{
		Redeem: e.tickets.Redeem, TicketsByTLS: e.identity.Strict(), TLSOnly: s.TLSRequired, KeepExpired: s.TokenExpiry == untilReconnect, Grace: s.TokenGrace,
		Namespaces: e.policies.Table,
	}
	if s.Issuers == "" && s.ConnectHook == "" {
		return cfg, nil
	}
	allow, err := outbound.ParseAllow(s.OutboundAllow)
	if err != nil {
		return cfg, err
	}
	guard := outbound.New(outbound.Config{Metric: "pushmesh_edge_outbound_refused_total", Allow: allow, Log: e.tel.Log, Registry: e.tel.Registry})
	door := gate.Config{
		Edge: s.ID, Nameless: gate.Nameless(s.ClientsWithoutToken), Log: e.tel.Log,
		Post: func(at uint16, event exchange.Event) bool { return e.loops[at].Post(event) },
	}
	if s.Issuers != "" {
		if e.tokens, err = s.verifier(guard, e.tel); err != nil {
			return cfg, err
		}
		door.Verifier = e.tokens
	}
	if s.ConnectHook != "" {
		if e.hook, err = s.backend(guard, e.clock.At, e.tel); err != nil {
			return cfg, err
		}
		door.Backend = e.hook
	}
	if s.PermissionHook != "" {
		if e.permissions, err = s.permissions(guard, e.tel); err != nil {
			return cfg, err
		}
		cfg.KeepIssuers = true
		e.asker = asker.New(asker.Config{Hook: e.permissions, Post: door.Post})
	}
	e.gate = gate.New(door)
	e.revoked = revocation.NewWatch(e.stores, e.bus, func() time.Time { return e.clock.At(time.Now()) }, e.tel.Log)
	e.revoked.OnChange(func() {
		for i := range e.loops {
			e.mesh.Post(uint16(i), exchange.RevocationsChanged{})
		}
	})
	e.teams = team.NewWatch(e.stores, e.bus, e.tel.Log)
	e.teams.OnChange(func() {
		for i := range e.loops {
			e.mesh.Post(uint16(i), exchange.TeamsChanged{})
		}
	})
	cfg.Door, cfg.Revoked, cfg.Teams = e.gate, e.revoked, e.teams
	return cfg, nil
}

// verifier makes what checks tokens.
func (s *Settings) verifier(guard *outbound.Guard, tel *telemetry.Telemetry) (*token.Verifier, error) {
	workers := s.TokenWorkers
	if workers == 0 {
		workers = max(cores.Usable()/2, 1)
	}
	v, err := token.Open(s.Issuers, token.Options{
		Guard: guard, Log: tel.Log, Concurrency: workers, CacheBytes: s.TokenCache, Registry: tel.Registry, Tier: "edge",
	})
	if err != nil {
		return nil, fmt.Errorf("--issuers: %w", err)
	}
	return v, nil
}

// backend makes what asks who clients are.
func (s *Settings) backend(guard *outbound.Guard, clock func(time.Time) time.Time, tel *telemetry.Telemetry) (*hook.Hook, error) {
	secret, err := outbound.OpenSecret(s.WebhookSecrets, time.Now)
	if err != nil {
		return nil, err
	}
	h, err := hook.New(hook.Config{
		URL: s.ConnectHook, Guard: guard, Secret: secret, Timeout: s.ConnectHookTimeout, UnderWay: s.ConnectHookInFlight, CacheBytes: s.TokenCache,
		Clock: clock, Log: tel.Log, Registry: tel.Registry, Tier: "edge",
	})
	if err != nil {
		return nil, fmt.Errorf("--connect-hook: %w", err)
	}
	return h, nil
}

// permissions makes what asks what users may do.
func (s *Settings) permissions(guard *outbound.Guard, tel *telemetry.Telemetry) (*permission.Hook, error) {
	secret, err := outbound.OpenSecret(s.WebhookSecrets, time.Now)
	if err != nil {
		return nil, err
	}
	h, err := permission.New(permission.Config{
		URL: s.PermissionHook, Guard: guard, Secret: secret, Timeout: s.PermissionHookTimeout, UnderWay: s.PermissionInFlight, CacheBytes: s.PermissionHookCache,
		Edge: s.ID, Log: tel.Log, Registry: tel.Registry, Tier: "edge",
	})
	if err != nil {
		return nil, fmt.Errorf("--permission-hook: %w", err)
	}
	return h, nil
}

// What becomes of connections whose token has ended.
const (
	closes         = "close"
	untilReconnect = "until-reconnect"
)

// maxGrace is the longest that a connection may outlast its token by a setting.
const maxGrace = 24 * time.Hour

// checkIdentity finds what does not go together.
func (s *Settings) checkIdentity() error {
	var errs []error
	switch {
	case s.Issuers == "" && s.ConnectHook == "" && !s.Open:
		errs = append(errs, errors.New("the edge would let in everybody who reaches its port: name who signs the tokens of clients (--issuers FILE) or whom to ask (--connect-hook URL), or say that everybody may come in (--open)"))
	case (s.Issuers != "" || s.ConnectHook != "") && s.Open:
		errs = append(errs, errors.New("--open lets everybody in, and --issuers and --connect-hook those who are known: give one of them (--clients-without-token accept lets both in)"))
	case s.ConnectHook != "" && s.ClientsWithoutToken != string(gate.Refuse):
		errs = append(errs, errors.New("--clients-without-token does not go with --connect-hook, which is asked about clients without a token, too"))
	case s.Issuers == "" && s.ClientsWithoutToken != string(gate.Refuse):
		errs = append(errs, errors.New("--clients-without-token needs --issuers"))
	case s.Open && (s.TokenExpiry != closes || s.TokenGrace != 0):
		errs = append(errs, errors.New("--token-expiry and --token-grace need --issuers or --connect-hook"))
	case s.TokenExpiry == untilReconnect && s.TokenGrace != 0:
		errs = append(errs, errors.New("--token-grace needs --token-expiry close"))
	}
	if !slices.Contains([]string{string(gate.Refuse), string(gate.Warn), string(gate.Accept)}, s.ClientsWithoutToken) {
		errs = append(errs, fmt.Errorf("--clients-without-token %q must be refuse, warn or accept", s.ClientsWithoutToken))
	}
	if s.TokenExpiry != closes && s.TokenExpiry != untilReconnect {
		errs = append(errs, fmt.Errorf("--token-expiry %q must be close or until-reconnect", s.TokenExpiry))
	}
	if s.ConnectHook == "" && s.PermissionHook == "" && s.WebhookSecrets != "" {
		errs = append(errs, errors.New("--webhook-secret-file needs --connect-hook or --permission-hook"))
	}
	if s.PermissionHook != "" && s.Issuers == "" && s.ConnectHook == "" {
		errs = append(errs, errors.New("--permission-hook is asked about users, who are not known here: it needs --issuers or --connect-hook"))
	}
	_, err := outbound.ParseAllow(s.OutboundAllow)
	return errors.Join(append(errs, err,
		settings.Range("connect-hook-timeout", s.ConnectHookTimeout.Seconds(), 0.01, 60),
		settings.Range("permission-hook-timeout", s.PermissionHookTimeout.Seconds(), 0.01, 60),
		settings.Range("permission-hook-in-flight", float64(s.PermissionInFlight), 1, 100_000),
		settings.Range("permission-hook-cache", float64(s.PermissionHookCache), 1<<10, 1<<40),
		settings.Range("connect-hook-in-flight", float64(s.ConnectHookInFlight), 1, 100_000))...)
}

// sendIdentity sends what the gate counts.
func (e *Edge) sendIdentity(ch chan<- prometheus.Metric) {
	s := e.gate.Stats()
	send(ch, "tokens_under_way", "Tokens that are being checked, those that wait for an issuer's keys among them.", prometheus.GaugeValue, float64(s.UnderWay))
	send(ch, "tokens_waiting", "Tokens that wait to be checked.", prometheus.GaugeValue, float64(s.Waiting))
	send(ch, "tokens_gave_way_total", "Tokens that were refused (OVERLOADED) because too many waited.", prometheus.CounterValue, float64(s.GaveWay))
	if e.asker != nil {
		s := e.asker.Stats()
		send(ch, "permissions_waiting", "Questions to the backend of --permission-hook that wait to be asked, beside those under way.", prometheus.GaugeValue, float64(s.Waiting))
		send(ch, "permissions_gave_way_total", "Questions to the backend of --permission-hook that were refused (OVERLOADED) because too many waited.", prometheus.CounterValue, float64(s.GaveWay))
	}
	list := e.revoked.List()
	send(ch, "revocations_version", "Version of the revocations that this edge goes by; 0: it does not know them yet.", prometheus.GaugeValue, float64(list.Version()))
	send(ch, "revocations", "Revocations that this edge knows; those that have just ended may be among them.", prometheus.GaugeValue, float64(list.Len()))
	teams := e.teams.List()
	send(ch, "teams_version", "Version of the teams that this edge goes by; 0: it does not know them yet.", prometheus.GaugeValue, float64(teams.Version()))
	send(ch, "teams", "Teams that this edge knows.", prometheus.GaugeValue, float64(teams.Len()))
	send(ch, "clients_without_token_total", "Clients that were let in without a token (--clients-without-token).", prometheus.CounterValue, float64(s.Nameless))
}
