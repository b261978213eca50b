// Package bus is what the tiers use of NATS: publish, subscribe, request, and word of every gap. It
// names the subjects.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/rawconn"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// MaxMessage is the most bytes put into one NATS message; the server's default limit is 1 MiB.
const MaxMessage = 1 << 20

// connectWithin bounds an attempt to connect to a server.
const connectWithin = 2 * time.Second

// flushWithin bounds the last flush, whatever the context allows.
const flushWithin = 5 * time.Second

// Config of a connection.
type Config struct {
	// URL of one or more servers, separated by commas.
	URL string
	// Name by which the server knows the connection.
	Name string
	// Mesh is the one whose subjects are used. Until it is known nothing is sent and nothing comes,
	// as without a server.
	Mesh *meshid.Identity
	Log  *slog.Logger
	// Secure is how the servers are made sure of, and what they are shown.
	Secure []nats.Option
}

// Bus is one NATS connection that reconnects for ever. It is a lifecycle.Part, safe for concurrent
// use. Start succeeds without a server: it connects when there is one. It owns a goroutine that
// waits for the mesh to be known.
type Bus struct {
	cfg   Config
	conn  *nats.Conn
	group *lifecycle.Group
	// begun is conn for those that may ask before Start has returned.
	begun atomic.Pointer[nats.Conn]
	drops drops
	// connected as the connection's callbacks tell: nats.go holds its lock for as long as it waits
	// for a server that takes connections and says nothing, so that whoever asks or publishes
	// meanwhile would wait for seconds.
	connected atomic.Bool
	// stopping is set by Stop.
	stopping atomic.Bool
	// joined is what subjects are called in the mesh; nil: it is not known yet.
	joined atomic.Pointer[subjects]

	entering sync.Mutex
	waiting  []*entry // subscriptions to be made once the mesh is known

	mu    sync.Mutex
	onGap []func()
}

// New makes a bus that is not connected yet.
func New(cfg Config) *Bus {
	if cfg.Mesh == nil {
		cfg.Mesh = meshid.New("")
	}
	return &Bus{cfg: cfg}
}

// OnGap adds a function called, in a goroutine of the connection, whenever messages may have been
// missed: after a reconnect and after a slow-consumer drop. It must not block.
func (b *Bus) OnGap(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onGap = append(b.onGap, f)
}

func (b *Bus) gap(why wirev1.Code) {
	b.drops.gap(why)
	b.mu.Lock()
	fs := b.onGap
	b.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

// Start connects, or begins to try.
func (b *Bus) Start(context.Context) error {
	conn, err := nats.Connect(b.cfg.URL, append([]nats.Option{
		nats.Name(b.cfg.Name),
		nats.SetCustomDialer(&rawconn.Dialer{Dialer: net.Dialer{Timeout: connectWithin}}),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1), // what can't be sent now is an error now
		nats.PingInterval(time.Second),
		nats.MaxPingsOutstanding(2),
		nats.Timeout(connectWithin),
		nats.FlusherTimeout(2 * time.Second), // a server that takes no bytes for so long is gone
		nats.ConnectHandler(func(*nats.Conn) {
			b.connected.Store(true)
			b.gap(wirev1.Code_CODE_OK)
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			b.connected.Store(true)
			b.cfg.Log.Info("NATS: connected again")
			b.gap(wirev1.Code_CODE_UNAVAILABLE)
		}),
		nats.ClosedHandler(func(*nats.Conn) { b.connected.Store(false) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.connected.Store(false)
			if !b.stopping.Load() { // a planned stop is no news
				b.cfg.Log.Warn("NATS: the connection is lost", "error", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.cfg.Log.Warn("NATS: asynchronous error", "error", err, "subject", subject)
			if errors.Is(err, nats.ErrSlowConsumer) {
				b.gap(wirev1.Code_CODE_OVERLOADED)
			}
		}),
	}, b.cfg.Secure...)...)
	if err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	b.conn = conn
	b.begun.Store(conn)
	// The callback may come later than the first question; one about a disconnect may have come
	// sooner.
	if conn.IsConnected() {
		b.connected.Store(true)
		b.connected.Store(conn.IsConnected())
	}
	b.group = lifecycle.NewGroup(context.Background())
	if mesh, known := b.cfg.Mesh.Mesh(); known {
		return b.join(mesh)
	}
	b.group.Go("bus-join", b.awaitMesh)
	return nil
}

// Stop flushes what was published and closes the connection.
func (b *Bus) Stop(ctx context.Context) error {
	defer b.conn.Close()
	b.stopping.Store(true)
	if err := b.group.Stop(ctx); err != nil {
		return err
	}
	if !b.Connected() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushWithin) // nats.go wants a deadline
	defer cancel()
	return b.Flush(ctx)
}

// Connected reports whether there is a server now, and the mesh is known. It never waits.
func (b *Bus) Connected() bool { return b.reached() && b.joined.Load() != nil }

// reached reports whether there is a server now.
func (b *Bus) reached() bool { return b.connected.Load() && b.begun.Load() != nil }

// errAway is what can't be sent now.
func errAway(what string) error {
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, 500*time.Millisecond, "nats: "+what+"not connected")
}

