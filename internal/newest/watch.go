package newest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// firstWithin is how long Start waits until something is known.
	firstWithin = time.Second
	// comeBack is when a client may try again that is not taken for want of knowledge.
	comeBack = time.Second
)

// Bus is what Watch needs of NATS (bus.Bus).
type Bus interface {
	Subscribe(subject string, pending int, handle func(data []byte, respond func([]byte) error)) (unsubscribe func(), err error)
	OnGap(f func())
	Connected() bool
}

// WatchConfig says what is watched, and how a store is asked for it.
type WatchConfig[T any] struct {
	// Name is one word for logs; What goes on after "it is not known", for people: "which tokens
	// are revoked".
	Name, What string
	// Bus must be started before the watch; nil: a store is asked at intervals.
	Bus Bus
	// Changed is the subject of the notice of a change, and Beat the version that a store's beat
	// names.
	Changed string
	Beat    func(*meshv1.StoreBeat) uint64
	// Version of what is known; nil has none.
	Version func(*T) uint64
	// Ask asks a store for what is newer, and calls apply with it. have is nil where nothing is
	// known.
	Ask func(ctx context.Context, have *T, apply func(*T)) error
	Log *slog.Logger
}

// Watch holds the newest of something that stores keep for edges. It is a lifecycle.Part, safe for
// concurrent use; it owns a goroutine and its NATS subscriptions.
//
// Until a store has told nobody may be let in; what is known stays known without a store, until a
// store says that there is something newer that can't be had for StaleAfter.
type Watch[T any] struct {
	cfg         WatchConfig[T]
	pace        *Pace
	unknown     *code.Error
	newest      atomic.Pointer[T] // nil: it is not known yet
	stale       atomic.Pointer[code.Error]
	first       chan struct{} // closed once newest is there
	group       *lifecycle.Group
	unsubscribe []func()

	mu       sync.Mutex
	onChange []func()
}

// NewWatch makes a watch that knows nothing yet.
func NewWatch[T any](cfg WatchConfig[T]) *Watch[T] {
	w := &Watch[T]{cfg: cfg, first: make(chan struct{})}
	w.unknown = code.Retry(wirev1.Code_CODE_UNAVAILABLE, comeBack, "the edge does not know yet "+cfg.What+": no store has told")
	var connected func() bool
	if cfg.Bus != nil {
		connected = cfg.Bus.Connected
	}
	w.pace = New(func() (uint64, bool) { have := w.newest.Load(); return cfg.Version(have), have != nil }, connected)
	return w
}

// Newest is what is known; nil: nothing yet.
func (w *Watch[T]) Newest() *T { return w.newest.Load() }

// Fault says why nobody may be let in by what is known: nothing is, or it has been out of date for
// too long (UNAVAILABLE). nil: all is well. It takes no lock.
func (w *Watch[T]) Fault() *code.Error {
	if w.newest.Load() == nil {
		return w.unknown
	}
	return w.stale.Load()
}

// OnChange adds a function that is called after each change, one call at a time, in the watch's
// goroutine. It must not block.
func (w *Watch[T]) OnChange(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onChange = append(w.onChange, f)
}

// Check is a health check: nil while there is no Fault.
func (w *Watch[T]) Check() error {
	if why := w.Fault(); why != nil {
		return errors.New(why.Message)
	}
	return nil
}

// Start begins to watch, and waits a second at most until something is known.
func (w *Watch[T]) Start(ctx context.Context) error {
	if w.cfg.Bus != nil {
		if err := w.listen(); err != nil {
			w.unsubscribeAll()
			return err
		}
		w.cfg.Bus.OnGap(w.pace.Refresh)
	}
	w.group = lifecycle.NewGroup(context.Background())
	w.group.Go(w.cfg.Name+"-watch", func(ctx context.Context) { w.pace.Run(ctx, w.look) })
	late := time.NewTimer(firstWithin)
	defer late.Stop()
	select {
	case <-w.first:
	case <-late.C:
		w.cfg.Log.Warn("it is not known yet " + w.cfg.What + ": no token is taken until it is")
	case <-ctx.Done():
	}
	return nil
}

func (w *Watch[T]) listen() error {
	for subject, handle := range map[string]func(data []byte){
		w.cfg.Changed: func([]byte) { w.pace.Refresh() },
		bus.StoreBeat: w.beat,
	} {
		unsubscribe, err := w.cfg.Bus.Subscribe(subject, 1024, func(data []byte, _ func([]byte) error) { handle(data) })
		if err != nil {
			return err
		}
		w.unsubscribe = append(w.unsubscribe, unsubscribe)
	}
	return nil
}

func (w *Watch[T]) beat(data []byte) {
	b := &meshv1.StoreBeat{}
	if proto.Unmarshal(data, b) == nil {
		w.pace.Beat(w.cfg.Beat(b))
	}
}

func (w *Watch[T]) unsubscribeAll() {
	for _, unsubscribe := range w.unsubscribe {
		unsubscribe()
	}
}

// Stop ends the watch; what is known stays.
func (w *Watch[T]) Stop(ctx context.Context) error {
	w.unsubscribeAll()
	return w.group.Stop(ctx)
}

// look asks for what has changed, and notes whether what is known is out of date.
func (w *Watch[T]) look(ctx context.Context) {
	named := w.pace.Named()
	err := w.cfg.Ask(ctx, w.newest.Load(), w.apply)
	if err == nil {
		w.pace.Answered(named)
	} else if ctx.Err() == nil {
		w.cfg.Log.Debug("asking a store for "+w.cfg.Name+" failed", "error", err)
	}
	if !w.pace.Stale(time.Now()) {
		w.stale.Store(nil)
	} else if w.stale.Load() == nil {
		why := fmt.Sprintf("it is not known here %s: this edge has version %d, and stores have had %d for %v", w.cfg.What, w.cfg.Version(w.newest.Load()), w.pace.Named(), StaleAfter)
		w.cfg.Log.Error("no token is taken", "reason", why)
		w.stale.Store(code.Retry(wirev1.Code_CODE_UNAVAILABLE, comeBack, why))
	}
}

// apply makes what was told the newest.
func (w *Watch[T]) apply(next *T) {
	begun := w.newest.Swap(next) == nil
	w.mu.Lock()
	fs := w.onChange
	w.mu.Unlock()
	for _, f := range fs {
		f()
	}
	if begun {
		close(w.first)
	}
}
