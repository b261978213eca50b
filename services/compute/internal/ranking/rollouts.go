package ranking

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

const (
	// staleAfter is when a plan that no call has had is another policy's, while calls of the
	// namespace go on: routers learn of a change within seconds.
	staleAfter = 10 * time.Second
	// forgetAfter is when a roll-out is forgotten that there are no calls for.
	forgetAfter = time.Hour
	// maxRollouts are known at a time; those used longest ago go.
	maxRollouts = 1024
)

// rollouts are those that this node has seen calls of. It is safe for concurrent use.
type rollouts struct {
	log   *slog.Logger
	now   func() time.Time
	calls *prometheus.CounterVec
	errs  prometheus.Counter

	mu    sync.Mutex
	known map[string][]*rollout // by namespace; more than one while its policy changes
	count int
}

func newRollouts(log *slog.Logger, reg prometheus.Registerer) *rollouts {
	all := &rollouts{
		log: log, now: time.Now, known: map[string][]*rollout{},
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_compute_rollout_calls_total", Help: "Rankings in namespaces that roll out a model, by the version that answered: pinned or next.",
		}, []string{"version"}),
		errs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_compute_rollout_errors_total", Help: "Rankings for which the next version of a model failed, so that the pinned one answered.",
		}),
	}
	reg.MustRegister(all.calls, all.errs, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pushmesh_compute_rollouts_frozen", Help: "Roll-outs whose next version gets no calls on this node, since it exceeded max_error_share or max_slowdown.",
	}, func() float64 { return float64(all.frozen()) }))
	return all
}

// choose which version a call of a namespace is for; nil: no roll-out says so. A namespace whose
// model, which may be nil, has none has none any more.
func (a *rollouts) choose(namespace string, m *pushmeshv1.ModelScorer) *trial {
	if namespace == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	r := a.of(namespace, m, now)
	if r == nil {
		return nil
	}
	r.used = now
	return &trial{all: a, of: r, next: !r.frozen && r.choose()}
}

// of a namespace, the roll-out that its policy has; the others are dropped once they are stale.
// a.mu is held.
func (a *rollouts) of(namespace string, m *pushmeshv1.ModelScorer, now time.Time) *rollout {
	p := planOf(m)
	wanted := p.next != 0 && p.share > 0
	list := a.known[namespace]
	if len(list) == 0 && !wanted {
		return nil
	}
	var found *rollout
	for _, r := range list {
		if wanted && r.plan == p {
			found = r
		}
	}
	if found != nil && len(list) == 1 {
		return found
	}
	a.drop(namespace, func(r *rollout) bool { return r != found && now.Sub(r.used) > staleAfter })
	if found == nil && wanted {
		a.room(now)
		found = &rollout{plan: p, namespace: namespace, used: now}
		a.known[namespace] = append(a.known[namespace], found)
		a.count++
	}
	return found
}

// drop forgets those of a namespace that f names. a.mu is held.
func (a *rollouts) drop(namespace string, f func(*rollout) bool) {
	var left []*rollout
	for _, r := range a.known[namespace] {
		if f(r) {
			a.count--
		} else {
			left = append(left, r)
		}
	}
	if a.known[namespace] = left; left == nil {
		delete(a.known, namespace)
	}
}

// room for one more. a.mu is held.
func (a *rollouts) room(now time.Time) {
	if a.count < maxRollouts {
		return
	}
	a.forget(now)
	for a.count >= maxRollouts {
		var oldest *rollout
		for _, list := range a.known {
			for _, r := range list {
				if oldest == nil || r.used.Before(oldest.used) {
					oldest = r
				}
			}
		}
		a.drop(oldest.namespace, func(r *rollout) bool { return r == oldest })
	}
}

// forget those without calls. a.mu is held.
func (a *rollouts) forget(now time.Time) {
	for namespace := range a.known {
		a.drop(namespace, func(r *rollout) bool { return now.Sub(r.used) > forgetAfter })
	}
}

// frozen counts them.
func (a *rollouts) frozen() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(a.now())
	for _, list := range a.known {
		for _, r := range list {
			if r.frozen {
				n++
			}
		}
	}
	return n
}

// answered counts a call.
func (a *rollouts) answered(next bool) {
	if next {
		a.calls.WithLabelValues("next").Inc()
		return
	}
	a.calls.WithLabelValues("pinned").Inc()
}

// judged changes a roll-out, and freezes it where that says why.
func (a *rollouts) judged(r *rollout, change func() (why string)) {
	a.mu.Lock()
	why := change()
	freeze := why != "" && !r.frozen
	r.frozen = r.frozen || freeze
	a.mu.Unlock()
	if freeze {
		a.log.Warn("roll-out frozen: the next version of the model gets no more calls on this node until the policy changes",
			"namespace", r.namespace, "model", r.name, "version", r.version, "next_version", r.next, "reason", why)
	}
}
