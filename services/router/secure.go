package router

import (
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/certs"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func (s *Settings) tls() certs.Settings {
	return certs.Settings{Cert: s.TLSCerts, Key: s.TLSKeys, Reload: s.TLSReload, MinVersion: s.TLSMinVersion, Required: s.TLSRequired, ClientCA: s.TLSClientCA, ClientCRL: s.TLSClientCRL}
}

// secure makes what TLS needs; nothing where no certificate is set.
func (r *Router) secure(tel *telemetry.Telemetry) error {
	keeper, cfg, err := r.settings.tls().Open(tel.Log)
	if keeper == nil {
		return err
	}
	keeper.Register("router", tel.Registry)
	handshakes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pushmesh_router_tls_handshakes_total", Help: "TLS handshakes of backends by result; full and resumed ones succeeded.",
	}, []string{"result"})
	tel.Registry.MustRegister(handshakes)
	results := map[grpcserve.Beginning]prometheus.Counter{
		grpcserve.Full: handshakes.WithLabelValues("full"), grpcserve.Resumed: handshakes.WithLabelValues("resumed"), grpcserve.Failed: handshakes.WithLabelValues("failed"),
		grpcserve.Refused: r.conns.refused.WithLabelValues(code.Name(wirev1.Code_CODE_UNSUPPORTED)),
	}
	r.certs = keeper
	r.tls = &grpcserve.TLS{Config: cfg, Required: r.settings.TLSRequired, Hold: keeper.Hold, Began: func(b grpcserve.Beginning, from net.Addr, err error) {
		if count := results[b]; count != nil {
			count.Inc()
		}
		if err != nil {
			tel.Log.Debug("a TLS handshake failed", "from", from, "error", err)
		}
	}}
	return nil
}
