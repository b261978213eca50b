package revocation

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
	"github.com/pushmesh/pushmesh/internal/newest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// firstWithin is how long Start waits for the list.
	firstWithin = time.Second
	// askTimeout bounds one question to the store.
	askTimeout = 2 * time.Second
	// comeBack is when a client may try again that is not taken for want of the list.
	comeBack = time.Second
)

// Lister is what Watch needs of the store.
type Lister interface {
	ListRevocations(ctx context.Context, req *meshv1.StoreServiceListRevocationsRequest) (*meshv1.StoreServiceListRevocationsResponse, error)
}

// Bus is what Watch needs of NATS (bus.Bus).
type Bus interface {
	Subscribe(subject string, pending int, handle func(data []byte, respond func([]byte) error)) (unsubscribe func(), err error)
	OnGap(f func())
	Connected() bool
}

// Watch holds what is revoked now. It is a lifecycle.Part, safe for concurrent use; it owns a
// goroutine and its NATS subscriptions.
//
// Until a store has sent the list no token can be taken; once it is known it stays known without a
// store, until a store says that there is a newer one that can't be had for newest.StaleAfter.
type Watch struct {
	from        Lister
	bus         Bus
	now         func() time.Time
	log         *slog.Logger
	pace        *newest.Pace
	list        atomic.Pointer[List] // nil: it is not known yet
	stale       atomic.Pointer[code.Error]
	first       chan struct{} // closed once list is there
	group       *lifecycle.Group
	unsubscribe []func()

	mu       sync.Mutex
	onChange []func()
}

var unknown = code.Retry(wirev1.Code_CODE_UNAVAILABLE, comeBack, "the edge does not know yet which tokens are revoked: no store has told")

// NewWatch makes a watch that knows nothing yet. The bus must be started before the watch; nil: a
// store is asked at intervals. now is the mesh's time (meshtime.Clock).
func NewWatch(from Lister, b Bus, now func() time.Time, log *slog.Logger) *Watch {
	w := &Watch{from: from, bus: b, now: now, log: log, first: make(chan struct{})}
	var connected func() bool
	if b != nil {
		connected = b.Connected
	}
	w.pace = newest.New(func() (uint64, bool) { list := w.list.Load(); return list.Version(), list != nil }, connected)
	return w
}

// Refuses says why a token is not taken: it is revoked (UNAUTHENTICATED), or that can't be told now
// (UNAVAILABLE, also of a token that was issued at about the time of its user's revocation). nil:
// it is good. It takes no lock, and now is Unix time in microseconds.
func (w *Watch) Refuses(t Token, now uint64) *code.Error {
	list := w.list.Load()
	if list == nil {
		return unknown
	}
	if why := list.Admits(t, now); why != nil {
		return why
	}
	return w.stale.Load()
}

// List is what is known to be revoked; nil: that is not known yet.
func (w *Watch) List() *List { return w.list.Load() }

// OnChange adds a function that is called after each change, one call at a time, in the watch's
// goroutine. It must not block.
func (w *Watch) OnChange(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onChange = append(w.onChange, f)
}

// Check is a health check: nil while it is known what is revoked.
func (w *Watch) Check() error {
	if w.list.Load() == nil {
		return errors.New(unknown.Message)
	}
	if why := w.stale.Load(); why != nil {
		return errors.New(why.Message)
	}
	return nil
}

// Start begins to watch, and waits a second at most for the list.
func (w *Watch) Start(ctx context.Context) error {
	if w.bus != nil {
		if err := w.listen(); err != nil {
			w.unsubscribeAll()
			return err
		}
		w.bus.OnGap(w.pace.Refresh)
	}
	w.group = lifecycle.NewGroup(context.Background())
	w.group.Go("revocation-watch", func(ctx context.Context) { w.pace.Run(ctx, w.look) })
	late := time.NewTimer(firstWithin)
	defer late.Stop()
	select {
	case <-w.first:
	case <-late.C:
		w.log.Warn("it is not known yet which tokens are revoked: none is taken until it is")
	case <-ctx.Done():
	}
	return nil
}

func (w *Watch) listen() error {
	for subject, handle := range map[string]func(data []byte){
		bus.RevocationsChanged: func([]byte) { w.pace.Refresh() },
		bus.StoreBeat:          w.beat,
	} {
		unsubscribe, err := w.bus.Subscribe(subject, 1024, func(data []byte, _ func([]byte) error) { handle(data) })
		if err != nil {
			return err
		}
		w.unsubscribe = append(w.unsubscribe, unsubscribe)
	}
	return nil
}

func (w *Watch) beat(data []byte) {
	b := &meshv1.StoreBeat{}
	if proto.Unmarshal(data, b) == nil {
		w.pace.Beat(b.GetRevocationsVersion())
	}
}

func (w *Watch) unsubscribeAll() {
	for _, unsubscribe := range w.unsubscribe {
		unsubscribe()
	}
}

// Stop ends the watch; what is known stays.
func (w *Watch) Stop(ctx context.Context) error {
	w.unsubscribeAll()
	return w.group.Stop(ctx)
}

// look asks for what has changed, and notes whether what is known is out of date.
func (w *Watch) look(ctx context.Context) {
	if err := w.ask(ctx); err != nil && ctx.Err() == nil {
		w.log.Debug("asking for revocations failed", "error", err)
	}
	if !w.pace.Stale(time.Now()) {
		w.stale.Store(nil)
	} else if w.stale.Load() == nil {
		why := fmt.Sprintf("it is not known here which tokens are revoked: this edge has version %d, and stores have had %d for %v", w.list.Load().Version(), w.pace.Named(), newest.StaleAfter)
		w.log.Error("no token is taken", "reason", why)
		w.stale.Store(code.Retry(wirev1.Code_CODE_UNAVAILABLE, comeBack, why))
	}
}

// ask gets every page of what has changed. Changes of what is known apply with each page: they may
// be what closes connections. A list that is not known, or begins anew, applies as a whole.
func (w *Watch) ask(ctx context.Context) error {
	named, list := w.pace.Named(), w.list.Load()
	whole := list == nil
	for more := true; more; {
		page, err := w.page(ctx, list.Version())
		if err != nil {
			return err
		}
		if more = page.GetMore(); more && page.GetVersion() <= list.Version() && !page.GetAnew() {
			return fmt.Errorf("a page of revocations of version %d ends with version %d", list.Version(), page.GetVersion())
		}
		whole = whole || page.GetAnew()
		unchanged := list != nil && page.GetVersion() == list.version
		list = list.with(page, uint64(w.now().UnixMicro()))
		if (!whole || !more) && !unchanged {
			w.apply(list)
		}
	}
	w.pace.Answered(named)
	return nil
}

func (w *Watch) page(ctx context.Context, have uint64) (*meshv1.StoreServiceListRevocationsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return w.from.ListRevocations(ctx, &meshv1.StoreServiceListRevocationsRequest{HaveVersion: have})
}

// apply makes a list the one that counts.
func (w *Watch) apply(list *List) {
	begun := w.list.Swap(list) == nil
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
