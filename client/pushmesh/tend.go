package pushmesh

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/client/internal/health"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
)

const (
	// moveWithin is how long a stream that is to be left waits for answers.
	moveWithin = 2 * time.Second
	// sickFor is how long a router may refuse all of a topic before another one is tried; each
	// further time it is twice as long, maxHops times: a store that is away is away for all
	// routers.
	sickFor = time.Second
	maxHops = 5
)

// moving is a stream's end because of another router that is to be gone to.
type moving struct {
	to reconnect.Place
	by time.Time
}

func (m *moving) Error() string { return "moving to the router at " + m.to.Addr }

// tend looks after the router of a stream, as long as ctx: it leaves one that hangs, and one that
// is not ready, refuses, or has been stayed with for long, as soon as others say that they are
// ready. A router that has no health to ask for counts as ready.
func (p *Producer) tend(ctx context.Context, conn *grpc.ClientConn, others func(context.Context) []reconnect.Place) {
	changes := make(chan bool)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		health.Watch(ctx, conn, changes)
	}()
	defer func() { <-ended }()
	tick := time.NewTicker(p.cfg.SilentTimeout / 4)
	defer tick.Stop()
	long := time.Duration(math.MaxInt64)
	if p.cfg.MoveAfter > 0 {
		long = p.cfg.MoveAfter/2 + rand.N(p.cfg.MoveAfter)
	}
	stayed := time.NewTimer(long)
	defer stayed.Stop()
	ready := true
	probe := reconnect.Backoff{Low: p.cfg.MinBackoff, High: p.cfg.MaxBackoff}
	var next, asked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case ready = <-changes:
		case <-stayed.C:
			if to, ok := p.anyReady(ctx, others(ctx)); ok {
				p.leave(to)
				return
			}
			stayed.Reset(long)
		case <-tick.C:
		}
		now := time.Now()
		if (!ready || p.ailing(now)) && !now.Before(next) {
			if to, ok := p.anyReady(ctx, others(ctx)); ok {
				p.leave(to)
				return
			}
			next = time.Now().Add(probe.Next(0))
		}
		if wait := p.cfg.SilentTimeout / 2; p.silentFor(now) >= wait && now.Sub(asked) >= wait {
			asked = now
			if _, silent := health.Ask(ctx, conn, p.cfg.SilentTimeout); silent && ctx.Err() == nil {
				_ = conn.Close() // ends the stream
				return
			}
		}
	}
}

// anyReady is a router that says it is ready, in random order.
func (p *Producer) anyReady(ctx context.Context, places []reconnect.Place) (reconnect.Place, bool) {
	for _, i := range rand.Perm(len(places)) {
		conn, err := p.dial(places[i])
		if err != nil {
			continue
		}
		ready, _ := health.Ask(ctx, conn, p.cfg.SilentTimeout)
		_ = conn.Close()
		if ready {
			return places[i], true
		}
	}
	return reconnect.Place{}, false
}

// leave has the stream end once nothing flies, soon.
func (p *Producer) leave(to reconnect.Place) {
	p.mu.Lock()
	p.leaving = &moving{to: to, by: time.Now().Add(moveWithin)}
	if p.sick != nil {
		p.hops = min(p.hops+1, maxHops)
	}
	p.mu.Unlock()
	p.nudge()
}

// stay begins anew with a router.
func (p *Producer) stay() {
	p.mu.Lock()
	p.leaving, p.sick = nil, nil
	p.mu.Unlock()
}

// sicken notes a refusal that another router might not have. Called with p.mu held, as is heal.
func (p *Producer) sicken(l *lane, now time.Time) {
	if p.sick == nil {
		p.sick, p.sickAt = l, now
	}
}

func (p *Producer) heal(l *lane) {
	if p.sick == l {
		p.sick, p.hops = nil, 0
	}
}

// ailing reports whether the router has refused a topic for so long that another one is worth a
// try.
func (p *Producer) ailing(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sick != nil && len(p.sick.waiting) == 0 {
		p.sick = nil // it gave up
	}
	return p.sick != nil && now.Sub(p.sickAt) >= sickFor<<p.hops
}

// silentFor is how long the router has owed answers and given none.
func (p *Producer) silentFor(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flying == 0 {
		return 0
	}
	return now.Sub(p.heard)
}
