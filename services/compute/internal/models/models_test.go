package models

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// patience bounds every wait of these tests; nothing comes near it.
const patience = time.Minute

// fake is a store.
type fake struct {
	mu       sync.Mutex
	revision uint64
	models   []*pushmeshv1.Model
	files    map[key][]byte
	reads    map[key]int
	down     error
	hold     chan struct{} // reads wait until it is closed
}

func newFake() *fake { return &fake{revision: 1, files: map[key][]byte{}, reads: map[key]int{}} }

func (f *fake) put(name string, version uint64, file []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	f.models = append(f.models, &pushmeshv1.Model{Name: name, Version: version, Bytes: uint64(len(file))})
	f.files[key{name, version}] = file
}

func (f *fake) remove(name string, version uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	for i, m := range f.models {
		if m.GetName() == name && m.GetVersion() == version {
			f.models = append(f.models[:i:i], f.models[i+1:]...)
			return
		}
	}
}

func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) read(name string, version uint64) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads[key{name, version}]
}

func (f *fake) ListModels(_ context.Context, req *meshv1.StoreServiceListModelsRequest) (*meshv1.StoreServiceListModelsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := &meshv1.StoreServiceListModelsResponse{Revision: f.revision}
	if req.GetRevision() != f.revision {
		resp.Models = f.models
	}
	return resp, f.down
}

