package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// store is a Lister that answers what it is told to.
type store struct {
	mu    sync.Mutex
	down  bool
	resp  *meshv1.ListNamespacesResponse
	asked chan uint64 // the version that the caller had
}

func (s *store) ListNamespaces(_ context.Context, req *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.asked <- req.GetHaveVersion():
	default:
	}
	if s.down {
		return nil, errors.New("no store")
	}
	if req.GetHaveVersion() == s.resp.GetVersion() {
		return &meshv1.ListNamespacesResponse{Version: s.resp.GetVersion()}, nil
	}
	return s.resp, nil
}

func (s *store) set(down bool, version uint64, all ...*pushmeshv1.Namespace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.resp = down, &meshv1.ListNamespacesResponse{Version: version, Namespaces: all}
}

func receive[V any](t *testing.T, from <-chan V) V {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}

func start(t *testing.T, s *store) (*Watch, <-chan *Table) {
	t.Helper()
	return startOn(t, s, nil)
}

func startOn(t *testing.T, s *store, b Bus) (*Watch, <-chan *Table) {
	t.Helper()
	w := newWatch(s, b, fmt.Sprintf("edge.%p", s), slog.New(slog.NewTextHandler(io.Discard, nil)))
	tables := make(chan *Table, 16)
	w.OnChange(func(table *Table) { tables <- table })
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w, tables
}

func TestWatchRefusesUntilTheStoreAnswers(t *testing.T) {
	s := &store{asked: make(chan uint64, 16)}
	s.set(true, 0)
	w, tables := start(t, s)
	receive(t, s.asked)
	for _, topic := range []string{"room/1", "orders/1", "x"} {
		if why := w.Table().Refuses(topic); why == nil || why.Code != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("%s is taken while nobody has told the namespaces: %v", topic, why)
		}
	}
	if w.Check() == nil || w.CheckUnderstood() != nil || w.Version() != 0 {
		t.Error("want a failing check of what is known, and of nothing else")
	}
	s.set(false, 3, ns("room", &pushmeshv1.Policy{}), ns("orders", &pushmeshv1.Policy{Durable: true}))
	if table := receive(t, tables); table.For("room/1").Durable || !table.For("orders/1").Durable || table.Refuses("#") != nil {
		t.Error("the store's policies do not apply")
	}
	if err := w.Check(); err != nil || w.Version() != 3 {
		t.Error(err, w.Version())
	}
	s.set(true, 3)
	w.Refresh()
	receive(t, s.asked)
	if err := w.Check(); err != nil || !w.Table().For("orders/1").Durable {
		t.Error("what is known is forgotten without a store:", err)
	}
}

// Whoever starts after the watch need not be refused anything where there is a store.
func TestWatchStartsWithTheNamespaces(t *testing.T) {
	s := &store{}
	s.set(false, 3, ns("orders", &pushmeshv1.Policy{Durable: true}))
	w, _ := start(t, s)
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestWatchTakesChangesAndSkipsWhatIsUnchanged(t *testing.T) {
	s := &store{asked: make(chan uint64, 16)}
	s.set(false, 1, ns("a", &pushmeshv1.Policy{Durable: true}))
	w, tables := start(t, s)
	receive(t, tables)
	receive(t, s.asked)
	w.Refresh()
	if have := receive(t, s.asked); have != 1 {
		t.Fatalf("asked with version %d", have)
	}
	s.set(false, 2, ns("b", &pushmeshv1.Policy{Durable: true}))
	w.Refresh()
	table := receive(t, tables)
	if table.For("a/1").Durable || !table.For("b/1").Durable {
		t.Error("a removed namespace must go and a new one come")
	}
	if len(tables) != 0 {
		t.Error("an unchanged set was announced as a change")
	}
}

func TestWatchRefusesANamespaceThatIsNotUnderstood(t *testing.T) {
	s := &store{asked: make(chan uint64, 16)}
	s.set(false, 1, ns("a", newer(&pushmeshv1.Policy{})), ns("b", &pushmeshv1.Policy{Durable: true}))
	w, tables := start(t, s)
	if table := receive(t, tables); table.Refuses("a/1") == nil || table.Refuses("b/1") != nil || !table.For("b").Durable {
		t.Error("want the one refused, and the other served")
	}
	if err := w.Check(); err != nil {
		t.Error("one namespace makes the process not ready:", err)
	}
	if err := w.CheckUnderstood(); err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Error(err)
	}
	s.set(false, 2, ns("a", &pushmeshv1.Policy{}))
	w.Refresh()
	if table := receive(t, tables); table.Refuses("a/1") != nil || w.CheckUnderstood() != nil {
		t.Error("a namespace that is understood again is refused")
	}
}
