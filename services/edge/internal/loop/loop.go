// Package loop runs one event loop of the edge: a goroutine, a poller with a listener, and the hub
// that decides. It moves bytes between sockets and the hub and never waits for anything but its
// sockets. While there is something to do the goroutine keeps its thread; once there is not it
// waits in Go's own poller (see poll.Epoll), and may go on in another.
package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/eventring"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/refusals"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/admission"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/budget"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/mailbox"
	"github.com/pushmesh/pushmesh/services/edge/internal/permissions"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/upgrade"
)

// Limits of a loop.
type Limits = delivery.Limits

// Features of this edge, as Welcome lists them.
var Features = delivery.Features

// Config of a loop.
type Config struct {
	Index     uint16
	EdgeID    string
	Mesh      exchange.Mesh
	PolicyFor func(topic string) *policy.Policy
	// Unknown and Refuses as delivery.Config has them.
	Unknown func() *code.Error
	Refuses func(filter string) *code.Error
	Limits  Limits
	// Clock says what time it is in the mesh at a time of this process's; it must not block. nil:
	// the same.
	Clock func(time.Time) time.Time
	// Principals says who comes in.
	Principals principals.Config
	// Permissions is asked what users may do beyond their rights; nil: nobody is.
	Permissions permissions.Asker
	// Door counts the connections of all loops of the edge; nil: one without limits.
	Door *admission.Door
	// ListenAddr is shared by all loops of the edge.
	ListenAddr string
	// Buffers of subscribers' sockets.
	Buffers poll.Buffers
	// QueueMemory is what the queues of all loops together may hold, and the kernel for stalled
	// sockets; 0: the limits' for each loop.
	QueueMemory int
	budget      *budget.Share
	// Poller says who tells what happens to sockets; "" is auto.
	Poller PollerKind
	// Send says how to send; "" is auto.
	Send SendMode
	// Events takes what happens on each loop, by its index; empty: nobody wants it.
	Events []*eventring.Ring
	// Refusals logs some of what is refused for who somebody is; nil: none.
	Refusals *refusals.Log
	// CPUs to pin loops to, each loop with a thread of its own: loop i to the i-th, around again
	// where there are more loops. Empty: not pinned.
	CPUs []int
	// Rates of each connection but those of backends.
	Rates Rates
	// FrameMemory is how many bytes of frames and TLS records may be kept that have not come whole;
	// 0: no limit.
	FrameMemory int
	// Kept bounds what each connection may have kept beside its queue, and all of a loop together.
	Kept kept.Config
	// Handshakes shakes hands with clients that begin with TLS; nil: they are refused.
	Handshakes *handshake.Pool
	// Web says which requests become WebSockets; nil: those of the same host.
	Web *upgrade.Policy
	// ShedLag is how late the loop may be for a second before it refuses newcomers; 0: it never
	// does.
	ShedLag time.Duration
	// Unhealthy is what becomes of links that are; "" is off.
	Unhealthy linkhealth.Mode
	// Mailbox bounds; zero values take the defaults.
	Mailbox mailbox.Bounds
}

// Loop is a lifecycle.Part and an exchange.Loop. It owns its goroutine, its descriptors and its
// connections.
type Loop struct {
	cfg      Config
	poller   poll.Poller
	door     *admission.Door
	gate     *linkhealth.Gate
	sender   poll.Sender // used by the loop's goroutine alone
	noRing   error       // why the sender is not io_uring's
	box      *mailbox.Box
	done     chan struct{}
	stop     atomic.Bool
	started  time.Time
	lastTurn atomic.Int64 // as now
	snapshot atomic.Pointer[Stats]
	loopState
}

// NewAll makes n loops that share a port; they differ in their index. It binds the port, so that
// Addr is known; connections are taken from Start on.
func NewAll(cfg Config, n int) ([]*Loop, error) {
	now := time.Now() // what is shared by the loops needs one clock
	pollers, err := openPollers(cfg.Poller, cfg.ListenAddr, cfg.Buffers, n)
	if err != nil {
		return nil, err
	}
	var loops []*Loop
	gate := linkhealth.NewGate(n)
	if cfg.Door == nil {
		cfg.Door = admission.New(admission.Limits{})
	}
	pool := budget.New(int64(cfg.QueueMemory), n)
	for i, p := range pollers {
		cfg.Index = uint16(i)
		if cfg.QueueMemory > 0 {
			cfg.budget = pool.Share(i)
		}
		loops = append(loops, newLoop(cfg, p, now, gate))
	}
	return loops, nil
}

