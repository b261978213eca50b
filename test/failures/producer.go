package failures

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // clients that look at the health of routers
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/closing"
)

// Pace of one producer: a durable message every so often, an ephemeral one half as often.
const pace = 20 * time.Millisecond

// closeWithin bounds how long a producer waits for answers at the end.
const closeWithin = 3 * time.Minute

// Namespaces of what is published: one that comes with every mesh, and two that are made at run
// time, of which a process that begins again knows nothing.
const (
	builtin = "room"
	durable = "failures"
	live    = "live"
)

// producer publishes to a durable topic and an ephemeral one of its own, until it is told to end.
type producer struct {
	book
	number int
	routes routes
	ended  chan error
}

func (p *producer) durable() string {
	return fmt.Sprintf("%s/failures/%d", []string{builtin, durable}[p.number%2], p.number)
}

func (p *producer) ephemeral() string { return fmt.Sprintf("%s/failures/%d", live, p.number) }

// routes knows where a producer's connections are: the oldest one is its stream's, others ask for
// health.
type routes struct {
	mu    sync.Mutex
	conns []*routed
}

type routed struct {
	net.Conn
	addr string
	of   *routes
}

func (r *routes) dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := &routed{Conn: c, addr: addr, of: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, conn)
	return conn, nil
}

func (c *routed) Close() error {
	c.of.mu.Lock()
	for i, other := range c.of.conns {
		if other == c {
			c.of.conns = append(c.of.conns[:i], c.of.conns[i+1:]...)
			break
		}
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// where is the address of the router that the producer publishes through; "": none.
func (p *producer) where() string {
	p.routes.mu.Lock()
	defer p.routes.mu.Unlock()
	if len(p.routes.conns) == 0 {
		return ""
	}
	return p.routes.conns[0].addr
}

// stream publishes with the SDK.
func (p *producer) stream(ctx context.Context, routers []string) {
	sdk, err := pushmesh.NewProducer(pushmesh.ProducerConfig{
		Addrs: routers, MaxBackoff: 500 * time.Millisecond, Buffer: 1 << 16,
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(p.routes.dial)},
	})
	if err != nil {
		p.ended <- err
		return
	}
	p.each(ctx, func(o *offer) error {
		return sdk.PublishAsync(context.WithoutCancel(ctx), pushmesh.Message{Topic: o.topic, Payload: payload(o.id), Ephemeral: !o.durable}, func(r pushmesh.Result, err error) {
			p.answered(o, r.Epoch, r.Seq, r.Duplicate, err)
		})
	})
	p.ended <- closing.Within(sdk, closeWithin)
}

// each offers one message after the other until ctx ends.
func (p *producer) each(ctx context.Context, publish func(*offer) error) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		kinds := []bool{true}
		if n%2 == 0 {
			kinds = append(kinds, false)
		}
		for _, durable := range kinds {
			topic := p.ephemeral()
			if durable {
				topic = p.durable()
			}
			o := p.offer(p.number, topic, durable)
			if err := publish(o); err != nil {
				p.answered(o, 0, 0, false, err)
			}
		}
	}
}

// balanced makes a plain gRPC connection that spreads calls over all routers whose health says that
// they serve what is asked for: "", all of it.
func balanced(routers []string, what string) (*grpc.ClientConn, error) {
	all := manual.NewBuilderWithScheme("failures")
	var state resolver.State
	for _, addr := range routers {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: addr}}})
	}
	all.InitialState(state)
	return grpc.NewClient("failures:///routers", grpc.WithResolvers(all), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":%q}}`, what)))
}

// calls publishes by plain calls, each repeated with its dedupe key until it is answered; ephemeral
// ones are not repeated.
func (p *producer) calls(ctx context.Context, routers []string) {
	conn, err := balanced(routers, "")
	if err != nil {
		p.ended <- err
		return
	}
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewPublishServiceClient(conn)
	var open sync.WaitGroup
	p.each(ctx, func(o *offer) error {
		open.Go(func() { p.call(context.WithoutCancel(ctx), api, o) })
		return nil
	})
	open.Wait()
	p.ended <- nil
}

func (p *producer) call(ctx context.Context, api pushmeshv1.PublishServiceClient, o *offer) {
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	req := &pushmeshv1.PublishRequest{Topic: o.topic, Payload: payload(o.id)}
	if o.durable {
		req.DedupeKey = fmt.Sprint(o.id)
	}
	for {
		p.tried(o)
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		res, err := api.Publish(try, req)
		cancel()
		if err == nil || !o.durable || ctx.Err() != nil {
			p.answered(o, res.GetEpoch(), res.GetSeq(), res.GetDuplicate(), err)
			return
		}
		pause := 50 * time.Millisecond
		if e := code.From(err); e.RetryAfter > 0 {
			pause = min(e.RetryAfter, time.Second)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
