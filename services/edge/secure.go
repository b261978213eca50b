package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/certs"
	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	records "github.com/pushmesh/pushmesh/services/edge/internal/tls/record"
)

// secure makes what TLS needs, for clients and for routers, which come for backends; nothing where
// no certificate is set.
func (e *Edge) secure() error {
	s := e.settings
	// never h2: WebSocket needs the whole connection
	keeper, cfg, err := s.tls().Open(e.tel.Log, wire.ALPN, "http/1.1")
	if err != nil || keeper == nil && e.identity == nil {
		return err
	}
	if keeper != nil {
		e.certs = keeper
		keeper.Register("edge", e.tel.Registry)
		e.checks.Report("certificates", keeper.Check)
	}
	workers := s.TLSWorkers
	if workers == 0 {
		workers = max(cores.Usable()/2, 1)
	}
	e.handshakes = handshake.New(handshake.Config{
		TLS: e.identity.Door(cfg, tierauth.Router, wire.ALPN, records.Prepare), Tier: tierauth.Edge.Name(), Workers: workers, Most: s.TLSHandshakes, Log: e.tel.Log,
		Post: func(at uint16, event exchange.Event) bool { return e.loops[at].Post(event) },
	})
	return nil
}

func (s *Settings) tls() certs.Settings {
	return certs.Settings{
		Cert: s.TLSCerts, Key: s.TLSKeys, Reload: s.TLSReload, MinVersion: s.TLSMinVersion, Required: s.TLSRequired,
		ClientCA: s.TLSClientCA, ClientCRL: s.TLSClientCRL, Prepare: records.Prepare,
	}
}

// sendTLS sends what is counted off the loops.
func (e *Edge) sendTLS(ch chan<- prometheus.Metric) {
	s := e.handshakes.Stats()
	send(ch, "tls_handshakes", "TLS handshakes under way.", prometheus.GaugeValue, float64(s.UnderWay))
	sendBy(ch, "tls_handshakes_total", "TLS handshakes by result; full and resumed ones succeeded.", "result", map[string]uint64{
		"full": s.Full, "resumed": s.Resumed, "failed": s.Failed, "gave_way": s.GaveWay, "refused": s.Refused,
	})
}

func sendBy(ch chan<- prometheus.Metric, name, help, label string, counts map[string]uint64) {
	desc := prometheus.NewDesc("pushmesh_edge_"+name, help, []string{label}, nil)
	for value, n := range counts {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), value)
	}
}
