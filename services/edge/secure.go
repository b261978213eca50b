package edge

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/certs"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
)

// secure makes what TLS needs; nothing where no certificate is set.
func (e *Edge) secure() error {
	s := e.settings
	if len(s.TLSCerts) == 0 {
		return nil
	}
	var pairs []certs.Pair
	for i, file := range s.TLSCerts {
		pairs = append(pairs, certs.Pair{Cert: file, Key: s.TLSKeys[i]})
	}
	keeper, err := certs.Open(certs.Config{Pairs: pairs, Every: s.TLSReload, Log: e.tel.Log})
	if err != nil {
		return err
	}
	cfg, err := tlsConfig(s, keeper)
	if err != nil {
		return err
	}
	workers := s.TLSWorkers
	if workers == 0 {
		workers = max(cores.Usable()/2, 1)
	}
	e.certs, e.handshakes = keeper, handshake.New(handshake.Config{
		TLS: cfg, Workers: workers, Most: s.TLSHandshakes, Log: e.tel.Log,
		Post: func(at uint16, event exchange.Event) bool { return e.loops[at].Post(event) },
	})
	return nil
}

func tlsConfig(s Settings, keeper *certs.Keeper) (*tls.Config, error) {
	cfg := &tls.Config{GetCertificate: keeper.Get, MinVersion: tlsVersions[s.TLSMinVersion], NextProtos: []string{wire.ALPN}}
	if s.TLSClientCA == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(s.TLSClientCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca: %w", err)
	}
	if cfg.ClientCAs = x509.NewCertPool(); !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-client-ca %s: the file has no certificate in PEM", s.TLSClientCA)
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	return cfg, nil
}

var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// checkTLS finds what does not go together.
func (s *Settings) checkTLS() error {
	var errs []error
	if len(s.TLSCerts) != len(s.TLSKeys) {
		errs = append(errs, fmt.Errorf("--tls-cert names %d files and --tls-key %d: there must be one key for each certificate", len(s.TLSCerts), len(s.TLSKeys)))
	}
	if len(s.TLSCerts) == 0 && (s.TLSRequired || s.TLSClientCA != "") {
		errs = append(errs, errors.New("--tls-required and --tls-client-ca need --tls-cert"))
	}
	if tlsVersions[s.TLSMinVersion] == 0 {
		errs = append(errs, fmt.Errorf("--tls-min-version %q must be 1.2 or 1.3", s.TLSMinVersion))
	}
	return errors.Join(errs...)
}

// sendTLS sends what is counted off the loops.
func (e *Edge) sendTLS(ch chan<- prometheus.Metric) {
	s := e.handshakes.Stats()
	send(ch, "tls_handshakes", "TLS handshakes under way.", prometheus.GaugeValue, float64(s.UnderWay))
	sendBy(ch, "tls_handshakes_total", "TLS handshakes by result; full and resumed ones succeeded.", "result", map[string]uint64{
		"full": s.Full, "resumed": s.Resumed, "failed": s.Failed, "gave_way": s.GaveWay, "refused": s.Refused,
	})
	taken, failed := e.certs.Reloads()
	sendBy(ch, "tls_certificate_reloads_total", "Reloads of changed certificate files: taken (now served) or failed (the old ones stay).", "result", map[string]uint64{"taken": taken, "failed": failed})
	send(ch, "tls_certificate_expiry_timestamp_seconds", "Unix time at which the first of the certificates expires.", prometheus.GaugeValue, float64(e.certs.Expires().Unix()))
}

func sendBy(ch chan<- prometheus.Metric, name, help, label string, counts map[string]uint64) {
	desc := prometheus.NewDesc("pushmesh_edge_"+name, help, []string{label}, nil)
	for value, n := range counts {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), value)
	}
}
