package router

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/rawconn"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// conns counts the connections of producers; those beyond the limit are closed before a byte is
// read.
type conns struct {
	most    int64
	open    atomic.Int64
	refused *prometheus.CounterVec
	tooMany prometheus.Counter
}

func newConns(most int, reg prometheus.Registerer) *conns {
	c := &conns{most: int64(most)}
	c.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pushmesh_router_connections_refused_total", Help: "Connections of backends that were refused, by code.",
	}, []string{"code"})
	c.tooMany = c.refused.WithLabelValues(code.Name(wirev1.Code_CODE_TOO_MANY_CONNECTIONS))
	reg.MustRegister(c.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pushmesh_router_connections", Help: "Open connections of backends.",
	}, func() float64 { return float64(c.open.Load()) }))
	return c
}

func (c *conns) limit(l net.Listener) net.Listener { return &limited{l, c} }

type limited struct {
	net.Listener
	conns *conns
}

// Accept returns the next connection that there is room for.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.conns.open.Add(1) <= l.conns.most {
			return &counted{Conn: rawconn.Of(conn), conns: l.conns}, nil
		}
		l.conns.open.Add(-1)
		l.conns.tooMany.Inc()
		_ = conn.Close()
	}
}

// counted gives its place back when it is closed.
type counted struct {
	net.Conn
	conns *conns
	once  sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.conns.open.Add(-1) })
	return c.Conn.Close()
}
