// Package loop runs one event loop of the edge: an OS thread of its own, an epoll instance, a listener, and the hub that decides. It moves
// bytes between sockets and the hub and never waits for anything but its sockets.
package loop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/hub"
	"github.com/pushmesh/pushmesh/services/edge/internal/mailbox"
	"github.com/pushmesh/pushmesh/services/edge/internal/poll"
)

// Limits of a loop; zero values take the defaults.
type Limits = hub.Limits

// Features of this edge, as Welcome lists them.
var Features = hub.Features

// Config of a loop.
type Config struct {
	Index     uint16
	EdgeID    string
	Mesh      exchange.Mesh
	PolicyFor func(topic string) *policy.Policy
	Limits    Limits
	// ListenAddr is shared by all loops of the edge; with port 0 the others are given the first one's Addr.
	ListenAddr string
	// Send says how to send; "" is auto.
	Send SendMode
	// Mailbox bounds; zero values take the defaults.
	Mailbox mailbox.Bounds
}

// Loop is a lifecycle.Part and an exchange.Loop. It owns its thread, its descriptors and its connections.
type Loop struct {
	cfg      Config
	addr     netip.AddrPort
	poller   *poll.Poller
	listener int
	waker    int
	ticker   int
	sender   poll.Sender // made and closed by the loop's thread
	noRing   error       // why the sender is not io_uring's
	box      *mailbox.Box
	done     chan struct{}
	stop     atomic.Bool
	started  time.Time
	lastTurn atomic.Int64 // Unix nanoseconds
	snapshot atomic.Pointer[Stats]
	loopState
}

// New binds the listener, so that Addr is known; connections are taken from Start on.
func New(cfg Config) (*Loop, error) {
	if cfg.Mailbox == (mailbox.Bounds{}) {
		cfg.Mailbox = mailbox.Bounds{Batches: 4096, Bytes: 64 << 20, Others: 1 << 20}
	}
	l := &Loop{cfg: cfg, listener: -1, waker: -1, ticker: -1, done: make(chan struct{}), started: time.Now()}
	if err := l.open(); err != nil {
		l.closeAll()
		return nil, fmt.Errorf("loop %d: %w", cfg.Index, err)
	}
	l.box = mailbox.New(cfg.Mailbox, func() { poll.Wake(l.waker) })
	l.hub = hub.New(hub.Config{
		Loop: cfg.Index, EdgeID: cfg.EdgeID, Mesh: cfg.Mesh, PolicyFor: cfg.PolicyFor, Limits: cfg.Limits, LiveDone: l.box.Done,
	})
	l.buf = make([]byte, readSize)
	l.publishStats()
	l.lastTurn.Store(time.Now().UnixNano())
	return l, nil
}

func (l *Loop) open() (err error) {
	if l.poller, err = poll.New(pollEvents); err != nil {
		return err
	}
	if l.waker, err = poll.NewWaker(); err != nil {
		return err
	}
	if l.listener, l.addr, err = poll.Bind(context.Background(), l.cfg.ListenAddr); err != nil {
		return err
	}
	return l.poller.Add(l.waker, slotWaker, 0)
}

// NewAll makes n loops that share a port; they differ in their index.
func NewAll(cfg Config, n int) ([]*Loop, error) {
	var loops []*Loop
	for i := range n {
		cfg.Index = uint16(i)
		l, err := New(cfg)
		if err != nil {
			for _, l := range loops {
				l.closeAll()
			}
			return nil, err
		}
		cfg.ListenAddr = l.Addr()
		loops = append(loops, l)
	}
	return loops, nil
}

// Addr is the address that the loop listens on.
func (l *Loop) Addr() string { return l.addr.String() }

// Post implements exchange.Loop.
func (l *Loop) Post(e exchange.Event) bool { return l.box.Put(e) }

// Start runs the loop on a thread of its own.
func (l *Loop) Start(context.Context) error {
	if err := poll.Listen(l.listener); err != nil {
		return fmt.Errorf("loop %d: %w", l.cfg.Index, err)
	}
	l.tickDue = l.now() + int64(hub.Tick) // taken first, so that no tick seems to come early
	var err error
	if l.ticker, err = poll.NewTicker(hub.Tick); err != nil {
		return fmt.Errorf("loop %d: %w", l.cfg.Index, err)
	}
	if err := errors.Join(l.poller.Add(l.listener, slotListener, 0), l.poller.Add(l.ticker, slotTicker, 0)); err != nil {
		return fmt.Errorf("loop %d: %w", l.cfg.Index, err)
	}
	opened := make(chan error)
	go pprof.Do(context.Background(), pprof.Labels("goroutine", "edge-loop"), func(context.Context) {
		runtime.LockOSThread()
		defer close(l.done)
		var err error
		l.sender, l.noRing, err = openSender(l.cfg.Send)
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

// Stop ends the loop and closes what connections are left; post Drain first for a planned end.
func (l *Loop) Stop(ctx context.Context) error {
	l.stop.Store(true)
	poll.Wake(l.waker)
	select {
	case <-l.done:
	case <-ctx.Done():
		return fmt.Errorf("loop %d still runs: %w", l.cfg.Index, ctx.Err())
	}
	l.closeAll()
	return nil
}

func (l *Loop) closeAll() {
	for _, fd := range []int{l.listener, l.waker, l.ticker} {
		if fd >= 0 {
			poll.Close(fd)
		}
	}
	if l.poller != nil {
		_ = l.poller.Close()
	}
}

// now is nanoseconds since the loop was made, monotonic.
func (l *Loop) now() int64 { return int64(time.Since(l.started)) }

// stalled is how long a loop may not have turned before the edge is not ready.
const stalled = 5 * time.Second

// Check is for /readyz: an error where the loop has not turned for 5 s.
func (l *Loop) Check() error {
	if d := time.Since(l.LastTurn()); d > stalled {
		return fmt.Errorf("loop %d has not turned for %v", l.cfg.Index, d.Round(time.Second))
	}
	return nil
}

// LastTurn is when the loop turned last. It turns at least every 100 ms.
func (l *Loop) LastTurn() time.Time { return time.Unix(0, l.lastTurn.Load()) }
