// Package compute is the tier that ranks, off every I/O path: a bounded CPU pool behind gRPC that
// refuses rather than queue without end.
package compute

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/internal/health"
	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/intake"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/compute/internal/models"
	"github.com/pushmesh/pushmesh/services/compute/internal/ranking"
)

const (
	// maxCost bounds what one job may need, and what the jobs of a lane may need of each worker:
	// some seconds of a core.
	maxCost = 100_000_000
	// shortCost is about what fits into a slice or two: estimates are 1.5 to 2 times what jobs
	// take.
	shortCost = 80_000
	// mostLost workers for each that there should be: their jobs take cores from the others.
	mostLost = 4
)

// Compute is one node of the compute tier. It is a lifecycle.Part.
type Compute struct {
	lifecycle.Stack
	front *front
	http  *health.Server
}

// Telemetry of the node: its log level and ratio of traces may change while it runs.
func (c *Compute) Telemetry() *telemetry.Telemetry { return c.front.tel }

// New makes a compute node; nothing runs before Start.
func New(ctx context.Context, s Settings) (*Compute, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("compute settings: %w", err)
	}
	s = s.withDefaults()
	tel, err := telemetry.New(ctx, telemetry.Config{
		Service: "compute", Instance: s.ID, Version: s.Version, SampleRatio: s.TraceRatio, LogLevel: s.LogLevel,
	})
	if err != nil {
		return nil, err
	}
	workers := cpupool.New(cpupool.Config{
		Workers: s.Workers, Queue: [cpupool.Lanes]int{cpupool.Short: s.ShortQueue, cpupool.Long: s.LongQueue},
		MaxCost: maxCost * s.Workers, MaxJob: maxCost, ShortCost: shortCost,
		OnPanic: func(reason any, stack []byte) {
			tel.Log.Error("a job panicked", "reason", reason, "stack", string(stack))
		},
		OnLost: func(caller string, since time.Duration) {
			tel.Log.Error("a step of a job takes too long: its worker is replaced", "caller", caller, "since", since)
		},
	})
	checks := &health.Checks{}
	belongs := meshid.New(s.Mesh)
	identity, err := tierauth.Open(tierauth.Config{Flags: s.Flags, Tier: tierauth.Compute, Log: tel.Log, Registry: tel.Registry})
	if err != nil {
		return nil, fmt.Errorf("compute: %w", err)
	}
	stored, stores := newModels(s, belongs, identity, tel)
	c := &Compute{
		front: &front{requests: intake.New(s.RequestBytes), listen: s.Listen, identity: identity, belongs: belongs, tel: tel, pool: workers, service: ranking.New(ranking.Config{Pool: workers, Models: stored, Log: tel.Log, Registry: tel.Registry})},
		http:  health.NewServer(s.HTTP, checks, tel.Registry),
	}
	c.front.requests.Register("compute", tel.Registry)
	checks.Require("serving", c.front.check)
	checks.Require("workers", func() error {
		if now, _ := workers.Lost(); now > mostLost*s.Workers {
			return fmt.Errorf("%d workers have not returned from their jobs: restart the node", now)
		}
		return nil
	})
	checks.Report("models", stored.Check)
	if stores != nil {
		checks.Report("mesh", stores.CheckMesh)
	}
	c.front.service.About = c.about(s, checks)
	c.Add("telemetry", tel)
	c.Add("http", c.http)
	if identity != nil {
		checks.Report("mesh certificate", identity.Check)
		c.Add("mesh certificate", identity)
	}
	c.Add("profiles", health.NewProfiles(s.PprofAddr, tel.Log))
	if stores != nil {
		c.Add("store client", stores)
	}
	c.Add("models", stored)
	c.Add("workers", workers)
	c.Add("front", c.front)
	return c, nil
}

// newModels makes what models come from; without stores the client is nil, and there are none.
func newModels(s Settings, belongs *meshid.Identity, identity *tierauth.Identity, tel *telemetry.Telemetry) (*models.Models, *storeclient.Client) {
	cfg := models.Config{MaxBytes: s.ModelMemory, Log: tel.Log, Registry: tel.Registry}
	if len(s.Stores) == 0 {
		return models.New(cfg), nil
	}
	client := storeclient.New(storeclient.Config{Seeds: s.Stores, DialOptions: []grpc.DialOption{identity.DialOption(tierauth.Store), tel.DialOption()}, Mesh: belongs, Log: tel.Log})
	cfg.Store = client
	return models.New(cfg), client
}

// about says who this is.
func (c *Compute) about(s Settings, checks *health.Checks) func(*meshv1.DescribeResponse) {
	began := incarnation.New()
	http := sync.OnceValue(func() string { return settings.Advertised("", c.HTTPAddr()) })
	return func(d *meshv1.DescribeResponse) {
		d.Ready, _ = checks.Status()
		d.Id, d.Incarnation, d.Program, d.HttpAddress = s.ID, began, s.Version, http()
	}
}

// Addr is the address of the gRPC API.
func (c *Compute) Addr() string { return c.front.server.Addr() }

// HTTPAddr is the address of health and metrics.
func (c *Compute) HTTPAddr() string { return c.http.Addr() }

// front is the gRPC API. It is a lifecycle.Part that owns the server.
type front struct {
	listen   string
	requests *intake.Budget
	identity *tierauth.Identity // nil: plain text
	belongs  *meshid.Identity   // known where there are stores: callers of another mesh are refused
	tel      *telemetry.Telemetry
	pool     *cpupool.Pool
	service  *ranking.Service

	serving atomic.Bool
	server  *grpcserve.Server
}

func (f *front) check() error {
	if !f.serving.Load() {
		return errors.New("the node starts or stops")
	}
	return nil
}

// Start listens and serves.
func (f *front) Start(ctx context.Context) error {
	var err error
	if f.server, err = grpcserve.Listen(ctx, f.listen); err != nil {
		return err
	}
	f.server.Serve(grpcserve.Config{
		MinPing:  5 * time.Second,
		TLS:      f.identity.TLS(),
		Options:  append(append(append(f.identity.ServerOptions(), f.belongs.ServerOptions()...), f.tel.ServerOption()), intake.ServerOptions()...),
		Around:   f.requests.Around,
		Register: func(r grpc.ServiceRegistrar) { meshv1.RegisterComputeServiceServer(r, f.service) },
	})
	f.serving.Store(true)
	f.tel.Log.Info("compute node is serving", "grpc", f.server.Addr())
	return nil
}

// Stop is a planned one: not ready, GOAWAY, refusals for what is new, answers for what is under
// way. Jobs that have not ended when two thirds of the time are over are answered UNAVAILABLE.
func (f *front) Stop(ctx context.Context) error {
	f.serving.Store(false)
	f.server.Leave()
	f.pool.Drain()
	f.service.Drain()
	patience, cancel := grpcserve.Patience(ctx)
	defer cancel()
	defer context.AfterFunc(patience, f.pool.Abandon)()
	return f.server.Stop(ctx)
}
