package models

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// pollEvery is how soon a change of the list is known.
	pollEvery = time.Second
	// leastPause between two questions, however many versions are missed.
	leastPause = 100 * time.Millisecond
	// askTimeout bounds one question, readTimeout the reading of one file.
	askTimeout  = 2 * time.Second
	readTimeout = time.Minute
	// A load that failed is tried again, where the version is still asked for, after failedRetry if
	// the store was away, else after brokenRetry.
	failedRetry = time.Second
	brokenRetry = 30 * time.Second
)

func (m *Models) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var asked time.Time
	for ctx.Err() == nil {
		if since := time.Since(asked); since >= m.every || m.relisting() && since >= leastPause {
			asked = time.Now()
			if err := m.ask(ctx); err != nil && ctx.Err() == nil {
				m.cfg.Log.Debug("listing models failed", "error", err)
			}
		}
		if k, ok := m.first(); ok {
			m.load(ctx, k)
			continue
		}
		pause := m.every
		if m.relisting() {
			pause = leastPause
		}
		timer.Reset(max(pause-time.Since(asked), 0))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-m.kick:
		}
	}
}

func (m *Models) relisting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.relist
}

// ask what there is.
func (m *Models) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m.mu.Lock()
	have := m.revision
	var missed []key
	for k, gone := range m.missed {
		if !gone {
			missed = append(missed, k)
		}
	}
	m.mu.Unlock()
	resp, err := m.cfg.Store.ListModels(ctx, &meshv1.StoreServiceListModelsRequest{Revision: have})
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.notifyWaiting()
	if err != nil {
		m.unheard, m.away, m.relist = m.unheard+1, err, false
		return err
	}
	if !m.listed || resp.GetRevision() != m.revision {
		m.listed, m.revision = true, resp.GetRevision()
		m.take(resp.GetModels())
	}
	m.relist = false
	for _, k := range missed {
		m.missed[k] = true
	}
	for k, gone := range m.missed {
		m.relist = m.relist || !gone && m.known[k] == nil
	}
	return nil
}

// take the whole list, and want the newest of each name as far as there is room. m.mu is held.
func (m *Models) take(all []*pushmeshv1.Model) {
	clear(m.known)
	clear(m.newest)
	clear(m.missed)
	for _, one := range all {
		m.known[key{one.GetName(), one.GetVersion()}] = one
		m.newest[one.GetName()] = max(m.newest[one.GetName()], one.GetVersion())
	}
	there := func(k key) bool { return m.known[k] != nil }
	m.loaded.keep(there)
	m.wanted = slices.DeleteFunc(m.wanted, func(k key) bool { return !there(k) })
	for k := range m.failed {
		if !there(k) {
			delete(m.failed, k)
		}
	}
	room := m.loaded.Most() - m.loaded.Cost()
	for name, version := range m.newest {
		k := key{name, version}
		// A model takes about as much as its file.
		if size := int(m.known[k].GetBytes()); !m.loaded.Has(k) && size <= room {
			room -= size
			m.queue(k)
		}
	}
}

// first of those wanted. It stays wanted until it is loaded, so that it is loaded once.
func (m *Models) first() (key, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.wanted) == 0 {
		return key{}, false
	}
	return m.wanted[0], true
}

// load reads and parses the first of those wanted.
func (m *Models) load(ctx context.Context, k key) {
	began := time.Now()
	model, err := m.read(ctx, k)
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.notifyWaiting()
	m.wanted = slices.DeleteFunc(m.wanted, func(w key) bool { return w == k })
	if m.known[k] == nil || ctx.Err() != nil {
		return
	}
	if err == nil {
		var gone int
		var ok bool
		if gone, ok = m.loaded.Put(k, model, model.Size()); !ok {
			err = code.New(wirev1.Code_CODE_MEMORY_BUDGET, fmt.Sprintf("%s takes %d bytes, all models together may take %d (--model-memory)", k, model.Size(), m.loaded.Most()))
		}
		m.metrics.evicted.Add(float64(gone))
	}
	m.metrics.loads.WithLabelValues(code.Name(code.Of(err))).Inc()
	if err == nil {
		delete(m.failed, k)
		m.cfg.Log.Info("model loaded", "name", k.name, "version", k.version, "bytes", model.Size(), "took", time.Since(began))
		return
	}
	wait := brokenRetry
	if code.Retryable(code.Of(err)) {
		wait = failedRetry
	}
	m.failed[k] = failure{err: code.From(err), before: time.Now().Add(wait)}
	m.cfg.Log.Warn("loading a model failed", "name", k.name, "version", k.version, "error", err)
}

// read a file and parse it. A parser that panics is a fault of this program, and shall not end the
// node.
func (m *Models) read(ctx context.Context, k key) (model *trees.Model, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = code.New(wirev1.Code_CODE_INTERNAL, fmt.Sprintf("%s: the parser panicked: %v", k, r))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	about, file, err := m.cfg.Store.ReadModel(ctx, k.name, k.version)
	if err != nil {
		return nil, err
	}
	return trees.ParseNamed(file, about.GetColumns(), trees.Limits{})
}
