// Package claims serves pushmesh.v1.ClaimService: backends claim resources, by single calls or by
// watching.
package claims

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/claimclient"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Config of a Service.
type Config struct {
	RouterID    string
	Incarnation uint64
	Stores      *storeclient.Client
	// Caller names who calls, for the limits.
	Caller func(context.Context) string
	// MaxPerCaller is how many calls and watches one caller may have under way, MaxWatches how many
	// watches all have together.
	MaxPerCaller, MaxWatches int
	// Client has settings of its own; its node, stores and what it tells are filled in.
	Client   claimclient.Config
	Registry prometheus.Registerer
}

// Service is pushmesh.v1.ClaimService and a lifecycle.Part: the client of the stores is its own.
type Service struct {
	pushmeshv1.UnimplementedClaimServiceServer
	cfg      Config
	client   *claimclient.Client
	metrics  *metrics
	conns    atomic.Uint64
	draining chan struct{}
	drained  atomic.Bool

	mu      sync.Mutex
	callers map[string]int
	watches map[uint64]*stream // by connection, as stores know it
}

// New makes a service that refuses before Start.
func New(cfg Config) *Service {
	s := &Service{cfg: cfg, draining: make(chan struct{}), callers: map[string]int{}, watches: map[uint64]*stream{}}
	s.metrics = newMetrics(cfg.Registry, s.watching)
	c := cfg.Client
	c.Node, c.Incarnation, c.Stores, c.Tell = "router:"+cfg.RouterID, cfg.Incarnation, cfg.Stores, s.tell
	c.Tier, c.Registry = "router", cfg.Registry
	s.client = claimclient.New(c)
	return s
}

// Start makes the stores' client work.
func (s *Service) Start(ctx context.Context) error { return s.client.Start(ctx) }

// Stop ends what is under way.
func (s *Service) Stop(ctx context.Context) error { return s.client.Stop(ctx) }

// Drain ends every Watch with DRAINING, and refuses new ones.
func (s *Service) Drain() {
	if s.drained.CompareAndSwap(false, true) {
		close(s.draining)
	}
}

func errDraining() error {
	return code.Retry(wirev1.Code_CODE_DRAINING, 100*time.Millisecond, "this router is stopping: use another one")
}

func (s *Service) watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

// enter takes a place for a call, leave gives it back.
func (s *Service) enter(ctx context.Context) (caller string, err error) {
	caller = s.cfg.Caller(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callers[caller] >= s.cfg.MaxPerCaller {
		return "", code.Retry(wirev1.Code_CODE_OVERLOADED, 100*time.Millisecond, "the caller is at its limit of calls and watches of claims on this router")
	}
	s.callers[caller]++
	return caller, nil
}

func (s *Service) leave(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callers[caller]--; s.callers[caller] == 0 {
		delete(s.callers, caller)
	}
}

// call has an operation done that was checked: faulty is what the check found.
func (s *Service) call(ctx context.Context, m *meshv1.ClaimOp, faulty error) (_ *wirev1.ClaimState, err error) {
	began := time.Now()
	defer func() { s.metrics.done(m.GetKind(), err, time.Since(began)) }()
	if faulty != nil {
		return nil, faulty
	}
	caller, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.leave(caller)
	return s.client.Call(ctx, m)
}

// Acquire implements ClaimService.
func (s *Service) Acquire(ctx context.Context, req *pushmeshv1.AcquireRequest) (*pushmeshv1.AcquireResponse, error) {
	m, faulty := acquire(req)
	st, err := s.call(ctx, m, faulty)
	return &pushmeshv1.AcquireResponse{State: st}, err
}

// Renew implements ClaimService.
func (s *Service) Renew(ctx context.Context, req *pushmeshv1.RenewRequest) (*pushmeshv1.RenewResponse, error) {
	m, faulty := renew(req)
	st, err := s.call(ctx, m, faulty)
	return &pushmeshv1.RenewResponse{State: st}, err
}

// Release implements ClaimService.
func (s *Service) Release(ctx context.Context, req *pushmeshv1.ReleaseRequest) (*pushmeshv1.ReleaseResponse, error) {
	m, faulty := release(req)
	st, err := s.call(ctx, m, faulty)
	return &pushmeshv1.ReleaseResponse{State: st}, err
}

// Leave implements ClaimService.
func (s *Service) Leave(ctx context.Context, req *pushmeshv1.LeaveRequest) (*pushmeshv1.LeaveResponse, error) {
	m := &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_LEAVE, Resource: req.GetResource(), Owner: req.GetOwner()}
	st, err := s.call(ctx, m, checkNames(m))
	return &pushmeshv1.LeaveResponse{State: st}, err
}

// Check implements ClaimService.
func (s *Service) Check(ctx context.Context, req *pushmeshv1.CheckRequest) (*pushmeshv1.CheckResponse, error) {
	m := &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_CHECK, Resource: req.GetResource(), Owner: req.GetOwner()}
	st, err := s.call(ctx, m, checkResourceAndOwner(m))
	return &pushmeshv1.CheckResponse{State: st}, err
}

// List implements ClaimService.
func (s *Service) List(ctx context.Context, req *pushmeshv1.ClaimServiceListRequest) (*pushmeshv1.ClaimServiceListResponse, error) {
	if err := checkList(req); err != nil {
		return nil, err
	}
	caller, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.leave(caller)
	return s.client.List(ctx, req)
}