// Check is a health check: nil while connected.
func (b *Bus) Check() error {
	switch {
	case !b.reached():
		return errors.New("not connected to NATS")
	case b.joined.Load() == nil:
		return errors.New("connected to NATS, but no store has answered yet which mesh this process belongs to")
	}
	return nil
}

// Register adds to a process's metrics what is known of the servers, and what of their messages did
// not get through.
func (b *Bus) Register(reg prometheus.Registerer) {
	reg.MustRegister(&b.drops)
	for name, g := range map[string]struct {
		help string
		of   func(*nats.Conn) float64
	}{
		"max_payload_bytes": {"Largest message that the NATS server accepts.", func(c *nats.Conn) float64 { return float64(c.MaxPayload()) }},
		"servers":           {"NATS servers that this process knows: the configured ones and those of their cluster.", func(c *nats.Conn) float64 { return float64(len(c.Servers())) }},
	} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pushmesh_nats_" + name, Help: g.help + " 0: not connected."}, func() float64 {
			if !b.Connected() {
				return 0
			}
			return g.of(b.begun.Load())
		}))
	}
}

// Publish hands data to the connection's buffer; UNAVAILABLE without a server. data may be reused
// afterwards.
func (b *Bus) Publish(subject string, data []byte) error {
	if !b.Connected() {
		return errAway("")
	}
	return b.send(b.joined.Load().of(subject), data)
}

func (b *Bus) send(subject string, data []byte) error {
	if err := b.conn.Publish(subject, data); err != nil {
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, 500*time.Millisecond, "nats: "+err.Error())
	}
	return nil
}

// Flush waits until the server has everything published so far.
// Where there is no server any more, there is nobody to wait for: that is no error.
func (b *Bus) Flush(ctx context.Context) error {
	if !b.Connected() {
		return nil
	}
	err := b.conn.FlushWithContext(ctx)
	if errors.Is(err, nats.ErrConnectionClosed) {
		// it went meanwhile; the callbacks that say so may come later
		return nil
	}
	if err != nil && b.Connected() {
		return fmt.Errorf("nats: flush: %w", err)
	}
	return nil
}

// ErrNobody says that a request reached nobody.
var ErrNobody = errors.New("nothing answers requests on this subject")

// Request asks and waits for one answer. Nobody there (also ErrNobody), no server and no answer in
// time are UNAVAILABLE.
func (b *Bus) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if !b.Connected() {
		return nil, errAway("request: ")
	}
	m, err := b.conn.RequestWithContext(ctx, b.joined.Load().of(subject), data)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("%w: %w", ErrNobody, code.Retry(wirev1.Code_CODE_UNAVAILABLE, 500*time.Millisecond, "nats: request: "+err.Error()))
	}
	if err != nil {
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, 500*time.Millisecond, "nats: request: "+err.Error())
	}
	return m.Data, nil
}
