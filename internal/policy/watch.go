package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/newest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// firstWithin is how long Start waits for the namespaces. A process that has none by then runs,
// refuses every topic, and is not ready.
const firstWithin = time.Second

// askTimeout bounds one question to the store, askPeersTimeout one to another process.
const (
	askTimeout      = 2 * time.Second
	askPeersTimeout = time.Second
)

// Lister is what Watch needs of the store.
type Lister interface {
	ListNamespaces(ctx context.Context, req *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error)
}

// Bus is what Watch needs of NATS (bus.Bus).
type Bus interface {
	Subscribe(subject string, pending int, handle func(data []byte, respond func([]byte) error)) (unsubscribe func(), err error)
	Serve(subject, group string, pending int, handle func(data []byte, respond func([]byte) error)) (leave func(), err error)
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	OnGap(f func())
	Connected() bool
}

// Watch holds the policies that apply now. It is a lifecycle.Part, safe for concurrent use; it owns
// one goroutine and its NATS subscriptions.
//
// It begins with a table that refuses every topic: treating a durable topic as an ephemeral one
// loses messages, so a process takes nothing before it knows the namespaces. It asks a store for
// them and, if none answers, any process of the mesh that knows them. Once known they stay known
// without a store.
type Watch struct {
	from        Lister
	bus         Bus // nil: the store is asked at intervals
	log         *slog.Logger
	rules       []Rule // a namespace that breaks one is not understood
	pace        *newest.Pace
	set         atomic.Pointer[set] // nil: the namespaces are not known yet
	table       atomic.Pointer[Table]
	first       chan struct{} // closed once set is there
	node        string        // what others ask for this process by (bus.Node)
	group       *lifecycle.Group
	unsubscribe []func()

	mu       sync.Mutex
	onChange []func(*Table)
	// applied is the version of table, once all of onChange have it; 0: it refuses everything
	applied uint64
	changed chan struct{} // closed and replaced with each table
	asking  []question    // questions of other processes that are not answered yet
}

// set is all namespaces as they were at a version. It is never changed.
type set struct {
	version    uint64
	namespaces []*pushmeshv1.Namespace
	table      *Table
}

// NewWatch makes a watch that knows no namespaces yet. The bus, if any, must be started before the
// watch. node is this process (bus.Node).
func NewWatch(from Lister, b *bus.Bus, node string, log *slog.Logger, rules ...Rule) *Watch {
	if b == nil {
		return newWatch(from, nil, node, log, rules...)
	}
	return newWatch(from, b, node, log, rules...)
}

func newWatch(from Lister, b Bus, node string, log *slog.Logger, rules ...Rule) *Watch {
	w := &Watch{
		from: from, bus: b, node: node, log: log, rules: rules, first: make(chan struct{}), changed: make(chan struct{}),
	}
	var connected func() bool
	if b != nil {
		connected = b.Connected
	}
	w.pace = newest.New(func() (uint64, bool) { return w.Version(), w.set.Load() != nil }, connected)
	w.table.Store(Unknown("the namespaces are not known yet: neither a store nor another process of the mesh has sent them"))
	return w
}

// Table is what applies now; never nil.
func (w *Watch) Table() *Table { return w.table.Load() }

// Version of the set that is known; 0: none is.
func (w *Watch) Version() uint64 {
	if s := w.set.Load(); s != nil {
		return s.version
	}
	return 0
}

// OnChange adds a function called with each new table, one call at a time, in the watch's
// goroutine. It must not block.
func (w *Watch) OnChange(f func(*Table)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onChange = append(w.onChange, f)
}

// Check is a health check: nil while the namespaces are known. A process is not ready without.
func (w *Watch) Check() error {
	if why := w.Table().Known(); why != nil {
		return errors.New(why.Message)
	}
	return nil
}

// CheckUnderstood is a health check: nil while every namespace is understood. Others are served
// without.
func (w *Watch) CheckUnderstood() error {
	if w.Check() != nil {
		return nil
	}
	var errs []error
	for _, p := range w.Table().Refused() {
		errs = append(errs, errors.New(p.Refusal.Message))
	}
	return errors.Join(errs...)
}

// Register adds a metric for the version of the namespaces that this process uses, so that an
// operator sees which processes have a change.
func (w *Watch) Register(tier string, reg prometheus.Registerer) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pushmesh_" + tier + "_namespaces_version", Help: "Version of the namespaces that this process uses; 0: it does not know them yet.",
	}, func() float64 {
		if w.Check() != nil {
			return 0
		}
		return float64(w.Version())
	}))
}

// Refresh has the store asked soon.
func (w *Watch) Refresh() { w.pace.Refresh() }

// Start begins to watch, and waits a second at most for the namespaces, so that parts which start
// after this one serve at once if there is a store.
func (w *Watch) Start(ctx context.Context) error {
	if w.bus != nil {
		if err := w.listen(); err != nil {
			w.unsubscribeAll()
			return err
		}
		w.bus.OnGap(w.Refresh)
	}
	w.group = lifecycle.NewGroup(context.Background())
	w.group.Go("policy-watch", w.run)
	late := time.NewTimer(firstWithin)
	defer late.Stop()
	select {
	case <-w.first:
	case <-late.C:
		w.log.Warn("the namespaces are not known yet: every topic is refused until they are")
	case <-ctx.Done():
	}
	return nil
}

func (w *Watch) listen() error {
	for subject, handle := range map[string]func(data []byte, respond func([]byte) error){
		bus.NamespacesChanged:    func([]byte, func([]byte) error) { w.Refresh() },
		bus.StoreBeat:            func(data []byte, _ func([]byte) error) { w.beat(data) },
		bus.NamespacesAt(w.node): w.answerWhenApplied,
	} {
		unsubscribe, err := w.bus.Subscribe(subject, 1024, handle)
		if err != nil {
			return err
		}
		w.unsubscribe = append(w.unsubscribe, unsubscribe)
	}
	return nil
}