func newLoop(cfg Config, p poll.Poller, started time.Time, gate *linkhealth.Gate) *Loop {
	if cfg.Clock == nil {
		cfg.Clock = func(now time.Time) time.Time { return now }
	}
	if cfg.Mailbox == (mailbox.Bounds{}) {
		cfg.Mailbox = mailbox.Bounds{Batches: 4096, Bytes: 64 << 20, Others: 1 << 20}
	}
	cfg.Web = cmp.Or(cfg.Web, &upgrade.Policy{})
	cfg.FrameMemory = cmp.Or(cfg.FrameMemory, math.MaxInt)
	l := &Loop{cfg: cfg, poller: p, door: cfg.Door, gate: gate, done: make(chan struct{}), started: started}
	l.box = mailbox.New(cfg.Mailbox, p.Wake)
	var ring *eventring.Ring
	if int(cfg.Index) < len(cfg.Events) {
		ring = cfg.Events[cfg.Index]
	}
	l.hub = delivery.New(delivery.Config{
		Events: ring, Refusals: cfg.Refusals, Budget: cfg.budget, Kept: cfg.Kept,
		Loop: cfg.Index, EdgeID: cfg.EdgeID, Mesh: cfg.Mesh, PolicyFor: cfg.PolicyFor, Unknown: cfg.Unknown, Refuses: cfg.Refuses, Limits: cfg.Limits, Principals: cfg.Principals, Permissions: cfg.Permissions, LiveDone: l.box.Done,
		Unhealthy: cfg.Unhealthy, Path: l.path, Gate: gate, Origin: l.origin,
	})
	l.buf = make([]byte, readSize)
	l.partTime, l.periodAt = partTime, periodAt
	l.shed.limit = cfg.ShedLag
	l.publishStats()
	l.lastTurn.Store(l.now())
	return l
}

// Addr is the address that the loop listens on.
func (l *Loop) Addr() string { return l.poller.Addr().String() }

// Post implements exchange.Loop.
func (l *Loop) Post(e exchange.Event) bool { return l.box.Put(e) }

// Start runs the loop in a goroutine of its own.
func (l *Loop) Start(context.Context) error {
	l.tickDue = l.now() + int64(delivery.Tick) // taken first, so that no tick seems to come early
	if err := errors.Join(l.poller.Listen(), l.poller.Tick(delivery.Tick)); err != nil {
		return fmt.Errorf("loop %d: %w", l.cfg.Index, err)
	}
	opened := make(chan error)
	go pprof.Do(context.Background(), pprof.Labels("goroutine", "edge-loop"), func(context.Context) {
		defer close(l.done)
		unpin, err := l.pin()
		defer unpin()
		if err == nil {
			l.sender, l.noRing, err = openSender(l.cfg.Send)
		}
		if err == nil {
			l.publishStats()
		}
		if opened <- err; err == nil {
			l.run()
		}
	})
	if err := <-opened; err != nil {
		return fmt.Errorf("loop %d: %w", l.cfg.Index, err)
	}
	return nil
}

// pin keeps the loop's goroutine on a thread of its own on one CPU, where that is asked for.
func (l *Loop) pin() (unpin func(), err error) {
	n := len(l.cfg.CPUs)
	if n == 0 {
		return func() {}, nil
	}
	if unpin, err = poll.Pin(l.cfg.CPUs[int(l.cfg.Index)%n]); err != nil {
		return func() {}, err
	}
	return unpin, nil
}

// Stop ends the loop and closes what connections are left; post Drain first for a planned end.
func (l *Loop) Stop(ctx context.Context) error {
	l.stop.Store(true)
	l.poller.Wake()
	select {
	case <-l.done:
	case <-ctx.Done():
		return fmt.Errorf("loop %d still runs: %w", l.cfg.Index, ctx.Err())
	}
	return l.poller.Close()
}

// now is nanoseconds since the loop was made, monotonic.
func (l *Loop) now() int64 { return int64(time.Since(l.started)) }

// stalled is how long a loop may not have turned before the edge is not ready.
const stalled = 5 * time.Second

// Check is for /readyz: an error where the loop has not turned for 5 s.
func (l *Loop) Check() error {
	if d := time.Since(l.LastTurn()); d > stalled {
		return fmt.Errorf("loop %d has been stalled for %v", l.cfg.Index, d.Round(time.Second))
	}
	return nil
}

// LastTurn is when the loop turned last. It turns at least every 100 ms. The time has a monotonic
// reading: how long ago that was does not depend on the host's clock.
func (l *Loop) LastTurn() time.Time { return l.started.Add(time.Duration(l.lastTurn.Load())) }
