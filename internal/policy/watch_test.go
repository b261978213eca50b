package policy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
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
	w := NewWatch(s, nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
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

func TestWatchHoldsBuiltinsUntilTheStoreAnswers(t *testing.T) {
	s := &store{asked: make(chan uint64, 16)}
	s.set(true, 0)
	w, tables := start(t, s)
	receive(t, s.asked)
	if !w.Table().For("room/1").Durable || w.Check() == nil {
		t.Fatal("want the built-in policies and a failing check while there is no store")
	}
	s.set(false, 3, ns("room", &pushmeshv1.Policy{}))
	if receive(t, tables).For("room/1").Durable || w.Table().For("room/1").Durable {
		t.Error("the store's policy does not apply")
	}
	if err := w.Check(); err != nil {
		t.Error(err)
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

func TestWatchIgnoresAnUnsoundNamespace(t *testing.T) {
	s := &store{asked: make(chan uint64, 16)}
	s.set(false, 1, ns("a/#", &pushmeshv1.Policy{Durable: true}), ns("b", &pushmeshv1.Policy{Durable: true}))
	_, tables := start(t, s)
	if table := receive(t, tables); !table.For("b").Durable || table.Len() != len(Builtin())+1 {
		t.Errorf("%d namespaces", table.Len())
	}
}
