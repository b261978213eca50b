// Package health serves a process's /livez, /readyz and /metrics over HTTP, and /debug/pprof on a
// port of its own.
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Checks is the set of reasons why a process may be not ready, or degraded. It is safe for
// concurrent use.
type Checks struct {
	mu     sync.Mutex
	checks map[string]check
}

type check struct {
	ask      func() error
	required bool
}

// Require adds a check without which the process is not ready. ask must return at once.
func (c *Checks) Require(name string, ask func() error) { c.put(name, check{ask, true}) }

// Report adds a check that /readyz?verbose names when it fails, while the process stays ready.
func (c *Checks) Report(name string, ask func() error) { c.put(name, check{ask, false}) }

func (c *Checks) put(name string, k check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checks == nil {
		c.checks = map[string]check{}
	}
	c.checks[name] = k
}

// Status asks every check: a line each ("name: ok", "name: degraded: why", "name: missing: why"),
// sorted by name.
func (c *Checks) Status() (ready bool, lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ready = true
	for name, k := range c.checks {
		switch err := k.ask(); {
		case err == nil:
			lines = append(lines, name+": ok")
		case k.required:
			ready = false
			lines = append(lines, name+": missing: "+err.Error())
		default:
			lines = append(lines, name+": degraded: "+err.Error())
		}
	}
	slices.Sort(lines)
	return ready, lines
}

// Server is a lifecycle.Part. It owns its listener and the goroutine that serves it.
type Server struct {
	addr     string
	mux      *http.ServeMux
	srv      *http.Server
	listener atomic.Pointer[net.Listener]
	served   chan error
	log      *slog.Logger // nil: not one of profiles
}

// NewServer makes a server for addr ("" serves nothing, ":0" picks a port).
func NewServer(addr string, checks *Checks, metrics prometheus.Gatherer) *Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		ready, lines := checks.Status()
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if r.URL.Query().Has("verbose") {
			fmt.Fprintln(w, strings.Join(lines, "\n"))
		}
		if ready {
			fmt.Fprintln(w, "ready")
		} else {
			fmt.Fprintln(w, "not ready")
		}
	})
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return newServer(addr, mux)
}

func newServer(addr string, mux *http.ServeMux) *Server {
	return &Server{addr: addr, mux: mux, srv: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}, served: make(chan error, 1)}
}

// NewProfiles makes a server for profiles alone, /debug/pprof/, at addr ("" serves nothing). Who
// reaches it reads what the process has in memory and can keep it busy, so log is told where it
// listens on more than loopback.
func NewProfiles(addr string, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := newServer(addr, mux)
	s.log = log
	return s
}

// Handle serves one more path, to be called before Start.
func (s *Server) Handle(path string, h http.Handler) { s.mux.Handle(path, h) }

// Start listens and serves.
func (s *Server) Start(ctx context.Context) error {
	if s.addr == "" {
		s.served <- nil
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	s.listener.Store(&l)
	if at, err := netip.ParseAddrPort(l.Addr().String()); s.log != nil && err == nil && !at.Addr().IsLoopback() {
		s.log.Warn("profiles are served on more than loopback: whoever reaches them reads this process's memory (--pprof-addr)", "addr", at.String())
	}
	go func() {
		err := s.srv.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		s.served <- err
	}()
	return nil
}

// Addr is the address served, once started; "" where none is. It may be asked while the process is
// still starting.
func (s *Server) Addr() string {
	l := s.listener.Load()
	if l == nil {
		return ""
	}
	return (*l).Addr().String()
}

// Stop ends the server.
func (s *Server) Stop(ctx context.Context) error {
	err := s.srv.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.srv.Close())
	}
	return errors.Join(err, <-s.served)
}
