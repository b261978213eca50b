package policy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/newest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// wires are a NATS server as far as a watch can see: a request reaches any member of a group.
type wires struct {
	mu      sync.Mutex
	told    []func(data []byte)
	serving []func(data []byte, respond func([]byte) error)
	// by the subject of bus.NamespacesAt
	nodes    map[string]func(data []byte, respond func([]byte) error)
	requests chan struct{}
	serves   chan struct{} // somebody answers from now on
}

func (w *wires) Subscribe(subject string, _ int, handle func([]byte, func([]byte) error)) (func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if subject == bus.StoreBeat {
		w.told = append(w.told, func(data []byte) { handle(data, nil) })
	}
	if strings.HasPrefix(subject, bus.NamespacesAt("")) {
		if w.nodes == nil {
			w.nodes = map[string]func([]byte, func([]byte) error){}
		}
		w.nodes[subject] = handle
	}
	return func() {}, nil
}

func (w *wires) Serve(subject, _ string, _ int, handle func([]byte, func([]byte) error)) (func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if subject == bus.Namespaces {
		w.serving = append(w.serving, handle)
		select {
		case w.serves <- struct{}{}:
		default:
		}
	}
	return func() {}, nil
}

func (w *wires) Request(ctx context.Context, subject string, data []byte) (answer []byte, err error) {
	if strings.HasPrefix(subject, bus.NamespacesAt("")) {
		return w.requestNode(ctx, subject, data)
	}
	w.mu.Lock()
	var one func([]byte, func([]byte) error)
	if n := len(w.serving); n > 0 {
		// in turn, two that ask alternately would each reach themselves for ever
		one = w.serving[rand.IntN(n)]
	}
	w.mu.Unlock()
	if one != nil {
		one(data, func(data []byte) error { answer = data; return nil })
	}
	select {
	case w.requests <- struct{}{}:
	default:
	}
	if answer == nil {
		return nil, errors.New("nobody answers")
	}
	return answer, nil
}

func (w *wires) requestNode(ctx context.Context, subject string, data []byte) ([]byte, error) {
	w.mu.Lock()
	node := w.nodes[subject]
	w.mu.Unlock()
	if node == nil {
		return nil, bus.ErrNobody
	}
	answered := make(chan []byte, 1)
	node(data, func(data []byte) error { answered <- data; return nil })
	select {
	case data := <-answered:
		return data, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wires) OnGap(func())    {}
func (w *wires) Connected() bool { return true }

// beat is a store's, which knows that version.
func (w *wires) beat(t *testing.T, version uint64) {
	t.Helper()
	data, err := proto.Marshal(&meshv1.StoreBeat{NamespacesVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	told := slices.Clone(w.told)
	w.mu.Unlock()
	for _, f := range told {
		f(data)
	}
}

func durable(prefix string) *pushmeshv1.Namespace {
	return ns(prefix, &pushmeshv1.Policy{Durable: true})
}

// A process that starts while no store answers learns the namespaces of one that knows them.
func TestWatchAsksOtherProcessesWithoutAStore(t *testing.T) {
	nats := &wires{}
	there := &store{}
	there.set(false, 7, durable("orders"), ns("later", newer(&pushmeshv1.Policy{})))
	startOn(t, there, nats)
	there.set(true, 7)

	away := &store{}
	away.set(true, 0)
	w, tables := startOn(t, away, nats)
	if table := receive(t, tables); !table.For("orders/1").Durable || table.Refuses("later/1") == nil || w.Version() != 7 {
		t.Errorf("version %d", w.Version())
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}

// Those that know nothing tell nothing.
func TestWatchOfAMeshWithoutStoresStaysUnknown(t *testing.T) {
	nats := &wires{requests: make(chan struct{}, 1)}
	s := &store{}
	s.set(true, 0)
	a, _ := startOn(t, s, nats)
	b, _ := startOn(t, s, nats)
	receive(t, nats.requests)
	receive(t, nats.requests)
	if a.Check() == nil || b.Check() == nil {
		t.Error("nobody knows the namespaces, and one says so")
	}
}

// A process that missed a change, the last before the stores went, tells what it knows to one that
// has heard of the change: that must not go by it.
func TestWatchTakesNothingOlderThanWhatAStoreHasNamed(t *testing.T) {
	nats := &wires{serves: make(chan struct{}, 1)}
	behind := &store{}
	behind.set(false, 7, durable("old"))
	startOn(t, behind, nats)
	receive(t, nats.serves) // it knows them, and answers
	behind.set(true, 7)

	away := &store{}
	away.set(true, 0)
	w := newWatch(away, nats, "router.away", slog.New(slog.DiscardHandler))
	w.pace.Note(8)
	if err := w.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.Check() == nil {
		t.Error("version 7 passes for known where 8 was named")
	}
	away.set(false, 8, durable("new"))
	if err := w.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.Check() != nil || !w.Table().For("new/1").Durable {
		t.Error("what the store says does not count")
	}
}

// All who reach no store agree on the newest set that one of them has.
func TestWatchesAgreeWithoutAStore(t *testing.T) {
	nats := &wires{}
	one, other := &store{}, &store{}
	one.set(false, 7, durable("orders"))
	other.set(false, 8, durable("orders"), durable("bills"))
	a, tables := startOn(t, one, nats)
	receive(t, tables)
	startOn(t, other, nats)
	one.set(true, 7)
	other.set(true, 8)
	if table := receive(t, tables); !table.For("bills/1").Durable || a.Version() != 8 {
		t.Errorf("version %d", a.Version())
	}
}

// What is known goes out of date where stores name a newer set and none of them can be asked: after
// a while nothing is taken by it.
func TestWatchRefusesByASetThatIsOutOfDate(t *testing.T) {
	nats := &wires{}
	s := &store{}
	s.set(false, 7, durable("orders"))
	w := newWatch(s, nats, "router.r", slog.New(slog.NewTextHandler(io.Discard, nil)))
	changes := 0
	w.OnChange(func(*Table) { changes++ })
	if err := errors.Join(w.listen(), w.ask(t.Context())); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	look := func(after time.Duration, known bool) {
		t.Helper()
		w.refuseIfStale(now.Add(after))
		if (w.Check() == nil) != known || (w.Table().Refuses("orders/1") == nil) != known {
			t.Fatalf("after %v: %v", after, w.Check())
		}
	}
	look(0, true)
	s.set(true, 7)
	nats.beat(t, 8)
	look(0, true)
	look(newest.StaleAfter-1, true)
	look(newest.StaleAfter, false)
	if w.answer(nil, func([]byte) error { t.Error("it tells others what is out of date"); return nil }); w.Version() != 7 {
		t.Errorf("version %d", w.Version())
	}
	s.set(false, 8, durable("orders"))
	if err := w.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	look(newest.StaleAfter, true)

	// Restored from a backup: what the database says counts, whatever was named before.
	nats.beat(t, 9)
	s.set(false, 5, durable("orders"))
	if err := w.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	look(3*newest.StaleAfter, true)
	if w.Version() != 5 || changes != 4 {
		t.Errorf("version %d, %d changes", w.Version(), changes)
	}
}
