package admission

import (
	"hash/maphash"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
)

// budget finds what a producer has left, for topics under p.
func (a *Admission) budget(now time.Time, producer string, p *policy.Policy) *budget {
	k := key{producer: producer}
	if p != nil && (p.ProducerRate > 0 || p.ProducerInFlight > 0) {
		k.prefix = p.Prefix
	}
	limits := a.Limits(producer, p)
	s := &a.stripes[maphash.String(a.seed, producer)%stripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.budgets[k]
	if b == nil {
		if b = s.make(now, k, limits); b == nil {
			return s.shared(limits)
		}
	}
	b.use(now, limits)
	return b
}

// make adds a budget; nil where there are too many.
func (s *stripe) make(now time.Time, k key, limits Limits) *budget {
	if now.Sub(s.swept) > idleAfter || len(s.budgets) >= maxProducers && now.Sub(s.swept) > time.Second {
		s.sweep(now)
	}
	if len(s.budgets) >= maxProducers {
		return nil
	}
	return s.put(k, limits)
}

func (s *stripe) put(k key, limits Limits) *budget {
	if s.budgets == nil {
		s.budgets = map[key]*budget{}
	}
	b := &budget{limits: limits}
	if limits.Rate > 0 {
		b.bucket = bucket(limits.Rate)
	}
	s.budgets[k] = b
	return b
}

// shared is the budget of all producers that there was no room for. Its key is no producer's: names
// are not empty.
func (s *stripe) shared(limits Limits) *budget {
	if b := s.budgets[key{}]; b != nil {
		return b
	}
	return s.put(key{}, limits)
}

// sweep forgets producers that have nothing in flight and sent nothing lately.
func (s *stripe) sweep(now time.Time) {
	s.swept = now
	for k, b := range s.budgets {
		if b.idle(now) {
			delete(s.budgets, k)
		}
	}
}

func (b *budget) idle(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inFlight.Load() == 0 && now.Sub(b.used) > idleAfter
}

// use notes the time, and new limits of a namespace.
func (b *budget) use(now time.Time, limits Limits) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = now
	if b.limits == limits {
		return
	}
	switch {
	case limits.Rate == 0:
		b.bucket = nil
	case b.bucket == nil:
		b.bucket = bucket(limits.Rate)
	default:
		b.bucket.change(now, limits.Rate, burst(limits.Rate))
	}
	b.limits = limits
}
