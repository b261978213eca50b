package filters

import (
	"sync"

	"github.com/pushmesh/pushmesh/internal/topic"
)

// wanted are the topics and filters whose messages are judged. It has a lock of its own, which
// nobody holds for long: who asks for each message must not wait for the programs of a topic to be
// gathered, or its time to be added up.
type wanted struct {
	mu    sync.RWMutex
	exact map[string]bool
	wild  topic.Index[struct{}]
}

// Wants reports whether a topic has content filters.
func (r *Registry) Wants(name string) bool {
	if r.stats.Subscriptions.Load() == 0 {
		return false
	}
	w := &r.wanted
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.exact[name] || w.wild.Len() > 0 && len(w.wild.Match(nil, name)) > 0
}

func (w *wanted) add(filter string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if topic.IsFilter(filter) {
		w.wild.Add(filter, struct{}{})
		return
	}
	w.exact[filter] = true
}

func (w *wanted) remove(filter string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if topic.IsFilter(filter) {
		w.wild.Remove(filter, struct{}{})
		return
	}
	delete(w.exact, filter)
}