func (f *fake) ReadModel(ctx context.Context, name string, version uint64) (*pushmeshv1.Model, []byte, error) {
	f.mu.Lock()
	f.reads[key{name, version}]++
	down, hold, file := f.down, f.hold, f.files[key{name, version}]
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	return &pushmeshv1.Model{Name: name, Version: version}, file, down
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../../../../internal/trees/testdata/libraries/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// sizeOf a file's model.
func sizeOf(t *testing.T, data []byte) int {
	t.Helper()
	m, err := trees.Parse(data, trees.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Size()
}

func start(t *testing.T, store Store, most int) *Models {
	t.Helper()
	return startAsking(t, store, most, 20*time.Millisecond)
}

func startAsking(t *testing.T, store Store, most int, every time.Duration) *Models {
	t.Helper()
	m := New(Config{Store: store, MaxBytes: most, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	m.every = every
	begin(t, m)
	return m
}

// begin starts m, which stops with the test.
func begin(t *testing.T, m *Models) {
	t.Helper()
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := m.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

// until cond holds.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// asking for a version gets it, in the end.
func asking(t *testing.T, m *Models, name string, version uint64) (*trees.Model, uint64) {
	t.Helper()
	var found *trees.Model
	var at uint64
	until(t, name, func() bool {
		var err error
		found, at, err = m.Model(name, version)
		if err != nil && code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Fatal(err)
		}
		return err == nil
	})
	return found, at
}

// refused says how asking ends that does not get the version.
func refused(t *testing.T, m *Models, name string, version uint64) error {
	t.Helper()
	var err error
	until(t, name, func() bool {
		_, _, err = m.Model(name, version)
		if err == nil {
			t.Fatalf("%s: found", name)
		}
		return code.Of(err) != wirev1.Code_CODE_UNAVAILABLE
	})
	return err
}

func TestNewestIsLoadedAhead(t *testing.T) {
	store := newFake()
	store.put("ctr", 1, file(t, "lightgbm-stump.txt"))
	store.put("ctr", 2, file(t, "lightgbm-binary.txt"))
	m := start(t, store, 1<<20)
	until(t, "the newest is read", func() bool { return store.read("ctr", 2) == 1 })
	found, version := asking(t, m, "ctr", 0)
	if version != 2 || found.Objective() != "binary sigmoid:1.5" {
		t.Error(version, found.Objective())
	}
	if store.read("ctr", 1) != 0 {
		t.Error("a version that nobody asked for was read")
	}
	if _, version := asking(t, m, "ctr", 1); version != 1 {
		t.Error(version)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
}

func TestANewVersionIsFollowed(t *testing.T) {
	store := newFake()
	store.put("ctr", 1, file(t, "lightgbm-stump.txt"))
	m := start(t, store, 1<<20)
	asking(t, m, "ctr", 0)
	hold := make(chan struct{})
	store.set(func(f *fake) { f.hold = hold })
	store.put("ctr", 2, file(t, "lightgbm-binary.txt"))
	until(t, "the new version is being read", func() bool { return store.read("ctr", 2) == 1 })
	if _, version, err := m.Model("ctr", 0); version != 1 || err != nil {
		t.Errorf("while the newest is read: version %d, %v", version, err)
	}
	close(hold)
	until(t, "the newest is served", func() bool { _, version := asking(t, m, "ctr", 0); return version == 2 })
	store.remove("ctr", 2)
	until(t, "the one before is served", func() bool { _, version := asking(t, m, "ctr", 0); return version == 1 })
	if err := refused(t, m, "ctr", 2); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		t.Error(err)
	}
}

func TestAVersionJustPutIsAskedFor(t *testing.T) {
	store := newFake()
	m := startAsking(t, store, 1<<20, time.Hour) // only what is missed has it ask again
	until(t, "listed", func() bool { return m.Check() == nil })
	if err := refused(t, m, "none", 0); code.Of(err) != wirev1.Code_CODE_NOT_FOUND || !strings.Contains(err.Error(), "no model none") {
		t.Error(err)
	}
	store.put("ctr", 1, file(t, "lightgbm-stump.txt"))
	asking(t, m, "ctr", 1)
}

func TestOneReadHoweverManyAsk(t *testing.T) {
	store := newFake()
	store.put("ctr", 1, file(t, "lightgbm-stump.txt"))
	store.put("ctr", 2, file(t, "lightgbm-binary.txt"))
	m := start(t, store, 1<<20)
	asking(t, m, "ctr", 2)
	hold := make(chan struct{})
	store.set(func(f *fake) { f.hold = hold })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if _, _, err := m.Model("ctr", 1); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || code.From(err).RetryAfter == 0 {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	close(hold)
	asking(t, m, "ctr", 1)
	if n := store.read("ctr", 1); n != 1 {
		t.Errorf("%d reads", n)
	}
}

func TestModelsMakeRoom(t *testing.T) {
	small, large := file(t, "lightgbm-stump.txt"), file(t, "lightgbm-binary.txt")
	store := newFake()
	for v := range uint64(4) {
		store.put("s", v+1, small)
	}
	store.put("l", 1, large)
	most := 3*sizeOf(t, small) + 1
	m := start(t, store, most)
	for v := range uint64(4) {
		asking(t, m, "s", v+1)
	}
	m.mu.Lock()
	n, first, bytes := m.loaded.Len(), m.loaded.Has(key{"s", 1}), m.loaded.Cost()
	m.mu.Unlock()
	if n != 3 || first || bytes > most {
		t.Errorf("%d models of %d bytes, the first of them: %v", n, bytes, first)
	}
	if sizeOf(t, large) <= most {
		t.Fatal("the large model is not large")
	}
	if err := refused(t, m, "l", 1); code.Of(err) != wirev1.Code_CODE_MEMORY_BUDGET {
		t.Error(err)
	}
	asking(t, m, "s", 1)
}

func TestAFileThatCannotBeParsed(t *testing.T) {
	store := newFake()
	store.put("bad", 1, []byte(`{"learner":{}}`))
	store.put("good", 1, file(t, "lightgbm-stump.txt"))
	m := start(t, store, 1<<20)
	if err := refused(t, m, "bad", 0); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Error(err)
	}
	asking(t, m, "good", 0)
	if n := store.read("bad", 1); n != 1 {
		t.Errorf("read %d times", n)
	}
}

func TestWithoutAStore(t *testing.T) {
	m := start(t, nil, 1<<20)
	if _, _, err := m.Model("ctr", 0); code.Of(err) != wirev1.Code_CODE_UNSUPPORTED || !strings.Contains(err.Error(), "--stores") {
		t.Error(err)
	}
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "--stores") {
		t.Error(err)
	}
}

func TestAStoreThatIsAway(t *testing.T) {
	store := newFake()
	store.put("ctr", 1, file(t, "lightgbm-stump.txt"))
	store.set(func(f *fake) { f.down = code.New(wirev1.Code_CODE_UNAVAILABLE, "away") })
	m := start(t, store, 1<<20)
	if _, _, err := m.Model("ctr", 1); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || m.Check() == nil {
		t.Error(err, m.Check())
	}
	store.set(func(f *fake) { f.down = nil })
	asking(t, m, "ctr", 1)
	store.set(func(f *fake) { f.down = code.New(wirev1.Code_CODE_UNAVAILABLE, "away") })
	if _, _, err := m.Model("ctr", 1); err != nil {
		t.Errorf("what is loaded goes on without the store: %v", err)
	}
}
