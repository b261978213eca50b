// Package subscribe serves pushmesh.v1.SubscribeService. Each stream is bridged to an edge over the
// subscriber protocol, so that what a backend gets is by construction what a TCP client gets:
// sessions, windows, redelivery, groups and all. Bodies of frames are copied, never decoded and
// encoded again, but for the few that the router has a word in.
package subscribe

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// Edges says which edges there are (switchboard.Switchboard).
type Edges interface{ Homes() []interest.Home }

// Requester asks over NATS (bus.Bus).
type Requester interface {
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
}

// Config of a Service.
type Config struct {
	RouterID string
	Edges    Edges
	Via      Requester
	// Caller names who calls, for the limits.
	Caller func(context.Context) string
	// MaxStreams of all callers, and of each.
	MaxStreams, MaxPerCaller int
	// Silent is how long an edge, or a client that is to say hello, may say nothing; 0: 12.5 s,
	// which is 2.5 heartbeats.
	Silent time.Duration
	// Identity is shown to edges, which must show theirs; nil: connections to edges are without
	// TLS.
	Identity *tierauth.Identity
	Registry prometheus.Registerer
}

// Service is pushmesh.v1.SubscribeService. A stream's goroutines end with its call.
type Service struct {
	pushmeshv1.UnimplementedSubscribeServiceServer
	cfg      Config
	metrics  *metrics
	senders  senders
	draining chan struct{}
	drained  atomic.Bool

	mu      sync.Mutex
	streams int
	callers map[string]int
}

// New makes the service.
func New(cfg Config) *Service {
	cfg.Silent = cmp.Or(cfg.Silent, 5*heartbeat/2)
	s := &Service{cfg: cfg, draining: make(chan struct{}), callers: map[string]int{}}
	s.metrics = newMetrics(cfg.Registry, s.count)
	return s
}

// retrySoon is when trying again may help where another router or edge will do.
const retrySoon = 100 * time.Millisecond

// Drain refuses new streams from now on, and ends those that there are with DRAINING once the ACKs
// on their way had time to arrive.
func (s *Service) Drain() {
	if s.drained.CompareAndSwap(false, true) {
		close(s.draining)
	}
}

func errDraining() error {
	return code.Retry(wirev1.Code_CODE_DRAINING, retrySoon, "this router is stopping: use another one")
}

// Subscribe implements SubscribeService.
func (s *Service) Subscribe(rpc grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]) error {
	leave, err := s.enter(s.cfg.Caller(rpc.Context()))
	if err != nil {
		s.metrics.refused(err)
		return err
	}
	defer leave()
	err = serve(s, rpc)
	s.metrics.ended(err)
	return err
}

// enter takes a place for a stream of the caller.
func (s *Service) enter(caller string) (leave func(), err error) {
	if s.drained.Load() {
		return nil, errDraining()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.streams >= s.cfg.MaxStreams:
		return nil, full("this router is at its limit of %d Subscribe streams: use another one", s.cfg.MaxStreams)
	case s.callers[caller] >= s.cfg.MaxPerCaller:
		return nil, full("the caller is at its limit of %d Subscribe streams on this router", s.cfg.MaxPerCaller)
	}
	s.streams++
	s.callers[caller]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams--
		if s.callers[caller]--; s.callers[caller] == 0 {
			delete(s.callers, caller)
		}
	}, nil
}

func full(format string, n int) error {
	return code.Retry(wirev1.Code_CODE_TOO_MANY_CONNECTIONS, time.Second, fmt.Sprintf(format, n))
}

func (s *Service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams
}

func invalid(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf(format, args...))
}
