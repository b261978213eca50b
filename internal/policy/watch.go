package policy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// refreshEvery is the pace of asking while stores say with every beat which version there is.
const refreshEvery = 5 * time.Second

// pollEvery is the pace while no beat says so: it bounds how long a change stays unseen without NATS.
const pollEvery = 500 * time.Millisecond

// beatsWithin is how old the last beat may be; they come every 500 ms.
const beatsWithin = 1500 * time.Millisecond

// retryEvery is the pace until the store has answered for the first time.
const retryEvery = 250 * time.Millisecond

// askTimeout bounds one question to the store.
const askTimeout = 2 * time.Second

// Lister is what Watch needs of the store.
type Lister interface {
	ListNamespaces(ctx context.Context, req *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error)
}

// Watch holds the policies that apply now. It is a lifecycle.Part, safe for concurrent use; it owns one goroutine
// and a NATS subscription. Without a store it goes on with what it has, at first the built-in policies.
type Watch struct {
	from    Lister
	bus     *bus.Bus // nil: by the clock alone
	log     *slog.Logger
	kick    chan struct{}
	table   atomic.Pointer[Table]
	fresh   atomic.Bool
	version atomic.Uint64 // of the table; written by the goroutine alone
	heard   atomic.Int64  // when a beat named a version last, Unix time in nanoseconds
	group   *lifecycle.Group
	leave   func()

	mu       sync.Mutex
	onChange []func(*Table)
}

// NewWatch makes a watch that holds the built-in policies. The bus, if any, must be started before the watch.
func NewWatch(from Lister, b *bus.Bus, log *slog.Logger) *Watch {
	w := &Watch{from: from, bus: b, log: log, kick: make(chan struct{}, 1), leave: func() {}}
	w.table.Store(NewTable(nil))
	return w
}

// Table is what applies now; never nil.
func (w *Watch) Table() *Table { return w.table.Load() }

// Version of the set that applies now; 0: the store has not answered yet.
func (w *Watch) Version() uint64 { return w.version.Load() }

// OnChange adds a function called with each new table, one call at a time, in the watch's goroutine. It must not block.
func (w *Watch) OnChange(f func(*Table)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onChange = append(w.onChange, f)
}

// Check is a health check: nil once the store has answered.
func (w *Watch) Check() error {
	if w.fresh.Load() {
		return nil
	}
	return errors.New("no namespaces from the store yet: the built-in ones apply")
}

// Refresh asks the store soon.
func (w *Watch) Refresh() {
	select {
	case w.kick <- struct{}{}:
	default: // one is wanted already
	}
}

// Start begins to watch; it does not wait for the store.
func (w *Watch) Start(context.Context) error {
	if w.bus != nil {
		leave, err := w.bus.Subscribe(bus.NamespacesChanged, 64, func([]byte, func([]byte) error) { w.Refresh() })
		if err != nil {
			return err
		}
		beats, err := w.bus.Subscribe(bus.StoreBeat, 1024, func(data []byte, _ func([]byte) error) { w.beat(data) })
		if err != nil {
			leave()
			return err
		}
		w.leave = func() {
			leave()
			beats()
		}
		w.bus.OnGap(w.Refresh)
	}
	w.group = lifecycle.NewGroup(context.Background())
	w.group.Go("policy-watch", w.run)
	return nil
}

// Stop ends the watch; the table stays.
func (w *Watch) Stop(ctx context.Context) error {
	w.leave()
	return w.group.Stop(ctx)
}

func (w *Watch) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var asked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-timer.C:
			if !w.due(now, asked) {
				timer.Reset(pollEvery)
				continue
			}
		case <-w.kick:
		}
		asked = time.Now()
		if err := w.ask(ctx); err != nil && ctx.Err() == nil {
			w.log.Debug("namespaces not refreshed", "error", err)
		}
		if w.fresh.Load() {
			timer.Reset(pollEvery)
		} else {
			timer.Reset(retryEvery)
		}
	}
}

// beat hears which version a store knows of: word of a change that was lost is made up for.
func (w *Watch) beat(data []byte) {
	b := &meshv1.StoreBeat{}
	if proto.Unmarshal(data, b) != nil || b.GetNamespacesVersion() == 0 {
		return
	}
	w.heard.Store(time.Now().UnixNano())
	if b.GetNamespacesVersion() > w.version.Load() {
		w.Refresh()
	}
}

// due says whether the store is asked again without any reason to: seldom while beats come that would give one.
func (w *Watch) due(now, asked time.Time) bool {
	silent := w.bus == nil || !w.bus.Connected() || now.Sub(time.Unix(0, w.heard.Load())) > beatsWithin
	return silent || !w.fresh.Load() || now.Sub(asked) >= refreshEvery
}

func (w *Watch) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := w.from.ListNamespaces(ctx, &meshv1.ListNamespacesRequest{HaveVersion: w.version.Load()})
	if err != nil {
		return err
	}
	if w.fresh.Load() && resp.GetVersion() == w.version.Load() {
		return nil
	}
	table := NewTable(w.sound(resp.GetNamespaces()))
	w.table.Store(table)
	w.version.Store(resp.GetVersion())
	w.fresh.Store(true)
	w.mu.Lock()
	fs := w.onChange
	w.mu.Unlock()
	for _, f := range fs {
		f(table)
	}
	return nil
}

// sound leaves out what this version of the program refuses: it came from a newer one.
func (w *Watch) sound(all []*pushmeshv1.Namespace) []*pushmeshv1.Namespace {
	var ok []*pushmeshv1.Namespace
	for _, ns := range all {
		if err := Check(ns); err != nil {
			w.log.Error("namespace ignored", "prefix", ns.GetPrefix(), "error", err)
			continue
		}
		ok = append(ok, ns)
	}
	return ok
}
