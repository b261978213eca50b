// Package outbound makes calls to addresses that users of the mesh name, such as the service of a
// policy or the keys of an issuer.
// Whoever may write such a URL must not reach with it what only this process reaches: the host
// itself, the network around it, the metadata service of a cloud.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	// MostAnswer bytes of an answer's headers are read. The body is the caller's to bound, by this
	// or by another number.
	MostAnswer = 64 << 10
	// connectTimeout is for one connection, and then for its TLS handshake.
	connectTimeout = 5 * time.Second
	// answerTimeout is how long an answer's headers may take, whatever the caller's context allows.
	answerTimeout = 2 * time.Minute
	// tellEvery is how often the refusal of one host is logged.
	tellEvery = time.Minute
	// mostTold hosts are told of in that time.
	mostTold = 100
)

// Config of a Guard.
type Config struct {
	// Metric is the name of the counter of refusals, by the kind of the address.
	Metric   string
	Allow    Allow
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Guard connects to public addresses and to those that are listed, and to no other. It is safe for
// concurrent use and owns nothing that must be closed.
type Guard struct {
	allow   Allow
	log     *slog.Logger
	refused *prometheus.CounterVec

	mu    sync.Mutex
	told  map[string]bool // hosts, since tells
	tells time.Time
}

// New makes a guard.
func New(cfg Config) *Guard {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Guard{
		allow: cfg.Allow, log: cfg.Log, told: map[string]bool{},
		refused: promauto.With(cfg.Registry).NewCounterVec(prometheus.CounterOpts{
			Name: cfg.Metric,
			Help: "Connections to addresses of users' URLs that were refused, by the kind of the address (--outbound-allow).",
		}, []string{"kind"}),
	}
}

// RefusedError says that an address may not be called. Trying again does not help.
type RefusedError struct {
	// Host is the host and port of the URL, Addr what its name stands for.
	Host string
	Addr netip.AddrPort
	Kind Kind
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is not called: %s is %s; list %s in --outbound-allow if it may be called",
		e.Host, e.Addr, e.Kind.describe(), e.Addr.Addr().Unmap().WithZone(""))
}

// Dial connects to host:port. Every address that the name stands for is judged right before it is
// connected to, so a name that means another address the second time is no way round. An address
// that may not be called is a *RefusedError.
func (g *Guard) Dial(ctx context.Context, network, host string) (net.Conn, error) {
	d := net.Dialer{
		Timeout: connectTimeout,
		ControlContext: func(_ context.Context, network, addr string, _ syscall.RawConn) error {
			return g.check(network, host, addr)
		},
	}
	conn, err := d.DialContext(ctx, network, host)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		g.tell(refused)
	}
	return conn, err
}

// check judges a resolved address.
func (g *Guard) check(network, host, addr string) error {
	to, err := netip.ParseAddrPort(addr)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%s is not called: %s %q is no address of TCP", host, network, addr)
	}
	if kind, ok := g.allow.judge(host, to); !ok {
		return &RefusedError{Host: host, Addr: to, Kind: kind}
	}
	return nil
}

// tell counts a refusal, and logs it unless its host was told of a short while ago.
func (g *Guard) tell(e *RefusedError) {
	g.refused.WithLabelValues(string(e.Kind)).Inc()
	g.mu.Lock()
	now := time.Now()
	if now.Sub(g.tells) > tellEvery {
		clear(g.told)
		g.tells = now
	}
	tell := !g.told[e.Host] && len(g.told) < mostTold
	if tell {
		g.told[e.Host] = true
	}
	g.mu.Unlock()
	if tell {
		g.log.Warn("a call to a URL was refused", "error", e.Error())
	}
}

// Client makes requests by HTTP and HTTPS. A redirect is not followed: the call would go where the
// URL does not say; its answer is that of the redirect, status 3xx. A proxy that the environment
// names is not used: it would connect for us, past the guard. idle is how long an unused connection
// is kept; close ends those.
func (g *Guard) Client(idle time.Duration) (c *http.Client, end func()) {
	t := &http.Transport{
		DialContext: g.Dial, Proxy: nil, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConns: 256, MaxIdleConnsPerHost: 64, IdleConnTimeout: idle,
		TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: answerTimeout, MaxResponseHeaderBytes: MostAnswer,
	}
	return &http.Client{
		Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, t.CloseIdleConnections
}

// CheckURL reports a URL that is not called: of another scheme than http and https, without a host,
// or with a user's name or password. The error does not repeat the URL.
func CheckURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil: // whose text has the URL
		return nil, errors.New("the URL can't be parsed")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the URL's scheme is %q, it must be http or https", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("the URL has no host")
	case u.User != nil:
		return nil, errors.New("the URL has a user name or a password: whoever reads the policy would see it")
	}
	return u, nil
}
