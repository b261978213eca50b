// Package models keeps a compute node's stored models ready: it follows the list of them in the store, and loads files in one goroutine beside the
// pool, so that no job waits for a file to be read or parsed.
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

// Models is a lifecycle.Part, safe for concurrent use. It owns one goroutine, which lists and loads.
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
	relist   bool            // a version is missed
}

// New makes Models that know of none yet.
func New(cfg Config) *Models {
	m := &Models{
		cfg: cfg, every: pollEvery, kick: make(chan struct{}, 1), group: lifecycle.NewGroup(context.Background()),
		known: map[key]*pushmeshv1.Model{}, newest: map[string]uint64{}, loaded: newCache(cfg.MaxBytes), failed: map[key]failure{}, missed: map[key]bool{},
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
		return errors.New("the node knows no store (--stores): jobs that name a model are refused")
	case !m.listed:
		return errors.New("no list of models from the store yet")
	}
	return nil
}

// Model is a version of a model, and which; version 0 is the newest, or the newest that is loaded while a newer one is not. It never waits. Its errors:
// UNAVAILABLE with a time to come back while the version is being loaded, or the store has not told of it; NOT_FOUND; UNSUPPORTED where the node knows
// no store; MEMORY_BUDGET where the model is larger than all that models may take; else why its file could not be loaded.
func (m *Models) Model(name string, version uint64) (*trees.Model, uint64, error) {
	if m.cfg.Store == nil {
		return nil, 0, code.New(wirev1.Code_CODE_UNSUPPORTED, "this compute node has no models: it knows no store (--stores)")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.listed {
		return nil, 0, code.Retry(wirev1.Code_CODE_UNAVAILABLE, loadingRetry, "the store has not told of models yet")
	}
	k := key{name, version}
	if version == 0 {
		k.version = m.newest[name]
	}
	if m.known[k] == nil {
		return nil, 0, m.miss(key{name, version})
	}
	if found := m.loaded.get(k); found != nil {
		return found, k.version, nil
	}
	err := m.want(k)
	if version == 0 {
		if found, at := m.loaded.newest(name); found != nil {
			return found, at, nil
		}
	}
	return nil, 0, err
}

// want has a version loaded, and says why it isn't. m.mu is held.
func (m *Models) want(k key) error {
	if f, ok := m.failed[k]; ok && time.Now().Before(f.before) {
		return f.err
	}
	m.queue(k)
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, loadingRetry, k.String()+" is not loaded yet")
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

// miss is why a version that is not known is refused: it may have been put a moment ago. m.mu is held.
func (m *Models) miss(k key) error {
	if gone, asked := m.missed[k]; gone || !asked && len(m.missed) == maxMissed {
		what := k.String()
		if k.version == 0 {
			what = "model " + k.name
		}
		return code.New(wirev1.Code_CODE_NOT_FOUND, "there is no "+what)
	}
	m.missed[k] = false
	m.relist = true
	m.wake()
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, loadingRetry, "the store is asked for "+k.String())
}

func (m *Models) wake() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}
