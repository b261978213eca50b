// Package prepare asks services of users to get a resource ready for whoever is to have it next
// (policy.Prepare).
package prepare

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// mostWaiting calls of a group wait for their turn.
const mostWaiting = 10_000

// Job is one call.
type Job struct {
	// Context's end means that nobody wants to know any more.
	Context         context.Context
	Resource, Owner string
	Token           uint64
	How             *policy.Prepare
	// Done is called once, by another goroutine or within Ask, with how it ended: OK; FORBIDDEN,
	// the service refused; ACK_TIMEOUT, it was late; UNAVAILABLE, it could not be reached, or may
	// not be called (Config.Guard); INVALID_ARGUMENT, its URL is none; OVERLOADED, too many wait
	// for their turn; CANCELLED, Context or the pool ended first. It must not block.
	Done func(wirev1.Code)
}

// Config of a Pool.
type Config struct {
	// Idle [30 s] is how long an unused connection is kept.
	Idle time.Duration
	// Waiting [10,000] calls of a group wait at most for their turn.
	Waiting int
	// Guard [public addresses alone] says what may be called.
	Guard *outbound.Guard
	// Secret signs calls by HTTP; nil: none is signed.
	Secret   *outbound.Secret
	Registry prometheus.Registerer
}

// Pool is a lifecycle.Part. It makes calls, for each group so many at a time as its policy says and
// in the order in which they came. It is safe for concurrent use. It owns a goroutine for each call
// under way, and the connections.
type Pool struct {
	cfg     Config
	metrics *metrics
	web     *web
	rpc     *rpc
	runners *lifecycle.Group

	mu     sync.Mutex
	groups map[string]*group // those with calls under way
	ended  bool
}

// group is what is under way for one policy.
type group struct {
	running int
	waiting []Job
}

// New makes a pool. Stop ends it.
func New(cfg Config) *Pool {
	if cfg.Idle == 0 {
		cfg.Idle = 30 * time.Second
	}
	if cfg.Waiting == 0 {
		cfg.Waiting = mostWaiting
	}
	if cfg.Guard == nil {
		cfg.Guard = outbound.New(outbound.Config{Metric: "pushmesh_store_outbound_refused_total"})
	}
	return &Pool{
		cfg: cfg, metrics: newMetrics(cfg.Registry), web: newWeb(cfg.Guard, cfg.Secret, cfg.Idle), rpc: newRPC(cfg.Guard, cfg.Idle),
		runners: lifecycle.NewGroup(context.Background()), groups: map[string]*group{},
	}
}

// Start makes it a lifecycle.Part; it works without.
func (p *Pool) Start(context.Context) error { return nil }

// Stop ends the calls under way and closes the connections.
func (p *Pool) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	err := p.runners.Stop(ctx)
	p.web.close()
	p.rpc.close()
	return err
}

// Ask makes a call when it is its turn. It never blocks.
func (p *Pool) Ask(j Job) {
	if c := p.take(j); c != wirev1.Code_CODE_OK {
		p.done(j, c)
	}
}

// take begins a call, or has it wait; another code than OK: neither.
func (p *Pool) take(j Job) wirev1.Code {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[j.How.Group]
	if g == nil {
		g = &group{}
	}
	switch {
	case p.ended:
		return wirev1.Code_CODE_CANCELLED
	case g.running < j.How.Concurrency:
		p.groups[j.How.Group] = g
		g.running++
		p.runners.Go("claims-prepare", func(ctx context.Context) { p.run(ctx, g, j) })
	case len(g.waiting) >= p.cfg.Waiting:
		return wirev1.Code_CODE_OVERLOADED
	default:
		g.waiting = append(g.waiting, j)
		p.metrics.waiting.Inc()
	}
	return wirev1.Code_CODE_OK
}

// run makes calls of a group until none waits, or fewer may be made at a time.
func (p *Pool) run(ctx context.Context, g *group, j Job) {
	for {
		p.call(ctx, j)
		p.mu.Lock()
		if len(g.waiting) == 0 || g.running > g.waiting[0].How.Concurrency {
			if g.running--; g.running == 0 {
				delete(p.groups, j.How.Group)
			}
			p.mu.Unlock()
			return
		}
		j, g.waiting[0] = g.waiting[0], Job{}
		g.waiting = g.waiting[1:]
		p.metrics.waiting.Dec()
		p.mu.Unlock()
	}
}

// call makes one call. The deadline begins with it, not with the wait for its turn.
func (p *Pool) call(ctx context.Context, j Job) {
	if ctx.Err() != nil || j.Context.Err() != nil {
		p.done(j, wirev1.Code_CODE_CANCELLED)
		return
	}
	begun := time.Now()
	late, cancel := context.WithTimeout(ctx, j.How.Deadline)
	defer cancel()
	defer context.AfterFunc(j.Context, cancel)()
	ask := p.web.ask
	if isRPC(j.How.URL) {
		ask = p.rpc.ask
	}
	code := ask(late, j.How.URL, &pushmeshv1.PrepareRequest{Resource: j.Resource, Owner: j.Owner, Token: j.Token})
	switch {
	case code == wirev1.Code_CODE_OK:
	case ctx.Err() != nil || j.Context.Err() != nil:
		code = wirev1.Code_CODE_CANCELLED
	case late.Err() != nil:
		code = wirev1.Code_CODE_ACK_TIMEOUT
	}
	p.metrics.seconds.Observe(time.Since(begun).Seconds())
	p.done(j, code)
}

func (p *Pool) done(j Job, c wirev1.Code) {
	p.metrics.ended(c)
	j.Done(c)
}
