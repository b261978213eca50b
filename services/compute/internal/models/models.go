// Package models keeps a compute node's stored models ready: it follows the list of them in the
// store, and loads files in one goroutine beside the pool, so that no job waits for a file to be
// read or parsed.
package models

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// maxWanted versions wait to be loaded; a job that names one more asks for it again.
	maxWanted = 64
	// maxMissed versions that there are not are remembered.
	maxMissed = 1024
	// loadingRetry is when a job that named a version that is not loaded yet may come again.
	loadingRetry = 100 * time.Millisecond
)

// Store is what Models needs of the store (storeclient.Client).
type Store interface {
	ListModels(ctx context.Context, req *meshv1.StoreServiceListModelsRequest) (*meshv1.StoreServiceListModelsResponse, error)
	ReadModel(ctx context.Context, name string, version uint64) (*pushmeshv1.Model, []byte, error)
}

// Config of Models.
type Config struct {
	// Store; nil: there are no models here.
	Store Store
	// MaxBytes that loaded models take together.
	MaxBytes int
	Log      *slog.Logger
	Registry prometheus.Registerer
}

type key struct {
	name    string
	version uint64
}

func (k key) String() string { return fmt.Sprintf("model %s, version %d", k.name, k.version) }

// failure of a load: it is not tried again before.
type failure struct {
	err    error
	before time.Time
}

// Models is a lifecycle.Part, safe for concurrent use. It owns one goroutine, which lists and
// loads.
type Models struct {
	cfg     Config
	every   time.Duration // between questions to the store
	metrics *metrics
	group   *lifecycle.Group
	kick    chan struct{} // 1: there is something to ask for

	mu       sync.Mutex
	listed   bool
	revision uint64
	known    map[key]*pushmeshv1.Model
	newest   map[string]uint64
	loaded   cache
	failed   map[key]failure // of known ones
	wanted   []key           // in order
	missed   map[key]bool    // asked for and not known; true: not there by a list asked for since
	relist   bool            // the list is wanted before its time
	unheard  int             // questions that the store did not answer
	away     error           // why, the last time
	changed  chan struct{}   // closed, and replaced, when a question or a load has ended
}

// New makes Models that know of none yet.
func New(cfg Config) *Models {
	m := &Models{
		cfg: cfg, every: pollEvery, kick: make(chan struct{}, 1), group: lifecycle.NewGroup(context.Background()),
		known: map[key]*pushmeshv1.Model{}, newest: map[string]uint64{}, loaded: newCache(cfg.MaxBytes), failed: map[key]failure{}, missed: map[key]bool{},
		changed: make(chan struct{}),
	}
	m.metrics = newMetrics(m, cfg.Registry)
	return m
}

// Start begins to follow the store; it does not wait for it.
func (m *Models) Start(context.Context) error {
	if m.cfg.Store != nil {
		m.group.Go("models", m.run)
	}
	return nil
}

// Stop ends that. What is loaded stays.
func (m *Models) Stop(ctx context.Context) error { return m.group.Stop(ctx) }

// Check is a health check: nil once the store has told which models there are.
func (m *Models) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.cfg.Store == nil:
		return errors.New("no store is configured (--stores): jobs that name a model are refused")
	case !m.listed:
		return errors.New("no list of models from the store yet")
	}
	return nil
}

// outlook is what can become of a version that can't be had now.
type outlook int

const (
	final   outlook = iota // nothing, for some time
	asked                  // the store is asked for it
	loading                // it is being loaded, or waits to be
)

// Model is a version of a model, and which; version 0 is the newest, or the newest that is loaded
// while a newer one is not. It never waits. Its errors: UNAVAILABLE with a time to come back while
// the version is being loaded, or the store has not told of it; NOT_FOUND; UNSUPPORTED where the
// node knows no store; MEMORY_BUDGET where the model is larger than all that models may take; else
// why its file could not be loaded.
func (m *Models) Model(name string, version uint64) (*trees.Model, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, at, _, err := m.look(name, version)
	return found, at, err
}

// Wait until Model has the version, or says why not for good: the errors are Model's. UNAVAILABLE
// is left for a store that can't be asked, and a file that is not loaded when ctx ends.
func (m *Models) Wait(ctx context.Context, name string, version uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for unheard := m.unheard; ; {
		_, _, out, err := m.look(name, version)
		if out == final {
			return err
		}
		if out == asked && m.unheard != unheard {
			return code.Retry(wirev1.Code_CODE_UNAVAILABLE, failedRetry, fmt.Sprintf("the store does not say which models there are: %v", m.away))
		}
		if !m.next(ctx) {
			return err
		}
	}
}

// next waits for a question or a load to end, without m.mu, which is held; false: ctx ended first.
func (m *Models) next(ctx context.Context) bool {
	changed := m.changed
	m.mu.Unlock()
	defer m.mu.Lock()
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

// notifyWaiting wakes the jobs that wait. m.mu is held.
func (m *Models) notifyWaiting() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// look is Model, and whether a failure may change. m.mu is held.
func (m *Models) look(name string, version uint64) (*trees.Model, uint64, outlook, error) {
	if m.cfg.Store == nil {
		return nil, 0, final, code.New(wirev1.Code_CODE_UNSUPPORTED, "this compute node has no models: no store is configured (--stores)")
	}
	if !m.listed {
		m.ahead()
		return nil, 0, asked, code.Retry(wirev1.Code_CODE_UNAVAILABLE, loadingRetry, "the store has not listed its models yet")
	}
	k := key{name, version}
	if version == 0 {
		k.version = m.newest[name]
	}
	if m.known[k] == nil {
		out, err := m.miss(key{name, version})
		return nil, 0, out, err
	}
	if found, ok := m.loaded.Get(k); ok {
		return found, k.version, final, nil
	}
	out, err := m.want(k)
	if version == 0 {
		if found, at := m.loaded.newest(name); found != nil {
			return found, at, final, nil
		}
	}
	return nil, 0, out, err
}

// want has a version loaded, and says why it isn't. m.mu is held.
func (m *Models) want(k key) (outlook, error) {
	if f, ok := m.failed[k]; ok && time.Now().Before(f.before) {
		return final, f.err
	}
	m.queue(k)
	return loading, code.Retry(wirev1.Code_CODE_UNAVAILABLE, loadingRetry, k.String()+" is not loaded yet")
}

// queue: m.mu is held.
func (m *Models) queue(k key) {
	if len(m.wanted) < maxWanted && !m.loading(k) {
		m.wanted = append(m.wanted, k)
	}
	m.wake()
}

// loading: m.mu is held.
func (m *Models) loading(k key) bool {
	for _, w := range m.wanted {
		if w == k {
			return true
		}
	}
	return false
}

// miss is why a version that is not known is refused: it may have been put a moment ago. m.mu is
// held.
func (m *Models) miss(k key) (outlook, error) {
	if gone, missed := m.missed[k]; gone || !missed && len(m.missed) == maxMissed {
		what := k.String()
		if k.version == 0 {
			what = "model " + k.name
		}
		return final, code.New(wirev1.Code_CODE_NOT_FOUND, "there is no "+what)
	}
	m.missed[k] = false
	m.ahead()
	return asked, code.Retry(wirev1.Code_CODE_UNAVAILABLE, loadingRetry, "the store is asked for "+k.String())
}

// ahead has the store asked before its time. m.mu is held.
func (m *Models) ahead() {
	m.relist = true
	m.wake()
}

func (m *Models) wake() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}