func (w *Watch) unsubscribeAll() {
	for _, unsubscribe := range w.unsubscribe {
		unsubscribe()
	}
}

// Stop ends the watch; the table stays.
func (w *Watch) Stop(ctx context.Context) error {
	err := w.group.Stop(ctx) // which adds to leave
	w.unsubscribeAll()
	return err
}

func (w *Watch) run(ctx context.Context) {
	w.pace.Run(ctx, func(ctx context.Context) {
		if err := w.ask(ctx); err != nil && ctx.Err() == nil {
			w.log.Debug("refreshing the namespaces failed", "error", err)
		}
		w.refuseIfStale(time.Now())
	})
}

// beat takes the version that a store knows.
func (w *Watch) beat(data []byte) {
	b := &meshv1.StoreBeat{}
	if proto.Unmarshal(data, b) == nil {
		w.pace.Beat(b.GetNamespacesVersion())
	}
}

// ask asks the store and, if none answers, the other processes.
func (w *Watch) ask(ctx context.Context) error {
	named := w.pace.Named()
	resp, err := w.askStore(ctx)
	if err == nil {
		w.pace.Answered(named)
		if s := w.set.Load(); s == nil || resp.GetVersion() != s.version {
			w.take(resp)
		}
		return nil
	}
	resp, err2 := w.askPeers(ctx)
	if err2 != nil {
		return errors.Join(err, err2)
	}
	// A process that missed a change must not pass old namespaces on to one that knows of the
	// change.
	if resp.GetVersion() > w.Version() && resp.GetVersion() >= w.pace.Named() {
		w.take(resp)
	}
	return nil
}

func (w *Watch) askStore(ctx context.Context) (*meshv1.ListNamespacesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return w.from.ListNamespaces(ctx, &meshv1.ListNamespacesRequest{HaveVersion: w.Version()})
}

// askPeers asks one of the processes that know the namespaces. As all processes without a store
// repeat it, they agree on the newest version that one of them has.
func (w *Watch) askPeers(ctx context.Context) (*meshv1.ListNamespacesResponse, error) {
	if w.bus == nil {
		return nil, errors.New("no other process can be asked")
	}
	ctx, cancel := context.WithTimeout(ctx, askPeersTimeout)
	defer cancel()
	data, err := proto.Marshal(&meshv1.ListNamespacesRequest{HaveVersion: w.Version()})
	if err != nil {
		return nil, fmt.Errorf("namespaces of other processes: %w", err)
	}
	if data, err = w.bus.Request(ctx, bus.Namespaces, data); err != nil {
		return nil, fmt.Errorf("namespaces of other processes: %w", err)
	}
	resp := &meshv1.ListNamespacesResponse{}
	if err := proto.Unmarshal(data, resp); err != nil {
		return nil, fmt.Errorf("namespaces of other processes: %w", err)
	}
	return resp, nil
}

// answer sends the namespaces that this process knows to another one.
func (w *Watch) answer(data []byte, respond func([]byte) error) {
	req := &meshv1.ListNamespacesRequest{}
	s := w.set.Load()
	if proto.Unmarshal(data, req) != nil || w.Check() != nil {
		return // the other process asks again
	}
	resp := &meshv1.ListNamespacesResponse{Version: s.version}
	if s.version > req.GetHaveVersion() {
		resp.Namespaces = s.namespaces
	}
	data, err := proto.Marshal(resp)
	if err == nil {
		err = respond(data)
	}
	if err != nil {
		w.log.Debug("sending the namespaces to another process failed", "error", err)
	}
}

// take makes a set the one that applies.
func (w *Watch) take(resp *meshv1.ListNamespacesResponse) {
	s := &set{version: resp.GetVersion(), namespaces: resp.GetNamespaces(), table: NewTable(resp.GetNamespaces(), w.rules...)}
	for _, p := range s.table.Refused() {
		w.log.Error("a namespace's policy is not supported by this version: its topics are refused", "prefix", p.Prefix, "error", p.Refusal.Message)
	}
	begun := w.set.Swap(s) == nil
	w.apply(s.table, s.version)
	if !begun {
		return
	}
	close(w.first)
	if w.bus == nil {
		return
	}
	unsubscribe, err := w.bus.Serve(bus.Namespaces, bus.NamespacesKnown, 64, w.answer)
	if err != nil {
		w.log.Warn("other processes can't ask this one for the namespaces", "error", err)
		return
	}
	w.unsubscribe = append(w.unsubscribe, unsubscribe)
}

// refuseIfStale refuses every topic once a newer version has existed for too long, until this
// process has it.
func (w *Watch) refuseIfStale(now time.Time) {
	s, stale := w.set.Load(), w.pace.Stale(now)
	switch {
	case s == nil:
	case stale && w.Check() == nil:
		why := fmt.Sprintf("the namespaces known here are out of date: version %d, and stores have had %d for %v", s.version, w.pace.Named(), newest.StaleAfter)
		w.log.Error("every topic is refused", "reason", why)
		w.apply(Unknown(why), 0)
	case w.pace.Current() && w.Table() != s.table:
		w.apply(s.table, s.version)
	}
}

// apply makes a table the one that applies. version is 0 where it refuses everything.
func (w *Watch) apply(table *Table, version uint64) {
	w.table.Store(table)
	w.mu.Lock()
	fs := w.onChange
	w.mu.Unlock()
	for _, f := range fs {
		f(table)
	}
	w.mu.Lock()
	w.applied = version
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
	w.answerApplied()
}
