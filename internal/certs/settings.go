package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/settings"
)

// Settings of a server's TLS, each of the flag that it is named after.
type Settings struct {
	// Cert and Key are files, one key for each certificate; none: no TLS.
	Cert, Key []string
	Reload    time.Duration
	// MinVersion is 1.2 or 1.3.
	MinVersion string
	Required   bool
	// ClientCA is a file of certificates that sign those of clients; "": clients need none.
	ClientCA string
	// ClientCRL is a file of lists of certificates that those of ClientCA have revoked; "": none.
	ClientCRL string
	// Prepare, if any, changes what each connection is taken with.
	Prepare func(*tls.Config) *tls.Config
}

var versions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Check finds every fault but those of the files' content.
func (s Settings) Check() error {
	errs := []error{settings.Range("tls-reload", s.Reload.Seconds(), 0.01, 86400)}
	if len(s.Cert) != len(s.Key) {
		errs = append(errs, fmt.Errorf("--tls-cert names %d files and --tls-key %d: there must be one key for each certificate", len(s.Cert), len(s.Key)))
	}
	if len(s.Cert) == 0 && (s.Required || s.ClientCA != "") {
		errs = append(errs, errors.New("--tls-required and --tls-client-ca need --tls-cert"))
	}
	if s.ClientCRL != "" && s.ClientCA == "" {
		errs = append(errs, errors.New("--tls-client-crl needs --tls-client-ca, whose lists it has"))
	}
	if versions[s.MinVersion] == 0 {
		errs = append(errs, fmt.Errorf("--tls-min-version %q must be 1.2 or 1.3", s.MinVersion))
	}
	return errors.Join(errs...)
}

// Open reads the files, which must be good, and makes of them what a server of the protocols needs.
// Both are nil where no certificate is set.
func (s Settings) Open(log *slog.Logger, protocols ...string) (*Keeper, *tls.Config, error) {
	if len(s.Cert) == 0 {
		return nil, nil, nil
	}
	var pairs []Pair
	for i, file := range s.Cert {
		pairs = append(pairs, Pair{Cert: file, Key: s.Key[i]})
	}
	k, err := Open(Config{Pairs: pairs, CA: s.ClientCA, Revoked: s.ClientCRL, Untrusted: s.ClientCA != "", Every: s.Reload, Log: log})
	if err != nil {
		return nil, nil, err
	}
	cfg := &tls.Config{GetCertificate: k.Get, MinVersion: versions[s.MinVersion], NextProtos: protocols}
	if s.Prepare != nil {
		cfg = s.Prepare(cfg)
	}
	if s.ClientCA == "" {
		return k, cfg, nil
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	cfg.VerifyConnection = k.Verify
	// Of each connection by itself: the CA's file is read again.
	now := cfg.Clone()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, set := now.Clone(), k.current.Load()
		c.ClientCAs = set.ca
		set.bind(c, now)
		return c, nil
	}
	if !s.Required {
		log.Warn("--tls-client-ca without --tls-required: who connects without TLS needs no certificate")
	}
	return k, cfg, nil
}

// Register adds the metrics of a tier ("edge", "router").
func (k *Keeper) Register(tier string, reg prometheus.Registerer) {
	k.register("pushmesh_"+tier+"_", "tls_certificate_reloads_total", "tls_certificate_expiry_timestamp_seconds", "tls_connections_ended_total", reg)
}

// RegisterMesh adds the same of the certificate that a tier shows to others.
func (k *Keeper) RegisterMesh(tier string, reg prometheus.Registerer) {
	k.register("pushmesh_"+tier+"_", "mesh_certificate_reloads_total", "mesh_certificate_expiry_timestamp_seconds", "mesh_connections_ended_total", reg)
}

func (k *Keeper) register(prefix, reloads, expiry, ended string, reg prometheus.Registerer) {
	reload := func(result string, count func() uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: prefix + reloads, ConstLabels: prometheus.Labels{"result": result},
			Help: "Reloads of changed certificate files: taken (now served) or failed (the old ones stay).",
		}, func() float64 { return float64(count()) })
	}
	reg.MustRegister(reload("taken", k.reloads.Load), reload("failed", k.failed.Load), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + expiry, Help: "Unix time at which the first of the certificates expires.",
	}, func() float64 { return float64(k.Expires().Unix()) }), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: prefix + ended, Help: "Connections that were ended because their certificate was revoked, or its CA taken out.",
	}, func() float64 { return float64(k.Ended()) }))
}
